"""Putting an object so that Mooncake makes its DISK replica, too.  Layer: a tier; on the loop.

Only the plain put makes one: the client writes the file while the object can be read already, says
so to the Master, and syncs nothing.  It succeeds also when somebody else's object is there.  So all
bytes are held, and their digest is right, before it begins; and it has ended only when the file was
synced and read back, which also tells whose object it is.  Invariant: a right file is never written
into: while its object is put anew it is kept beside.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from weightctl.adapters.mooncake.client.codes import Meaning, meaning_of, outcome_of_code
from weightctl.adapters.mooncake.client.engine import Engine
from weightctl.adapters.mooncake.client.transfers import (
    digest_of,
    no_room_or,
    write_all,
)
from weightctl.adapters.mooncake.master.replicas import DISK, is_absent, is_there, state_of
from weightctl.adapters.mooncake.ownership.epoch import MARKER_PREFIX
from weightctl.adapters.mooncake.root_fs.engine import FileEngine
from weightctl.adapters.shared.sources import opened_source
from weightctl.controller.core.observation import MemberState
from weightctl.controller.errors import ReconcileError
from weightctl.controller.ports import Busy, Conflict, Corrupt, Done, NoCapacity, Outcome, Retry

if TYPE_CHECKING:
    from weightctl.adapters.mooncake.connection import Connection
    from weightctl.adapters.mooncake.master.replicas import Entry
    from weightctl.adapters.mooncake.ownership.book import Row
    from weightctl.adapters.mooncake.root_fs.files import Copy, DiskFiles
    from weightctl.adapters.shared.sources import SourceReader
    from weightctl.controller.core.observation import Member
    from weightctl.controller.ports import Fence, Limiter, StoreItem

_LET_GO_S = 5.0
_POLL_S = (0.005, 0.25)
"""Least and longest pause between two looks for the file; it grows with the time waited."""
_POLL_SHARE = 0.2
_MARKER_S = 1.0
"""For the file of the marker, where its put has just ended."""
ANOTHERS = "somebody has put another object under its key"
NO_FILE = (
    "no DISK replica of it came with its put, and Mooncake makes none later: start the Master with"
    " --root_fs_dir, and mount that folder here and on its hosts"
)
_LAST = (
    "it would have to be put anew, and nothing else is known to hold its bytes: verify it in"
    " mooncake-disk, or copy it into another tier, or delete the revision and import it again"
)


async def put_with_file(
    connection: Connection,
    item: StoreItem,
    fence: Fence,
    limit: Limiter | None,
    *,
    row: Row,
    over: bool,
) -> Outcome:
    """Done when the object is in memory, its file as far as Mooncake made it.

    row: for the book, before the object is put; over: instead of the object that is there.  Raises
    ReconcileError.
    """
    member, key = item.member, item.member.key
    async with opened_source(item) as source:
        if source.size_bytes != member.size_bytes:
            return Corrupt(expected=member.sha256, got=b"", instance_id=source.instance_id)
        try:
            got = await _held(connection, key, source, limit)
            if got != member.sha256:
                return Corrupt(expected=member.sha256, got=got)
            await to_thread.run_sync(connection.book.admit, fence)
            await _make_sure(connection)
            refused = await _make_way(connection, member, source, over=over)
            if refused is not None:
                return refused
            kept = connection.book.get(key)
            if kept is not None and kept.sha256 == member.sha256:
                row = replace(row, file=kept.file, file_stamp=kept.file_stamp)
            await to_thread.run_sync(connection.book.put, [row])
            code = await _put(connection, member)
        finally:
            await _let_go(connection, key)
    if code != 0:
        return await no_room_or(connection, member, code)
    hurried = connection.disk is not None and connection.disk.is_missed
    return await settle(connection, member, hurried=hurried)


async def _held(
    connection: Connection, key: str, source: SourceReader, limit: Limiter | None
) -> bytes:
    """Have all bytes of the source in the client's process; their SHA-256."""
    async with connection.clients.owner() as worker:
        await worker.call(Engine.hold, key, source.size_bytes)
    return await write_all(connection, key, source, limit, Engine.gather)


async def _make_sure(connection: Connection) -> None:
    """Be sure that the folder is this store's before anything is written into it.

    Where it is tells the file of the marker of the epoch, which was put before anything else.
    """
    clock, disk = connection.context.clock, connection.disk
    marker = f"{MARKER_PREFIX}{connection.book.epoch}"
    until_s = clock.monotonic_s() + _MARKER_S
    while disk is not None:
        entries, _ = await connection.look.entries([marker])
        path = disk.path_of(marker, entries)
        await disk.make_sure(path)
        if path or disk.is_missed or clock.monotonic_s() >= until_s:
            return
        await clock.sleep(_POLL_S[0])


async def _put(connection: Connection, member: Member) -> int:
    async with connection.clients.owner() as worker:
        return await worker.call(
            Engine.put_held,
            member.key,
            member.group_id,
            data_type=int(member.data_type),
            segment=connection.segments.next(),
        )


async def _let_go(connection: Connection, key: str) -> None:
    with anyio.move_on_after(_LET_GO_S, shield=True):
        try:
            async with connection.clients.owner() as worker:
                await worker.call(Engine.let_go_of, key)
        except ReconcileError:
            return  # with its process the bytes are gone, too


