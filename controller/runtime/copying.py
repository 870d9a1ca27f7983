"""Brings replicas in and reads them back.  Layer: runtime.

What is read back becomes evidence.  When a source turns out not to have the recorded digest, it is
read back at once, so that the instance at fault is known and the next plan uses another source.
"""

from collections.abc import Sequence
from functools import partial

from weightctl.controller.core.observation import MemberState
from weightctl.controller.core.plan import Step
from weightctl.controller.ports import Corrupt, Done, NoOp, Outcome, StoreItem
from weightctl.controller.runtime.admission import WorkClass
from weightctl.controller.runtime.dispatch import Dispatch, Pass
from weightctl.controller.runtime.evidence import ReadBack


class Copier:
    """STORE and VERIFY."""

    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch

    async def store(self, work: Pass, step: Step, indexes: Sequence[int]) -> None:
        """Copy members from the step's source tier into its target tier."""
        dispatch = self._dispatch
        source, target = dispatch.tier(step.source), dispatch.tier(step.target)
        batch = [
            StoreItem(member=member, open_source=partial(source.open, member))
            for member in work.members.select(indexes)
        ]
        size_bytes = sum(item.member.size_bytes for item in batch)
        ticket = dispatch.ticket(work, (step.source, step.target), size_bytes)
        limit = dispatch.limiter(*ticket.tiers)
        outcomes = await dispatch.send(
            work, ticket, len(batch), lambda: target.store(batch, work.fence, limit=limit)
        )
        work.count(indexes, outcomes)
        self._expect_stored(work, step.target, indexes, outcomes)
        wrong = [
            index
            for index, outcome in zip(indexes, outcomes, strict=True)
            if isinstance(outcome, Corrupt)
        ]
        if wrong:
            await self._read_back(work, step.source, wrong)

    async def verify(self, work: Pass, step: Step, indexes: Sequence[int]) -> None:
        """Read replicas of the step's source tier back and keep the result as evidence."""
        outcomes = await self._read_back(work, step.source, indexes)
        work.count(indexes, outcomes)

    async def _read_back(
        self, work: Pass, tier_name: str, indexes: Sequence[int]
    ) -> Sequence[Outcome]:
        dispatch = self._dispatch
        tier = dispatch.tier(tier_name)
        batch = list(work.members.select(indexes))
        size_bytes = sum(member.size_bytes for member in batch)
        ticket = dispatch.ticket(work, (tier_name,), size_bytes, WorkClass.VERIFY)
        limit = dispatch.limiter(tier_name)
        outcomes = await dispatch.send(
            work, ticket, len(batch), lambda: tier.verify(batch, limit=limit)
        )
        results = [
            ReadBack(index=index, instance_id=outcome.instance_id, good=isinstance(outcome, Done))
            for index, outcome in zip(indexes, outcomes, strict=True)
            if isinstance(outcome, Done | Corrupt) and outcome.instance_id
        ]
        epoch = work.seen.epochs[tier_name]
        if results and epoch:
            dispatch.observer.evidence.note(
                tier_name, work.members.group_id, len(work.members), epoch, results
            )
        return outcomes

    def _expect_stored(
        self, work: Pass, tier: str, indexes: Sequence[int], outcomes: Sequence[Outcome]
    ) -> None:
        there = [
            index
            for index, outcome in zip(indexes, outcomes, strict=True)
            if isinstance(outcome, Done | NoOp)
        ]
        observer, group_id = self._dispatch.observer, work.members.group_id
        observer.gate.expect(tier, group_id, there, MemberState.COMPLETE)
        observer.capacity_changed(tier)
