"""Which cold copies count: of our very put, on a host that answers.  Layer: a tier; on the loop.

The Master names a host's disk copy until long after the host died, and takes a file that a host
brings back for a copy of whatever has the file's key and size now.  So a copy on a host's disk
counts only when that host is known to keep this put, which the book says, and when it accepts a
connection where readers fetch the copy; that takes no lease.  One below `root_fs_dir` counts when
its file was seen here, unchanged since it was read right.  Invariant: while a doubt is left, no
other copy goes on the strength of this one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from weightctl.adapters.mooncake.master.replicas import LOCAL_DISK, NOF, in_memory, state_of
from weightctl.adapters.mooncake.ownership.book import NOBODY
from weightctl.controller.core.observation import MemberState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weightctl.adapters.mooncake.connection import Connection
    from weightctl.adapters.mooncake.master.admin import Segment
    from weightctl.adapters.mooncake.master.replicas import Entry, OnLocalDisk, ReplicaKind
    from weightctl.adapters.mooncake.ownership.book import Row
    from weightctl.controller.core.observation import Member

NO_COPY = "Mooncake has no complete cold replica of it yet"


@dataclass(frozen=True, slots=True)
class _Hosts:
    """The hosts that are mounted: the client of each memory endpoint, the name of each client."""

    client_at: Mapping[str, str]
    name_of: Mapping[str, str]


async def doubts(
    connection: Connection, members: Sequence[Member], entries: Mapping[str, Entry]
) -> dict[str, str]:
    """By key why no cold copy of the member counts now; a key that is not in it has one that does.

    Takes no lease.  Raises ReconcileError.
    """
    found, to_ask, hosts = await _told_apart(connection, members, entries)
    silent = await silent_of(
        connection, {copy.endpoint for copies in to_ask.values() for copy in copies}
    )
    for key, copies in to_ask.items():
        if all(copy.endpoint in silent for copy in copies):
            told = ", ".join(
                f"{hosts.name_of.get(copy.place, 'a host')} at {copy.endpoint or 'no address'}"
                f" ({silent[copy.endpoint]})"
                for copy in copies
            )
            found[key] = f"the host of its disk copy does not answer: {told}"
    return found


async def of_unknown_origin(
    connection: Connection, members: Sequence[Member], entries: Mapping[str, Entry]
) -> frozenset[str]:
    """Keys of which no cold copy would count if all hosts answered.  As `doubts`."""
    found, _, _ = await _told_apart(connection, members, entries)
    return frozenset(found)


async def _told_apart(
    connection: Connection, members: Sequence[Member], entries: Mapping[str, Entry]
) -> tuple[dict[str, str], dict[str, list[OnLocalDisk]], _Hosts]:
    """By key why no cold copy is of our put, and the disk copies that count when a host answers."""
    hosts = await learn(connection, members, entries)
    disk = connection.disk
    in_files = await disk.sound(members, entries) if disk is not None else frozenset()
    found: dict[str, str] = {}
    to_ask: dict[str, list[OnLocalDisk]] = {}
    for member in members:
        entry = entries.get(member.key)
        if entry is None or not entry.ok:
            found[member.key] = NO_COPY
            continue
        if member.key in in_files or _is_complete(entry, NOF, member):
            continue
        copies = entry.local_disk or []
        row = connection.book.get(member.key)
        if why := _strange(entry, member, row, hosts):
            found[member.key] = why
        else:
            to_ask[member.key] = copies
    return found, to_ask, hosts


async def learn(
    connection: Connection,
    members: Sequence[Member],
    entries: Mapping[str, Entry],
    *,
    just_put: bool = False,
) -> _Hosts:
    """Note in the book whose disk keeps the members, as far as this look tells it.

    just_put: what is in memory was put by this process a moment ago.  Raises ReconcileError.
    """
    segments = await connection.segments.listed()
    hosts = _hosts(segments)
    news = []
    for member in members:
        row, entry = connection.book.get(member.key), entries.get(member.key)
        if row is None or not row.says(member.sha256) or entry is None:
            continue
        known = _told(row, entry, hosts, just_put=just_put and bool(row.owner))
        settled = connection.settled.pop(member.key, None) if just_put else None
        if settled is not None and not row.keeper and known.keeper not in settled:
            known = replace(known, keeper=NOBODY, keeper_host="")
        if known != row:
            news.append(known)
    if news and not connection.context.read_only:
        await to_thread.run_sync(connection.book.put, news)
    return hosts


def note_sole(connection: Connection, entries: Mapping[str, Entry]) -> None:
    """Remember of which objects one disk holds the only copy: what comes into memory is from it.

    Until a look shows another one.
    """
    for key, entry in entries.items():
        copy = sole_copy(entry)
        if copy is not None:
            connection.sole[key] = copy.place
        elif {one.place for one in entry.local_disk or ()} != {connection.sole.get(key)}:
            connection.sole.pop(key, None)


async def was_read(connection: Connection, member: Member, before: Entry, after: Entry) -> None:
    """The right bytes were read; when they came from the one disk copy, its host keeps them.

    before, after: of looks right before and after it.  Raises ReconcileError.
    """
    place = connection.sole.pop(member.key, "")
    places = {copy.place for copy in after.local_disk or ()}
    row = connection.book.get(member.key)
    if before.memory and row is not None and row.keeper not in ("", NOBODY):
        return  # it may have come from there, whose copy is not listed any more
    if row is None or row.sha256 != member.sha256 or places != {place} or row.keeper == place:
        return
    hosts = _hosts(await connection.segments.listed())
    known = replace(row, keeper=place, keeper_host=hosts.name_of.get(place, ""))
    await to_thread.run_sync(connection.book.put, [known])


def sole_copy(entry: Entry | None) -> OnLocalDisk | None:
    """The disk copy from which a reader is certain to be served; None when there is a choice."""
    if entry is None or entry.memory or entry.disk or entry.nof:
        return None
    copies = entry.local_disk or []
    return copies[0] if len(copies) == 1 else None


def _told(row: Row, entry: Entry, hosts: _Hosts, *, just_put: bool) -> Row:
    """What a row says after a look at its object."""
    places = {copy.place for copy in entry.local_disk or ()}
    keeper, keeper_host = row.keeper, row.keeper_host
    memory = {hosts.client_at.get(found.endpoint, "") for found in in_memory(entry)}
    if not keeper and len(memory) == 1 and (just_put or memory == places):
        (keeper,) = memory
    back = {place for place in places if keeper_host and hosts.name_of.get(place) == keeper_host}
    if keeper not in places and len(back) == 1:  # the host is back on its folder
        (keeper,) = back
    if keeper in places and not keeper_host:
        keeper_host = hosts.name_of.get(keeper, "")
    return replace(row, keeper=keeper, keeper_host=keeper_host)


def _strange(entry: Entry, member: Member, row: Row | None, hosts: _Hosts) -> str:
    """Why the disk copies may not be of our put; empty when all are, or when one can be read."""
    copies = entry.local_disk or []
    if not copies:
        return NO_COPY
    if sole_copy(entry) is not None and _is_complete(entry, LOCAL_DISK, member):
        return ""  # nothing else can be read: reading it tells
    for copy in copies:
        if copy.size_bytes != member.size_bytes:
            return f"a disk copy of it has {copy.size_bytes} bytes and not {member.size_bytes}"
        if row is None or copy.place != row.keeper:
            name = hosts.name_of.get(copy.place, copy.endpoint)
            return (
                f"its copy on the disk of {name} was not seen to come from what was put, and may be"
                " an older file of that name: it counts once it was read with no replica in memory;"
                " if that cannot be, delete the revision and import it again"
            )
    return ""


def _is_complete(entry: Entry, kind: ReplicaKind, member: Member) -> bool:
    return state_of(entry, kind, member.size_bytes) is MemberState.COMPLETE


def _hosts(segments: Iterable[Segment]) -> _Hosts:
    up = [one for one in segments if one.status == "OK"]
    return _Hosts(
        {one.endpoint: one.client_id for one in up}, {one.client_id: one.name for one in up}
    )


# --- whether a host answers ---------------------------------------------------------------------


async def silent_of(connection: Connection, endpoints: Iterable[str]) -> dict[str, str]:
    """By endpoint why it accepts no connection; each is asked once, all at the same time."""
    found: dict[str, str] = {}
    deadline_s = connection.options.deadline_s

    async def ask(endpoint: str) -> None:
        host, _, port = endpoint.rpartition(":")
        found[endpoint] = f"no answer within {deadline_s:g} s"
        with anyio.move_on_after(deadline_s):
            try:
                stream = await anyio.connect_tcp(host.strip("[]"), int(port))
                del found[endpoint]
                await anyio.aclose_forcefully(stream)
            except (OSError, ValueError) as error:
                found[endpoint] = str(error) or type(error).__name__

    async with anyio.create_task_group() as tasks:
        for endpoint in endpoints:
            tasks.start_soon(ask, endpoint)
    return found