# --- in the place of what is there --------------------------------------------------------------


async def _make_way(
    connection: Connection, member: Member, source: SourceReader, *, over: bool
) -> Outcome | None:
    """Keep the file that is right, and remove the object whose place is needed."""
    disk = connection.disk
    entries, _ = await connection.look.entries([member.key])
    copy = (await disk.copies([member], entries)).get(member.key) if disk else None
    safe = copy is not None and copy.known
    if over:
        is_ours = _is_ours(connection, member, source, copy)
        if connection.reading[member.key] > is_ours:  # the source itself has been read to its end
            return Busy(detail="it is open for reading in this process")
        if is_ours and not safe:
            return Retry(detail=_LAST)
        refused = await _remove(connection, member)
        if refused is not None:
            return refused
    if disk is not None and copy is not None and copy.known:
        await disk.call(FileEngine.keep, copy.path, copy.stamp)
    return None


def _is_ours(
    connection: Connection, member: Member, source: SourceReader, copy: Copy | None
) -> bool:
    """Whether the source is this very object, in memory or its file."""
    row = connection.book.get(member.key)
    from_file = copy is not None and source.instance_id == copy.instance_id
    return from_file or (row is not None and source.instance_id.startswith(f"{row.token}."))


async def _remove(connection: Connection, member: Member) -> Outcome | None:
    """Remove an object whose bytes are held."""
    hosts = await connection.segments.hosts()
    free_bytes = sum(one.capacity_bytes - one.used_bytes for one in hosts)
    if free_bytes < member.size_bytes:
        return NoCapacity(needed_bytes=member.size_bytes, free_bytes=max(free_bytes, 0))
    async with connection.clients.owner() as worker:
        (code,) = await worker.call(Engine.remove, [member.key])
    if code == 0 or meaning_of(code) is Meaning.ABSENT:
        return None
    if meaning_of(code) is Meaning.LEASED:
        return outcome_of_code(code, busy_until_ms=connection.reads.lease_end_ms())
    return outcome_of_code(code)


# --- after it -----------------------------------------------------------------------------------


async def settle(connection: Connection, member: Member, *, hurried: bool = False) -> Outcome:
    """Wait for the file, and prove it; Done also when none came and the memory is right.

    hurried: look only once.  Raises ReconcileError.
    """
    disk = connection.disk
    if disk is None:
        return Retry(detail=NO_FILE)
    wait_s = 0.0 if hurried else connection.options.appear_s
    entry = await _listed(connection, disk, member, wait_s)
    if entry is None or not is_there(entry):
        return Retry(detail="it vanished, or was not ready, when it had been put")
    if state_of(entry, DISK, member.size_bytes) is not MemberState.COMPLETE:
        if await digest_of(connection, member, None) != member.sha256:
            return await _is_anothers(connection, member)
        row = connection.book.get(member.key)
        if row is not None and not row.token:
            ours = replace(row, token=connection.context.entropy.token(8))
            await to_thread.run_sync(connection.book.put, [ours])
        return Done(moved_bytes=member.size_bytes)
    if await seal(connection, disk, member, entry):
        return Done(moved_bytes=member.size_bytes)
    return await _is_anothers(connection, member)


async def seal(connection: Connection, disk: DiskFiles, member: Member, entry: Entry) -> bool:
    """Whether the listed file is right; then it is synced, in the book, and nothing is kept."""
    path = disk.path_of(member.key, {member.key: entry})
    stamp, digest = await disk.call(FileEngine.seal, path)
    row = connection.book.get(member.key)
    if digest != member.sha256 or row is None or row.sha256 != member.sha256:
        return False
    if (row.file, row.file_stamp) != (path, stamp) or not row.token:
        token = row.token or connection.context.entropy.token(8)
        known = replace(row, token=token, file=path, file_stamp=stamp)
        await to_thread.run_sync(connection.book.put, [known])
        await disk.call(FileEngine.let_go, path)
    return True


async def _is_anothers(connection: Connection, member: Member) -> Outcome:
    """Conflict; the book goes on to know the file that is kept, and nothing of the object."""
    row = connection.book.get(member.key)
    if row is not None and row.file:
        kept = replace(row, token="", owner="")
        await to_thread.run_sync(connection.book.put, [kept])
    else:
        await to_thread.run_sync(connection.book.forget, [member.key])
    return Conflict(detail=ANOTHERS)


async def _listed(
    connection: Connection, disk: DiskFiles, member: Member, wait_s: float
) -> Entry | None:
    """What the Master says once it lists the file, or does not for long; None without an answer."""
    clock = connection.context.clock
    started_s = clock.monotonic_s()
    while True:
        entries, _ = await connection.look.entries([member.key])
        entry = entries.get(member.key)
        is_listed = state_of(entry, DISK, member.size_bytes) is MemberState.COMPLETE
        waited_s = clock.monotonic_s() - started_s
        if is_listed or is_absent(entry) or waited_s >= wait_s:
            disk.is_missed = not is_listed
            return entry
        await clock.sleep(min(max(waited_s * _POLL_SHARE, _POLL_S[0]), _POLL_S[1]))
