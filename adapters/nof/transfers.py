"""Streams between sources, callers and a data worker's buffer.  Layer: nof tier.

Runs on the loop and touches no medium.  A worker's buffer has two halves: one is filled while the
worker writes or digests the other one.  Invariant: an error of one source ends that item alone; an
error of the worker ends the transfer.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
from anyio import to_thread

from weightctl.adapters.nof.data_engine import DataEngine
from weightctl.adapters.nof.pieces import Span, covering, cut, merged
from weightctl.adapters.shared.sources import opened_source
from weightctl.adapters.shared.translate import outcome_from_error
from weightctl.controller.errors import ReconcileError
from weightctl.controller.ports import PIECE_BYTES, Corrupt

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from weightctl.adapters.nof.device import Ticket
    from weightctl.adapters.nof.layout import Superblock
    from weightctl.adapters.nof.pieces import Segment
    from weightctl.adapters.shared.workers import WorkerLease, WorkerPool
    from weightctl.controller.ports import Limiter, Outcome, RangedReader, StoreItem

CLEANUP_S = 1.0
"""How long a cancelled call waits for what it leaves behind to be tidied."""
_COPY_ON_LOOP_BYTES_MAX = 256 * 1024
_READ_BYTES = PIECE_BYTES // 2
"""A caller's piece is read in two parts, the first of which is copied during the second."""


async def bring_in(
    pool: WorkerPool,
    superblock: Superblock,
    tickets: Mapping[int, Ticket],
    sources: Mapping[int, StoreItem],
    limit: Limiter | None,
) -> dict[int, Outcome]:
    """Write every ticket's replica; outcomes, by serial, of those that are not what they should be.

    All tickets are of one claim.  Raises a worker's ReconcileError; nothing is kept then.
    """
    if not tickets:
        return {}
    spans = [Span(t.serial, t.member.size_bytes, t.extents) for t in tickets.values()]
    extents = merged(run for span in spans for run in span.extents)
    claim = next(iter(tickets.values())).claim
    async with pool.lease(transfer=True) as lease:
        try:
            await lease.call(DataEngine.begin, superblock.uuid, claim, extents)
            inflow = _Inflow(lease, superblock, sources, limit)
            digests = await inflow.run(spans)
        finally:
            with anyio.move_on_after(CLEANUP_S, shield=True), suppress(ReconcileError):
                await lease.call(DataEngine.end)
    failed = inflow.failed
    for serial, ticket in tickets.items():
        expected, got = ticket.member.sha256, digests.get(serial, b"")
        if serial not in failed and got != expected:
            failed[serial] = Corrupt(expected=expected, got=got)
    return failed


class _Inflow:
    """The bytes of a group of replicas, from their sources into locked extents."""

    def __init__(
        self,
        lease: WorkerLease,
        superblock: Superblock,
        items: Mapping[int, StoreItem],
        limit: Limiter | None,
    ) -> None:
        self.failed: dict[int, Outcome] = {}
        """Why a source did not come whole, by serial."""
        self._lease = lease
        self._superblock = superblock
        self._items = items
        self._limit = limit
        self._error: ReconcileError | None = None
        self._open = AsyncExitStack()
        self._reader: RangedReader | None = None

    async def run(self, spans: Sequence[Span]) -> dict[int, bytes]:
        """Raw SHA-256, by serial, of what was written.  Raises the worker's ReconcileError."""
        ready: list[Segment] = []
        try:
            for piece in _halves(self._superblock, spans):
                async with anyio.create_task_group() as group:
                    group.start_soon(self._write, ready)
                    await anyio.lowlevel.checkpoint()  # a source in memory never waits by itself
                    ready = await self._fill(piece)
                if self._error is not None:
                    raise self._error
        finally:
            await self._open.aclose()
        await self._write(ready)
        if self._error is not None:
            raise self._error
        return await self._lease.call(DataEngine.digests)

    async def _write(self, segments: Sequence[Segment]) -> None:
        try:
            if segments:
                await self._lease.call(DataEngine.write, segments)
        except ReconcileError as error:
            self._error = error

    async def _fill(self, piece: Sequence[Segment]) -> list[Segment]:
        """Read the piece's bytes; the segments whose source gave them."""
        filled: list[Segment] = []
        for segment in piece:
            item = self._items[segment.serial]
            if segment.serial in self.failed:
                continue
            try:
                if await self._read(segment, item):
                    filled.append(segment)
            except ReconcileError as error:
                outcome = outcome_from_error(error, expected_sha256=item.member.sha256)
                self.failed[segment.serial] = outcome
                await self._open.aclose()
        return filled

    async def _read(self, segment: Segment, item: StoreItem) -> bool:
        if segment.offset == 0:
            self._reader = await self._open.enter_async_context(opened_source(item))
            if self._reader.size_bytes != item.member.size_bytes:
                self.failed[segment.serial] = Corrupt(expected=item.member.sha256, got=b"")
                await self._open.aclose()
                return False
        if segment.size_bytes and self._reader is not None:
            if self._limit is not None:
                await self._limit.charge(segment.size_bytes)
            await self._reader.read_into(segment.offset, _view(self._lease, segment))
        if segment.offset + segment.size_bytes == item.member.size_bytes:
            await self._open.aclose()
        return True


