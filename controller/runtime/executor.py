"""Carries out the steps of a plan, a bounded part of them per pass.  Layer: runtime.

Steps run in the plan's order; the batches of one step run side by side within the pass's budget of
members and bytes.  The first fence, invariant or journal failure stops the pass: nothing more is
started, what is under way ends by itself.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace

import anyio

from weightctl.controller.core.plan import Plan, Situation, Step, StepKind
from weightctl.controller.errors import FencedError, InvariantViolationError, WeightError
from weightctl.controller.runtime.copying import Copier
from weightctl.controller.runtime.dispatch import Dispatch, Pass
from weightctl.controller.runtime.observer import Seen
from weightctl.controller.runtime.removing import Remover

_SPENT_SHARE = 0.5
Primitive = Callable[[Pass, Step, Sequence[int]], Awaitable[None]]


class Executor:
    """Does what plans say, within budgets and limits."""

    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch
        self._options = dispatch.options
        copier = Copier(dispatch)
        self.remover = Remover(dispatch, copier.prove_again)
        self._primitives: dict[StepKind, Primitive] = {
            StepKind.STORE: copier.store,
            StepKind.VERIFY: copier.verify,
            StepKind.DROP: self.remover.drop,
            StepKind.QUARANTINE: self.remover.quarantine,
        }

    def begin(self, situation: Situation, seen: Seen) -> Pass:
        """A pass for the record as it is in `situation`."""
        record, policy, store = situation.record, situation.policy, self._dispatch.store
        share = len(situation.members) // self._options.passes_per_group
        return Pass(
            situation=situation,
            seen=seen,
            fence=replace(
                store.fence,
                operation_id=record.operation_id,
                generation=record.metadata_generation,
            ),
            members_left=max(policy.pass_members_max, share),
            bytes_left=policy.pass_bytes_max,
        )

    async def carry_out(self, work: Pass, plan: Plan) -> None:
        """Do the primitives of `plan` as far as the budget goes; the outcomes are in the tally.

        Raises FencedError when the pass no longer acts for the current record, and WeightError
        when evidence cannot be made durable.
        """
        for step in self._ordered(work, plan.steps):
            primitive = self._primitives.get(step.kind)
            if primitive is not None and _budget_left(work):
                await self._run(work, step, primitive)

    def _ordered(self, work: Pass, steps: Sequence[Step]) -> Sequence[Step]:
        """The steps in the plan's order, but drops first once evidence is half spent.

        Where reading a group back takes longer than evidence counts, its first copies would have
        to be read again before the last ones were, and none would ever go.
        """
        observer = self._dispatch.observer
        read_s = observer.evidence.oldest_s(work.members.group_id, observer.tiers)
        spent_s = self._dispatch.clock.monotonic_s() - read_s
        if spent_s < work.situation.policy.evidence_max_age_s * _SPENT_SHARE:
            return steps
        return sorted(steps, key=lambda step: step.kind is not StepKind.DROP)

    async def _run(self, work: Pass, step: Step, primitive: Primitive) -> None:
        batches = self._batches(work, step)

        async def worker() -> None:
            for batch in batches:
                if work.stopped is not None:
                    return
                try:
                    await primitive(work, step, batch)
                except (FencedError, WeightError, InvariantViolationError) as error:
                    work.stopped = error

        async with anyio.create_task_group() as group:
            for _ in range(min(self._options.batches_at_once, step.count)):
                group.start_soon(worker)
        if work.stopped is not None:
            raise work.stopped

    def _batches(self, work: Pass, step: Step) -> Iterator[list[int]]:
        """Bounded runs of the step's members, charged to the pass's budget as they are taken."""
        sizes, options = work.members.sizes_bytes, self._options
        moves = step.kind in (StepKind.STORE, StepKind.VERIFY)
        batch: list[int] = []
        size_bytes = 0
        for index in step.indexes():
            if not _budget_left(work):
                break
            size = sizes[index] if moves else 0
            full = len(batch) >= options.batch_members_max
            if batch and (full or size_bytes + size > options.batch_bytes_max):
                yield batch
                batch, size_bytes = [], 0
            batch.append(index)
            size_bytes += size
            work.members_left -= 1
            work.bytes_left -= size
        if batch:
            yield batch


def _budget_left(work: Pass) -> bool:
    return work.members_left > 0 and work.bytes_left > 0
