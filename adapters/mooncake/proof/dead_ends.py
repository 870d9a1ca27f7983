"""Which disk copies can never be proven while memory holds the object.  Layer: a tier; on loop.

A reader is given the memory replica, so a disk copy beside it is proven by whose disk it is on
(`cold`), or by reading it from its host (`on_disk`).  Where neither can be, an operation that needs
that copy would wait for ever.  Invariant: a doubt that may pass by itself, a host that is silent or
an offload that is late, is no dead end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weightctl.adapters.mooncake.master.replicas import LOCAL_DISK, NOF, in_memory, state_of
from weightctl.adapters.mooncake.proof import on_disk
from weightctl.adapters.mooncake.proof.cold import learn
from weightctl.controller.core.observation import MemberState
from weightctl.controller.errors import ReconcileError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weightctl.adapters.mooncake.connection import Connection
    from weightctl.adapters.mooncake.master.replicas import Entry, OnLocalDisk
    from weightctl.adapters.mooncake.ownership.book import Row
    from weightctl.controller.core.observation import Member


async def dead_ends(connection: Connection, members: Sequence[Member]) -> dict[str, str]:
    """By key why its copies on hosts' disks cannot be proven; others are not in it.

    Reads what it can of the doubtful ones for `deadline_s`; what it does not come to is left to the
    operation.  Takes no lease.  Raises ReconcileError.
    """
    entries, _ = await connection.look.entries([member.key for member in members])
    hosts = await learn(connection, members, entries)
    disk = connection.disk
    sound = await disk.sound(members, entries) if disk is not None else frozenset()
    found = {}
    until_s = connection.context.clock.monotonic_s() + connection.options.deadline_s
    for member in members:
        entry = entries.get(member.key)
        if entry is None or member.key in sound or not _is_beside_memory(entry, member):
            continue
        memory = {hosts.client_at.get(one.endpoint, "") for one in in_memory(entry)}
        keeper = _keeper(connection.book.get(member.key), entry, memory)
        copies = entry.local_disk or []
        unknown = [c for c in copies if c.place != keeper or c.size_bytes != member.size_bytes]
        wrong = connection.wrong_on_disk.get(member.key)
        if not unknown and wrong not in {one.place for one in copies}:
            continue
        first = (unknown or copies)[0]
        name = hosts.name_of.get(first.place, first.endpoint)
        copy = on_disk.one_copy(entry, member, connection.unread_disks)
        if copy is None:
            found[member.key] = f"its copy on the disk of {name} {_why_not(connection, unknown)}"
        elif await _is_wrong(connection, member, copy, until_s):
            found[member.key] = f"{on_disk.WRONG}, on {name}"
    return found


async def _is_wrong(
    connection: Connection, member: Member, copy: OnLocalDisk, until_s: float
) -> bool:
    """Whether the copy is known to be wrong, or was found so within the time."""
    known = connection.wrong_on_disk.get(member.key) == copy.place
    if known or connection.context.read_only:
        return known
    if connection.context.clock.monotonic_s() >= until_s:
        return False
    if await connection.reads.within_budget(member) is not None:
        return False
    try:
        got = await on_disk.read(connection, member, copy, None)
    except ReconcileError:
        return False  # the operation asks again
    if got == member.sha256:
        await on_disk.note_right(connection, member, copy)
    return got != member.sha256


def _why_not(connection: Connection, unknown: Sequence[OnLocalDisk]) -> str:
    told = [connection.unread_disks.get(copy.endpoint, "") for copy in unknown]
    why = next(filter(None, told), "")
    return (
        "was not seen to come from what was put, and cannot be read while memory holds the object"
        + (f": {why}" if why else "")
    )


def _is_beside_memory(entry: Entry, member: Member) -> bool:
    """Whether readers get the memory replica, and only hosts' disks have the object too."""
    on_disks, on_nof = (state_of(entry, kind, member.size_bytes) for kind in (LOCAL_DISK, NOF))
    there = MemberState.COMPLETE
    return entry.ok and bool(in_memory(entry)) and on_disks is there and on_nof is not there


def _keeper(row: Row | None, entry: Entry, memory: set[str]) -> str:
    """Whose disk keeps the object, as the book says, or may come to say once it has been read."""
    if row is not None and (row.keeper or row.owner):
        return row.keeper
    places = {copy.place for copy in entry.local_disk or ()}
    return next(iter(memory)) if len(memory) == 1 and memory == places else ""
