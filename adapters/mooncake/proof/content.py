"""Knowing by reading what an object is that nobody here has put.  Layer: a tier; on the loop.

Invariant: it is in the book as the member only after its digest was right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyio import to_thread

from weightctl.adapters.mooncake.client.transfers import digest_of
from weightctl.adapters.mooncake.ownership.book import known_row
from weightctl.controller.ports import Conflict, Outcome

if TYPE_CHECKING:
    from weightctl.adapters.mooncake.connection import Connection
    from weightctl.controller.core.observation import Member


async def other_than(connection: Connection, member: Member) -> Outcome | None:
    """None when what is read is the member, which is then recorded; Conflict, or Busy to wait.

    Takes a lease.  Raises ReconcileError.
    """
    put_off = await connection.reads.may_verify(member)
    if put_off is not None:
        return put_off
    if await digest_of(connection, member, None) != member.sha256:
        return Conflict(detail="other content lies under its key")
    await record(connection, member)
    return None


async def record(connection: Connection, member: Member) -> None:
    """Take an object that was just read right into the book, as a copy of a new name."""
    book, token = connection.book, connection.context.entropy.token(8)
    await to_thread.run_sync(book.put, [known_row(book.get(member.key), member, token)])
