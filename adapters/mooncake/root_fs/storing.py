"""Bringing DISK replicas in: with a put, by proving a file, or by writing it.  Layer: a tier.

On the loop.  Mooncake makes such a replica only with the put of its object, so where the Master
lists none the object is put, or put anew; where it lists one whose file is gone or wrong the file
is written into its place.  Invariant: Done and NoOp are said of files that were read right here.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from anyio import to_thread

from weightctl.adapters.mooncake.keys import problem_of_file
from weightctl.adapters.mooncake.master.replicas import DISK, is_absent, is_there, state_of
from weightctl.adapters.mooncake.putting import alone, bring
from weightctl.adapters.mooncake.root_fs.engine import FileEngine
from weightctl.adapters.mooncake.root_fs.putting import NO_FILE, seal, settle
from weightctl.adapters.shared.sources import opened_source
from weightctl.adapters.shared.translate import outcome_from_error
from weightctl.controller.core.observation import MemberState
from weightctl.controller.errors import ReconcileError
from weightctl.controller.ports import (
    PIECE_BYTES,
    Busy,
    Conflict,
    Corrupt,
    Done,
    NoOp,
    Outcome,
    Permanent,
    Retry,
)

if TYPE_CHECKING:
    from weightctl.adapters.mooncake.master.replicas import Entry
    from weightctl.adapters.mooncake.root_fs.tier import DiskTier
    from weightctl.controller.ports import Fence, Limiter, StoreItem

_OTHER = Retry(detail="its file was changed while it was written")


async def store_one(
    tier: DiskTier, item: StoreItem, fence: Fence, limit: Limiter | None
) -> Outcome:
    """As ports.Tier.store, of one item whose fence was admitted."""
    member = item.member
    problem = problem_of_file(member.key, member.size_bytes)
    if problem:
        return Permanent(detail=f"Mooncake cannot keep it: {problem}")
    try:
        async with alone(tier.connection, member.key):
            return await _stored(tier, item, fence, limit)
    except (ReconcileError, OSError) as error:
        return outcome_from_error(error, expected_sha256=member.sha256)


async def _stored(tier: DiskTier, item: StoreItem, fence: Fence, limit: Limiter | None) -> Outcome:
    connection, member = tier.connection, item.member
    if connection.book.others(member.group_id, [member.key]):
        return Conflict(detail="its key is another group's")
    entries, _ = await connection.look.entries([member.key])
    entry = entries.get(member.key)
    copy = (await tier.files.copies([member], entries)).get(member.key)
    is_listed = state_of(entry, DISK, member.size_bytes) is MemberState.COMPLETE
    if copy is not None and copy.known and (copy.in_place or is_absent(entry)):
        return NoOp(instance_id=copy.instance_id)
    if not is_absent(entry):
        if entry is None or not is_there(entry):
            return Busy(detail="it is being written")
        refused = await tier.storing.other_content(member, entry)
        if refused is not None:
            return refused
    if is_listed and entry is not None:
        if copy is None or not await seal(connection, tier.files, member, entry):
            written = await _written(tier, item, entry, fence, limit)
            if written is not None:
                return written
    else:
        outcome = await _put(tier, item, entry, fence, limit)
        row = connection.book.get(member.key)
        if isinstance(outcome, Done) and (row is None or not row.file):  # nobody has waited for it
            outcome = await settle(connection, member)
        if not isinstance(outcome, Done):
            return outcome
    entries, _ = await connection.look.entries([member.key])
    copy = (await tier.files.copies([member], entries)).get(member.key)
    if copy is None or not copy.known:
        return Retry(detail=NO_FILE)
    return Done(instance_id=copy.instance_id, moved_bytes=member.size_bytes)


async def _put(
    tier: DiskTier, item: StoreItem, entry: Entry | None, fence: Fence, limit: Limiter | None
) -> Outcome:
    """Put the object; anew where our own put of it ended before its file was there.

    That only for an import: its source is outside, and nobody can read its revision yet.
    """
    row = tier.connection.book.get(item.member.key)
    over = not is_absent(entry)
    if over and (fence.operation_id or row is None or not row.owner or row.file):
        return Retry(detail=NO_FILE)
    return await bring(tier.connection, item, fence, limit, over=over)


async def _written(
    tier: DiskTier, item: StoreItem, entry: Entry, fence: Fence, limit: Limiter | None
) -> Outcome | None:
    """Write the file into the place that the Master lists; the outcome when that was not done."""
    member, path = item.member, tier.files.path_of(item.member.key, {item.member.key: entry})
    async with opened_source(item) as source, tier.files.series() as worker:
        if source.size_bytes != member.size_bytes:
            return Corrupt(expected=member.sha256, got=b"", instance_id=source.instance_id)
        await worker.call(FileEngine.begin, path)
        worker.at_end(FileEngine.end)
        digest = hashlib.sha256()
        for offset in range(0, member.size_bytes, PIECE_BYTES):
            size_bytes = min(PIECE_BYTES, member.size_bytes - offset)
            if limit is not None:
                await limit.charge(size_bytes)
            await source.read_into(offset, worker.buffer[:size_bytes])
            await to_thread.run_sync(digest.update, worker.buffer[:size_bytes])
            await worker.call(FileEngine.write, path, offset, size_bytes)
        if digest.digest() != member.sha256:
            return Corrupt(expected=member.sha256, got=digest.digest())
        await to_thread.run_sync(tier.connection.book.admit, fence)
        await worker.call(FileEngine.publish, path)
    return None if await seal(tier.connection, tier.files, member, entry) else _OTHER
