"""Putting one object, with its row in the book.  Layer: a tier; on the loop.

Both ways to put keep the same order: what the source gives is held to the member's digest, the
fence is asked, the row is on disk, and only then can anybody read the object.  Invariants: a row
says what may be there until the Master says that it is not, and that it is there only when its put
has ended well; of one key there is one put at a time.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from weightctl.adapters.mooncake.client.transfers import put
from weightctl.adapters.mooncake.master.replicas import is_absent
from weightctl.adapters.mooncake.ownership.book import row_of
from weightctl.adapters.mooncake.root_fs.putting import put_with_file
from weightctl.adapters.shared.translate import outcome_from_error
from weightctl.controller.errors import ReconcileError
from weightctl.controller.ports import Busy, Conflict, Done, Outcome, Permanent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from weightctl.adapters.mooncake.connection import Connection
    from weightctl.controller.core.observation import Member
    from weightctl.controller.ports import Fence, Limiter, StoreItem


@asynccontextmanager
async def alone(connection: Connection, key: str) -> AsyncIterator[None]:
    """Nobody else of this connection looks whether the key has to be put, or puts it."""
    putting = connection.putting
    while (running := putting.get(key)) is not None:
        await running.wait()
    putting[key] = ended = anyio.Event()
    try:
        yield
    finally:
        del putting[key]
        ended.set()


async def bring(
    connection: Connection,
    item: StoreItem,
    fence: Fence,
    limit: Limiter | None,
    *,
    over: bool = False,
) -> Outcome:
    """Put the object; Done without an instance id.  To be called within `alone`.

    over: beside its file, which alone is left, or is the only thing that is not there.
    """
    member = item.member
    row = connection.book.get(member.key)
    if row is not None and row.group_id != member.group_id:  # also while its copy is away
        return Conflict(detail=f"its key belongs to group {row.group_id}")
    other = connection.book.shares_file(member.key)
    if other:
        return Permanent(
            detail=f"on a host's disk it could share a file with {other!r}: rename one of them"
        )
    try:
        owner = await connection.clients.owner_name()
        row = row_of(member, token="", owner=owner)
        connection.settled[member.key] = await connection.segments.settle()
        if connection.disk is not None:
            outcome = await put_with_file(connection, item, fence, limit, row=row, over=over)
        else:
            await to_thread.run_sync(connection.book.put, [row])
            outcome = await put(connection, item, fence, limit)
            if isinstance(outcome, Busy):  # whoever puts it, its content is not known to be this
                await to_thread.run_sync(connection.book.forget, [member.key])
            elif isinstance(outcome, Done):
                ours = replace(row, token=connection.context.entropy.token(8))
                await to_thread.run_sync(connection.book.put, [ours])
    except (ReconcileError, OSError) as error:
        outcome = outcome_from_error(error, expected_sha256=member.sha256)
    if not isinstance(outcome, (Busy, Done)):
        await _unrecord(connection, member)
    return outcome


async def _unrecord(connection: Connection, member: Member) -> None:
    """Forget a put that did not become anything, if the Master says so and there is no file."""
    row = connection.book.get(member.key)
    if row is None or row.file:
        return
    with anyio.CancelScope(shield=True):
        try:
            entries, _ = await connection.look.entries([member.key])
            if is_absent(entries.get(member.key)):
                await to_thread.run_sync(connection.book.forget, [member.key])
        except ReconcileError:
            return  # the row stays: it says what may be there
