"""Knowing by reading what an object is that the book does not know.  Layer: a tier; on the loop.

Invariant: it is in the book as the member only after its digest was right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyio import to_thread

from weightctl.adapters.mooncake.client.transfers import digest_of
from weightctl.adapters.mooncake.ownership.book import known_row
from weightctl.adapters.mooncake.root_fs.putting import settle
from weightctl.adapters.shared.translate import outcome_from_error
from weightctl.controller.errors import ReconcileError
from weightctl.controller.ports import Conflict, Done, Outcome, Retry

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


def is_known(connection: Connection, member: Member) -> bool:
    """Whether the book says that what lies under the key is the member."""
    row = connection.book.get(member.key)
    return row is not None and row.says(member.sha256)


def reading_until_s(connection: Connection) -> float:
    """Until when one drop of a batch may begin to read what it does not know."""
    return connection.context.clock.monotonic_s() + connection.options.deadline_s


async def read_first(connection: Connection, member: Member, until_s: float) -> Outcome:
    """Make sure that what lies there is the member before it goes: nobody else would read it.

    It is unknown after the loss of the book, and when the end of our own put was not seen.
    """
    if connection.context.clock.monotonic_s() >= until_s:
        return Retry(detail="it is read before it goes, after the others")
    row = connection.book.get(member.key)
    if row is not None and row.token and row.sha256 != member.sha256:
        return Conflict(detail="other content was put under its key")
    try:
        if connection.disk is not None and row is not None and row.sha256 == member.sha256:
            other: Outcome | None = await settle(connection, member, hurried=True)
        else:
            other = await other_than(connection, member)
    except ReconcileError as error:
        return outcome_from_error(error, expected_sha256=member.sha256)
    if other is None or isinstance(other, Done):
        return Retry(detail="it was read just now, and is named anew for the drop")
    return other
