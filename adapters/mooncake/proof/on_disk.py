"""Proving a disk copy by reading that very copy.  Layer: a tier; on the loop.

A reader is given the memory replica, so a disk copy beside it is read from its host itself, which
takes no lease and promotes nothing (`client.on_disk`).  Invariants: what is proven is the one disk
copy that was listed before and after; wrong bytes prove that it is an older file, and no answer
proves nothing.  A wrong one is no Corrupt replica while memory holds the object: it cannot
be taken away alone, and is left for what it is, a copy that does not count.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from anyio import to_thread

from weightctl.adapters.mooncake.client.transfers import digest_on_disk
from weightctl.adapters.mooncake.master.replicas import NOF, state_of
from weightctl.controller.core.observation import MemberState
from weightctl.controller.errors import TerminalError

if TYPE_CHECKING:
    from collections.abc import Container

    from weightctl.adapters.mooncake.connection import Connection
    from weightctl.adapters.mooncake.master.replicas import Entry, OnLocalDisk
    from weightctl.controller.core.observation import Member
    from weightctl.controller.ports import Limiter


def one_copy(
    entry: Entry | None, member: Member, unread_disks: Container[str]
) -> OnLocalDisk | None:
    """The disk copy that can be proven by reading it; None where that would prove nothing.

    A reader may get any of several.  unread_disks: endpoints of hosts that cannot be read so.
    """
    if entry is None or entry.disk:
        return None
    if state_of(entry, NOF, member.size_bytes) is MemberState.COMPLETE:
        return None
    copies = entry.local_disk or []
    if len(copies) != 1 or copies[0].size_bytes != member.size_bytes:
        return None
    return None if copies[0].endpoint in unread_disks else copies[0]


WRONG = (
    "the file on its host's disk has other bytes: it is an older file of that key and size, or"
    " damaged"
)


async def read(
    connection: Connection, member: Member, copy: OnLocalDisk, limit: Limiter | None
) -> bytes:
    """The digest of the copy.  Raises ReconcileError."""
    try:
        got = await digest_on_disk(connection, member, copy.endpoint, limit)
    except TerminalError as error:
        connection.unread_disks[copy.endpoint] = f"{error}"
        raise
    if got == member.sha256:
        connection.wrong_on_disk.pop(member.key, None)
    else:
        connection.wrong_on_disk[member.key] = copy.place
    return got


async def note_right(connection: Connection, member: Member, copy: OnLocalDisk) -> None:
    """The copy was read right: its host keeps the object.  Raises ReconcileError.

    Noted where the object itself is known: else it is read first.
    """
    row = connection.book.get(member.key)
    if row is None or not row.says(member.sha256) or connection.context.read_only:
        return
    segments = await connection.segments.listed()
    names = {one.client_id: one.name for one in segments if one.status == "OK"}
    known = replace(row, keeper=copy.place, keeper_host=names.get(copy.place, ""))
    if known != row:
        await to_thread.run_sync(connection.book.put, [known])
