"""Moving replicas between the loop and the dfs workers.  Layer: a tier; on the loop.

Every request moves one piece, so a deadline means that nothing moves, not that much is to be moved.
Invariant: whatever happens before `publish` leaves at most a partial file, which the worker removes
when its lease ends, or, when the worker was killed, the next store or sweep.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import anyio

from weightctl.adapters.dfs.engine import Engine
from weightctl.adapters.shared.pump import pump
from weightctl.adapters.shared.sources import opened_source
from weightctl.controller.errors import ReconcileError
from weightctl.controller.ports import PIECE_BYTES, Corrupt, Outcome

if TYPE_CHECKING:
    from weightctl.adapters.dfs.engine import Opened
    from weightctl.adapters.shared.workers import WorkerLease, WorkerPool
    from weightctl.controller.core.observation import Member
    from weightctl.controller.ports import Fence, Limiter, RangedReader, StoreItem

CLEANUP_S = 1.0
"""How long a transfer that ends without success waits for its partial file to be removed."""


async def bring_in(
    worker: WorkerLease,
    item: StoreItem,
    fence: Fence,
    *,
    random: str,
    still: frozenset[str],
    limit: Limiter | None,
) -> Outcome:
    """Write, digest and publish one replica; see `Engine.begin`.  Raises ReconcileError."""
    member = item.member
    worker.at_end(Engine.let_go)  # before it begins: a cancelled call begins all the same
    try:
        answer = await worker.call(Engine.begin, member, fence, random, still)
        if answer is not None:
            return answer
        async with opened_source(item) as source:
            if source.size_bytes != member.size_bytes:
                return Corrupt(expected=member.sha256, got=b"", instance_id=source.instance_id)
            await _copy(worker, source, limit)
        refused = await worker.call(Engine.seal)
        return await worker.call(Engine.publish, fence) if refused is None else refused
    finally:
        await _let_go(worker)


async def _let_go(worker: WorkerLease) -> None:
    """Let go now where that is quick; where it is not, the worker does it when it can."""
    with anyio.move_on_after(CLEANUP_S, shield=True), suppress(ReconcileError):
        await worker.call(Engine.let_go)
        worker.at_end(None)


async def _copy(worker: WorkerLease, source: RangedReader, limit: Limiter | None) -> None:
    async def fill(slot: int, offset: int, size_bytes: int) -> None:
        if limit is not None:
            await limit.charge(size_bytes)
        at = slot * PIECE_BYTES
        await source.read_into(offset, worker.buffer[at : at + size_bytes])

    async def drain(slot: int, offset: int, size_bytes: int) -> None:
        await worker.call(Engine.write, slot * PIECE_BYTES, offset, size_bytes)

    await pump(source.size_bytes, fill, drain)


async def read_back(worker: WorkerLease, member: Member, limit: Limiter | None) -> Outcome:
    """Digest a member's replica as the medium holds it.  Raises ReconcileError."""
    worker.at_end(Engine.let_go)  # before it begins: a cancelled call begins all the same
    size_bytes = await worker.call(Engine.begin_verify, member)
    if not isinstance(size_bytes, int):
        return size_bytes
    for offset in range(0, size_bytes, PIECE_BYTES):
        piece_bytes = min(PIECE_BYTES, size_bytes - offset)
        if limit is not None:
            await limit.charge(piece_bytes)
        await worker.call(Engine.digest, piece_bytes)
    outcome = await worker.call(Engine.end_verify)
    worker.at_end(None)
    return outcome


class Reader:
    """A ranged reader (ports.RangedReader); each read runs in any free worker."""

    def __init__(self, pool: WorkerPool, opened: Opened) -> None:
        self._pool = pool
        self._path = opened.path
        self.size_bytes = opened.size_bytes
        self.instance_id = opened.instance_id

    async def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill the buffer from byte `offset`.  Raises ReconcileError."""
        target = buffer.cast("B")
        async with self._pool.lease(transfer=len(target) > PIECE_BYTES) as worker:

            async def fill(slot: int, at: int, size_bytes: int) -> None:
                start = slot * PIECE_BYTES
                await worker.call(Engine.read, self._path, start, offset + at, size_bytes)

            async def drain(slot: int, at: int, size_bytes: int) -> None:
                start = slot * PIECE_BYTES
                target[at : at + size_bytes] = worker.buffer[start : start + size_bytes]

            await pump(len(target), fill, drain)

    def fileno(self) -> None:
        """None: a read of this file may hang."""