async def digest_stored(
    lease: WorkerLease, superblock: Superblock, spans: Sequence[Span], limit: Limiter | None
) -> dict[int, bytes]:
    """Raw SHA-256, by serial, of what the medium holds.  Raises the worker's ReconcileError."""
    await lease.call(DataEngine.end)
    for piece in _halves(superblock, spans):
        size_bytes = sum(segment.size_bytes for segment in piece)
        if limit is not None and size_bytes:
            await limit.charge(size_bytes)
        await lease.call(DataEngine.read, superblock.uuid, piece, digest=True)
    return await lease.call(DataEngine.digests)


async def read_stored(
    lease: WorkerLease, superblock: Superblock, span: Span, offset: int, target: memoryview
) -> None:
    """Fill `target` from byte `offset` of a replica.  Raises the worker's ReconcileError."""
    parts = covering(superblock.geometry, span, (offset, len(target)), _READ_BYTES)
    ready = target[:0], target[:0]
    position = 0
    errors: list[ReconcileError] = []

    async def read(segment: Segment) -> None:
        try:
            await lease.call(DataEngine.read, superblock.uuid, [segment])
        except ReconcileError as error:
            errors.append(error)

    for number, (segment, start, end) in enumerate(parts):
        base = number % 2 * PIECE_BYTES
        async with anyio.create_task_group() as group:
            group.start_soon(read, segment._replace(buffer_offset=base))
            await _hand_over(*ready)
        if errors:
            raise errors[0]
        size = end - start
        ready = target[position : position + size], lease.buffer[base + start : base + end]
        position += size
    await _hand_over(*ready)


async def _hand_over(target: memoryview, source: memoryview) -> None:
    if len(target) <= _COPY_ON_LOOP_BYTES_MAX:
        await anyio.lowlevel.checkpoint()  # what runs beside it is sent first
        target[:] = source
    else:
        await to_thread.run_sync(_copy, target, source)


def _copy(target: memoryview, source: memoryview) -> None:
    # In steps, so that the loop gets its turn: a slice assignment holds the interpreter's lock.
    for start in range(0, len(target), _COPY_ON_LOOP_BYTES_MAX):
        end = start + _COPY_ON_LOOP_BYTES_MAX
        target[start:end] = source[start:end]


def _halves(superblock: Superblock, spans: Sequence[Span]) -> Iterator[list[Segment]]:
    """Pieces that alternate between the two halves of a worker's buffer."""
    for number, piece in enumerate(cut(superblock.geometry, spans, PIECE_BYTES)):
        base = number % 2 * PIECE_BYTES
        yield [part._replace(buffer_offset=part.buffer_offset + base) for part in piece]


def _view(lease: WorkerLease, segment: Segment) -> memoryview:
    start = segment.buffer_offset
    return lease.buffer[start : start + segment.size_bytes]
