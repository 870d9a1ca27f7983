"""Which disk copies can never be read back while memory holds the object.  Layer: a tier; on loop.

A reader is given the memory replica, so a disk copy beside it is proven only by whose disk it is on
(`cold`).  Where the book says that what was put is kept elsewhere, nothing that weightctl may do
tells more: an operation that needs that copy would wait for ever.  Invariant: a doubt that may pass
by itself, a host that is silent or an offload that is late, is no dead end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weightctl.adapters.mooncake.master.replicas import LOCAL_DISK, NOF, in_memory, state_of
from weightctl.adapters.mooncake.proof.cold import learn
from weightctl.controller.core.observation import MemberState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weightctl.adapters.mooncake.connection import Connection
    from weightctl.adapters.mooncake.master.replicas import Entry
    from weightctl.adapters.mooncake.ownership.book import Row
    from weightctl.controller.core.observation import Member


async def dead_ends(connection: Connection, members: Sequence[Member]) -> dict[str, str]:
    """By key why its copies on hosts' disks cannot be proven; others are not in it.

    Takes no lease.  Raises ReconcileError.
    """
    entries, _ = await connection.look.entries([member.key for member in members])
    hosts = await learn(connection, members, entries)
    disk = connection.disk
    sound = await disk.sound(members, entries) if disk is not None else frozenset()
    found = {}
    for member in members:
        entry = entries.get(member.key)
        if entry is None or member.key in sound or not _is_beside_memory(entry, member):
            continue
        memory = {hosts.client_at.get(one.endpoint, "") for one in in_memory(entry)}
        keeper = _keeper(connection.book.get(member.key), entry, memory)
        for copy in entry.local_disk or ():
            if copy.place != keeper or copy.size_bytes != member.size_bytes:
                name = hosts.name_of.get(copy.place, copy.endpoint)
                found[member.key] = (
                    f"its copy on the disk of {name} was not seen to come from what was put, and"
                    " cannot be read while memory holds the object"
                )
    return found


def _is_beside_memory(entry: Entry, member: Member) -> bool:
    """Whether readers get the memory replica, and only hosts' disks have the object too."""
    on_disk, on_nof = (state_of(entry, kind, member.size_bytes) for kind in (LOCAL_DISK, NOF))
    there = MemberState.COMPLETE
    return entry.ok and bool(in_memory(entry)) and on_disk is there and on_nof is not there


def _keeper(row: Row | None, entry: Entry, memory: set[str]) -> str:
    """Whose disk keeps the object, as the book says, or may come to say once it has been read."""
    if row is not None and (row.keeper or row.owner):
        return row.keeper
    places = {copy.place for copy in entry.local_disk or ()}
    return next(iter(memory)) if len(memory) == 1 and memory == places else ""
