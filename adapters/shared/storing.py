"""One batch of replicas on its way into a root, from the loop.  Layer: adapters, shared.

Each replica takes one hop into a worker thread, in which it is begun, copied, sealed and published;
a few do so at once.  Invariants: a draft is noted in its own thread the moment it is published, so
that no cancelled await can lose it; whatever was published is settled, also when the caller is
cancelled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import anyio
from anyio import CancelScope, CapacityLimiter, from_thread, to_thread
from anyio.from_thread import BlockingPortal

from weightctl.adapters.shared import writing
from weightctl.adapters.shared.drafts import Draft
from weightctl.adapters.shared.loop_source import LoopSource
from weightctl.adapters.shared.root import Root
from weightctl.adapters.shared.sources import opened_source
from weightctl.adapters.shared.streaming import Buffers, Move, copy_digested, reader_of
from weightctl.adapters.shared.translate import outcome_from_error
from weightctl.controller.core.observation import Member
from weightctl.controller.errors import WeightctlError
from weightctl.controller.ports import (
    Corrupt,
    Fence,
    Limiter,
    Outcome,
    RangedReader,
    StoreItem,
    Unknown,
)

T = TypeVar("T")
MOVING_MAX = 4
"""Replicas that move at once: enough to overlap opening and synchronising, bounded in memory."""
SMALL_BYTES = 64 * 1024
"""Where nothing is synchronised, threads of so small replicas would only wait for each other."""


class Mover:
    """What moving bytes needs: buffers, threads, bandwidth."""

    def __init__(self, buffers: Buffers, threads: CapacityLimiter, limit: Limiter | None) -> None:
        self._threads = threads
        self._limit = limit
        self.copy = partial(copy_digested, buffers=buffers, gate=self._gate)

    async def hop(self, call: Callable[..., T], *args: object) -> T:
        """Run a call in a moving thread; a cancelled caller waits until it has stopped."""
        return await to_thread.run_sync(call, *args, limiter=self._threads)

    def _gate(self, size_bytes: int) -> None:
        from_thread.check_cancelled()
        if self._limit is not None:
            from_thread.run(self._limit.charge, size_bytes)


class StoreRun:
    """`FileTier.store` of one batch; `run` gives an outcome for each item."""

    def __init__(self, root: Root, mover: Mover, batch: Sequence[StoreItem], fence: Fence) -> None:
        self._root = root
        self._mover = mover
        self._batch = batch
        self._fence = fence
        self._answers: list[Outcome | None] = [None] * len(batch)
        self._drafts: dict[int, Draft] = {}

    async def run(self) -> list[Outcome]:
        """Bring in what is not there yet and settle it."""
        await self._mover.hop(self._look)
        todo = [index for index, answer in enumerate(self._answers) if answer is None]
        try:
            if todo:
                await self._carry(todo)
        finally:
            if self._drafts:
                with CancelScope(shield=True):
                    await self._mover.hop(self._settle)
        return [answer or Unknown() for answer in self._answers]

    async def _carry(self, todo: Sequence[int]) -> None:
        left = iter(todo)

        async def carry_some(portal: BlockingPortal) -> None:
            for index in left:
                await self._carry_one(index, portal)

        async with BlockingPortal() as portal, anyio.create_task_group() as group:
            for _ in range(self._lanes(todo)):
                group.start_soon(carry_some, portal)

    def _lanes(self, todo: Sequence[int]) -> int:
        sizes_bytes = sum(self._batch[index].member.size_bytes for index in todo)
        if not self._root.durable and sizes_bytes < len(todo) * SMALL_BYTES:
            return 1
        return min(MOVING_MAX, len(todo))

    async def _carry_one(self, index: int, portal: BlockingPortal) -> None:
        item = self._batch[index]
        try:
            async with opened_source(item) as reader:
                if reader.size_bytes != item.member.size_bytes:
                    self._answers[index] = Corrupt(expected=item.member.sha256, got=b"")
                    return
                read = _read_of(reader, portal, item.member)
                await self._mover.hop(self._bring_in, index, read)
        except (WeightctlError, OSError) as error:
            if index not in self._drafts:
                self._answers[index] = outcome_from_error(error, expected_sha256=item.member.sha256)

    # --- in a worker thread ---

    def _look(self) -> None:
        try:
            self._root.admit(self._fence)
            members = [item.member for item in self._batch]
            self._answers[:] = writing.standing(self._root, members)
        except (WeightctlError, OSError) as error:
            self._answers[:] = [outcome_from_error(error)] * len(self._batch)

    def _bring_in(self, index: int, read: Move) -> None:
        member = self._batch[index].member
        answer = writing.bring_in(self._root, member, self._fence, read, self._mover.copy)
        if isinstance(answer, Draft):
            self._drafts[index] = answer
        else:
            self._answers[index] = answer

    def _settle(self) -> None:
        outcomes = writing.settle(self._root, list(self._drafts.values()))
        for index, outcome in zip(self._drafts, outcomes, strict=True):
            self._answers[index] = outcome


def _read_of(reader: RangedReader, portal: BlockingPortal, member: Member) -> Move:
    fd = reader.fileno()
    if fd is not None:
        return reader_of(fd, f"the source of {member.key!r}")
    return LoopSource(reader, portal, member.size_bytes).read
