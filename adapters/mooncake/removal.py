"""Taking replicas and objects away.  Layer: a tier; on the loop.

A MEMORY replica is dropped by the client that put the object, or, when that client is gone, by
parking.  The clear has no precondition and takes the last replica without a word; so each one is
preceded by a fresh look that finds a complete cold replica of our very put, whose digest is known,
on a host that answers, and followed by another look, which alone says that it was done.  Where
another medium has a proven copy, an object without such a replica is removed whole: what nobody
can prove must not be what readers are left with.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from anyio import to_thread

from weightctl.adapters.mooncake.client.codes import Meaning, meaning_of, outcome_of_code
from weightctl.adapters.mooncake.client.engine import Engine
from weightctl.adapters.mooncake.client.transfers import digest_of
from weightctl.adapters.mooncake.master.replicas import (
    MEMORY,
    has_cold,
    in_memory,
    is_absent,
    replicas_of,
    state_of,
)
from weightctl.adapters.mooncake.parking.dropping import park
from weightctl.adapters.mooncake.proof.cold import NO_COPY, doubts, of_unknown_origin
from weightctl.adapters.mooncake.proof.content import is_known, read_first, reading_until_s
from weightctl.adapters.mooncake.root_fs.engine import FileEngine
from weightctl.adapters.shared.translate import outcome_from_error
from weightctl.controller.core.observation import MemberState
from weightctl.controller.errors import ReconcileError
from weightctl.controller.ports import (
    Busy,
    Conflict,
    Done,
    NoOp,
    Outcome,
    Permanent,
    Retry,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from weightctl.adapters.mooncake.connection import Connection
    from weightctl.adapters.mooncake.master.replicas import Entry, ReplicaKind
    from weightctl.controller.core.observation import Member
    from weightctl.controller.ports import DropItem

    InstanceOf = Callable[[str, Entry], str]

_log = logging.getLogger(__name__)
POLL_S = 0.05
ALONE = (
    "this Mooncake release cannot remove one such replica alone; it goes with the whole object,"
    " when the revision is deleted"
)


@dataclass(slots=True, kw_only=True)
class Work:
    """A batch of drops, by index: what is decided, and what is to be done."""

    outcomes: dict[int, Outcome] = field(default_factory=dict)
    whole: list[int] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)


async def remove(
    connection: Connection, kind: ReplicaKind, batch: Sequence[DropItem], instance_of: InstanceOf
) -> list[Outcome]:
    """Drop the named instances.  Raises ReconcileError when nothing could be looked at."""
    entries, _ = await connection.look.entries([item.member.key for item in batch])
    work = Work()
    elsewhere = []
    for index, item in enumerate(batch):
        entry = entries.get(item.member.key)
        outcome = named(connection, kind, item, entry, instance_of)
        if outcome is not None:
            work.outcomes[index] = outcome
        elif item.whole:
            work.whole.append(index)
        elif kind is not MEMORY:
            work.outcomes[index] = Permanent(detail=ALONE)
        elif item.elsewhere:
            elsewhere.append(index)
        else:
            work.memory.append(index)
    if elsewhere:
        await _choose(connection, batch, elsewhere, work, entries)
    if work.whole:
        await remove_whole(connection, batch, work, entries)
    if work.memory:
        await _drop_memory(connection, batch, work, instance_of)
    return [work.outcomes[index] for index in range(len(batch))]


def named(
    connection: Connection,
    kind: ReplicaKind,
    item: DropItem,
    entry: Entry | None,
    instance_of: InstanceOf,
) -> Outcome | None:
    """Why nothing has to be, or can be, done to the named instance; None when it is there."""
    if entry is None:
        return Retry(detail="the Master did not answer for it")
    if connection.book.others(item.member.group_id, [item.member.key]):
        return NoOp()
    if is_absent(entry) or not replicas_of(entry, kind):
        state = state_of(entry, kind, item.member.size_bytes)
        if state is MemberState.ABSENT:
            return NoOp()
        return Busy(detail="it is being written")
    if instance_of(item.member.key, entry) != item.instance_id:
        return Conflict(detail="another copy is there")
    if connection.reading[item.member.key]:
        return Busy(detail="it is open for reading in this process")
    return None


async def _choose(
    connection: Connection,
    batch: Sequence[DropItem],
    elsewhere: Sequence[int],
    work: Work,
    entries: Mapping[str, Entry],
) -> None:
    """How memory goes of what another medium has: with the whole object where the rest is unproven.

    Files below `root_fs_dir`, and what is on NoF, stay.
    """
    members = [batch[index].member for index in elsewhere]
    unproven = await of_unknown_origin(connection, members, entries)
    until_s = reading_until_s(connection)
    for index in elsewhere:
        member = batch[index].member
        entry = entries.get(member.key)
        if member.key not in unproven or entry is None or entry.disk or entry.nof:
            work.memory.append(index)
        elif is_known(connection, member):
            work.whole.append(index)
        else:
            work.outcomes[index] = await read_first(connection, member, until_s)


# --- whole objects ------------------------------------------------------------------------------


async def remove_whole(
    connection: Connection,
    batch: Sequence[DropItem],
    work: Work,
    entries: Mapping[str, Entry],
) -> None:
    """Remove objects of a deleted revision, every replica and file of them; honours leases."""
    left = work.whole
    until_s = connection.context.clock.monotonic_s() + connection.options.patience_s
    while left:
        keys = [batch[index].member.key for index in left]
        async with connection.clients.owner() as worker:
            codes = await worker.call(Engine.remove, keys)
        for index, code in zip(left, codes, strict=True):
            if code == 0:
                work.outcomes[index] = Done(instance_id=batch[index].instance_id)
            else:
                busy_ms = _busy_until_ms(connection, batch[index].member.group_id)
                work.outcomes[index] = outcome_of_code(code, busy_until_ms=busy_ms)
        _note_waiting(connection, batch, left, work)
        leased = [
            index
            for index, code in zip(left, codes, strict=True)
            if code != 0 and meaning_of(code) in (Meaning.LEASED, Meaning.WRITING)
        ]
        gone = [index for index in left if isinstance(work.outcomes[index], (Done, NoOp))]
        await _forget(connection, batch, gone, work, entries)
        left = leased
        if left and not await _patient(connection, until_s):
            return


async def _forget(
    connection: Connection,
    batch: Sequence[DropItem],
    gone: Sequence[int],
    work: Work,
    entries: Mapping[str, Entry],
) -> None:
    """Remove the files that Mooncake leaves, then the rows that say where they are."""
    removed = []
    for index in gone:
        member = batch[index].member
        path = connection.disk.path_of(member.key, entries) if connection.disk is not None else ""
        try:
            if connection.disk is not None and path:
                await connection.disk.call(FileEngine.remove, path)
            removed.append(member.key)
        except ReconcileError as error:
            work.outcomes[index] = outcome_from_error(error)
    await to_thread.run_sync(connection.book.forget, removed)


def _note_waiting(
    connection: Connection, batch: Sequence[DropItem], tried: Sequence[int], work: Work
) -> None:
    """Tell our own reading which groups wait for a lease to run out, and which do not any more."""
    waits: dict[str, bool] = {}
    for index in tried:
        outcome, group_id = work.outcomes[index], batch[index].member.group_id
        leased = isinstance(outcome, Busy) and outcome.until_ms is not None
        waits[group_id] = waits.get(group_id, False) or leased
    for group_id, leased in waits.items():
        (connection.reads.drop_waits if leased else connection.reads.drop_went)(group_id)


def _busy_until_ms(connection: Connection, group_id: str) -> int:
    return connection.reads.leased_until_ms(group_id) or connection.reads.lease_end_ms()


async def _patient(connection: Connection, until_s: float) -> bool:
    """Whether to try once more, after a pause."""
    clock = connection.context.clock
    if clock.monotonic_s() >= until_s:
        return False
    await clock.sleep(POLL_S)
    return True


# --- memory replicas ----------------------------------------------------------------------------


async def _drop_memory(
    connection: Connection, batch: Sequence[DropItem], work: Work, instance_of: InstanceOf
) -> None:
    left, read_until_s = work.memory, reading_until_s(connection)
    until_s = connection.context.clock.monotonic_s() + connection.options.patience_s
    while left:
        members = [batch[index].member for index in left]
        entries, _ = await connection.look.entries([member.key for member in members])
        disk = connection.disk
        filed = await disk.unlisted(members, entries) if disk is not None else frozenset[str]()
        ready, alone = list[int](), list[int]()
        for index in left:
            member = batch[index].member
            entry = entries.get(member.key)
            refused = named(connection, MEMORY, batch[index], entry, instance_of)
            if refused is None and not is_known(connection, member):
                refused = await read_first(connection, member, read_until_s)
            if refused is not None:
                work.outcomes[index] = refused
            elif entry is not None and has_cold(entry, member.size_bytes):
                ready.append(index)
            elif member.key in filed:
                alone.append(index)
            else:
                work.outcomes[index] = Busy(detail=NO_COPY)
        if alone:
            await _leave_files(connection, batch, alone, work)
        if ready:
            await _drop_ready(connection, batch, ready, work)
        left = [index for index in left if isinstance(work.outcomes[index], Busy)]
        if left and not await _patient(connection, until_s):
            return


async def _leave_files(
    connection: Connection, batch: Sequence[DropItem], alone: Sequence[int], work: Work
) -> None:
    """Remove the objects and leave their files, as a Master does that was restarted."""
    keys = [batch[index].member.key for index in alone]
    async with connection.clients.owner() as worker:
        codes = await worker.call(Engine.remove, keys)
    for index, code in zip(alone, codes, strict=True):
        if code == 0 or meaning_of(code) is Meaning.ABSENT:
            work.outcomes[index] = Done(instance_id=batch[index].instance_id)
        else:
            busy_ms = _busy_until_ms(connection, batch[index].member.group_id)
            work.outcomes[index] = outcome_of_code(code, busy_until_ms=busy_ms)
    _note_waiting(connection, batch, alone, work)


async def _drop_ready(
    connection: Connection, batch: Sequence[DropItem], ready: Sequence[int], work: Work
) -> None:
    """Clear what this client owns, park the rest; the outcome is what is seen after it."""
    owner = await connection.clients.owner_name()
    rows = {index: connection.book.get(batch[index].member.key) for index in ready}
    owned = [index for index in ready if (row := rows[index]) is not None and row.owner == owner]
    strange = [index for index in ready if index not in owned]
    if owned:
        await _drop_owned(connection, batch, owned, work)
    if strange:
        strange = await _undoubted(connection, batch, strange, work)
        parked = await park(connection, [batch[index].member for index in strange])
        for index, outcome in zip(strange, parked, strict=True):
            done = Done(instance_id=batch[index].instance_id)
            work.outcomes[index] = done if isinstance(outcome, Done) else outcome
    connection.reads.dropped(
        batch[index].member.key for index in ready if isinstance(work.outcomes[index], Done)
    )
    dropped = [
        replace(row, drops=row.drops + 1)
        for index in ready
        if isinstance(work.outcomes[index], Done) and (row := rows[index]) is not None
    ]
    await to_thread.run_sync(connection.book.put, dropped)


async def _undoubted(
    connection: Connection, batch: Sequence[DropItem], indexes: Sequence[int], work: Work
) -> list[int]:
    """Those that have a cold copy that counts, by a look of its own; the others are refused."""
    members = [batch[index].member for index in indexes]
    entries, _ = await connection.look.entries([member.key for member in members])
    found = await doubts(connection, members, entries)
    for index in indexes:
        why = found.get(batch[index].member.key)
        if why is not None:
            work.outcomes[index] = _refused(why)
    return [index for index in indexes if batch[index].member.key not in found]


def _refused(why: str) -> Outcome:
    """What a doubt means for a drop: an offload that is late is waited for."""
    return Busy(detail=why) if why == NO_COPY else Retry(detail=why)


async def _drop_owned(
    connection: Connection, batch: Sequence[DropItem], owned: Sequence[int], work: Work
) -> None:
    found = await _clear(connection, [batch[index].member for index in owned])
    entries, _ = await connection.look.entries([batch[index].member.key for index in owned])
    leased = []
    for index in owned:
        member = batch[index].member
        entry = entries.get(member.key)
        if entry is not None and state_of(entry, MEMORY, member.size_bytes) is MemberState.ABSENT:
            work.outcomes[index] = Done(instance_id=batch[index].instance_id)
        elif member.key in found:
            work.outcomes[index] = _refused(found[member.key])
        else:
            leased.append(index)
            work.outcomes[index] = Busy(
                until_ms=_busy_until_ms(connection, member.group_id),
                detail="a reader holds a lease on it, or its offload has just read it",
            )
    done = sum(isinstance(work.outcomes[index], Done) for index in owned)
    if done:
        _log.info("cleared the memory replicas of %d objects", done)
    _note_waiting(connection, batch, owned, work)
    for index in leased:
        if connection.reads.may_be_anothers(batch[index].member):
            work.outcomes[index] = await _read_again(connection, batch[index].member)
            return  # one at a time: a drop has no time for more


async def _clear(connection: Connection, members: Sequence[Member]) -> dict[str, str]:
    """Clear those of which a cold copy counts; by key why one of the others does not."""
    names = {segment.endpoint: segment.name for segment in await connection.segments.listed()}
    entries, _ = await connection.look.entries([member.key for member in members])
    # Seen again directly before the clear, which has no precondition of its own.
    found = await doubts(connection, members, entries)
    by_segment: dict[str, list[str]] = {}
    for member in members:
        if member.key not in found:
            for replica in in_memory(entries[member.key]):
                segment = names.get(replica.endpoint)
                if segment:
                    by_segment.setdefault(segment, []).append(member.key)
    async with connection.clients.owner() as worker:
        for segment, keys in by_segment.items():
            await worker.call(Engine.clear, keys, segment)
    return found


async def _read_again(connection: Connection, member: Member) -> Outcome:
    """What a replica is that could not be cleared though no lease of ours is left on its group.

    The Master refuses alike what a reader holds and what another client has put meanwhile, which
    can have the very place and size of what was ours.
    """
    try:
        got = await digest_of(connection, member, None)
    except ReconcileError as error:
        return outcome_from_error(error, expected_sha256=member.sha256)
    row = connection.book.get(member.key)
    if got != member.sha256 or row is None:
        await to_thread.run_sync(connection.book.forget, [member.key])
        connection.reads.drop_went(member.group_id)  # nothing waits any more: it may be read
        return Conflict(detail="somebody has put another object under its key")
    if member.size_bytes <= connection.options.parking_bytes // 2:
        # If it was put anew with the same content, only parking can drop it.
        await to_thread.run_sync(connection.book.put, [replace(row, owner="")])
    return Busy(until_ms=connection.reads.lease_end_ms(), detail="a reader holds a lease on it")
