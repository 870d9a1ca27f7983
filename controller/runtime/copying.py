"""Brings replicas in and reads them back.  Layer: runtime.

What is read back right becomes evidence, what is read back wrong a durable verdict.  When a source
turns out not to have the recorded digest, it is read back at once, so that the instance at fault is
known and the next plan uses another source.  Who gave no verdict, no bytes or no room is noted, so
that the next plan tries another copy, or another tier, first.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from weightctl.controller.core.damage import DamagedReplica
from weightctl.controller.core.observation import Members, MemberState
from weightctl.controller.core.plan import Step
from weightctl.controller.ports import Corrupt, Done, NoOp, Outcome, StoreItem, Unknown
from weightctl.controller.runtime.admission import WorkClass
from weightctl.controller.runtime.dispatch import Dispatch, Pass
from weightctl.controller.runtime.failures import weight_of
from weightctl.controller.runtime.origin import Origin


@dataclass(slots=True, kw_only=True)
class _Verdicts:
    """What reading replicas of one tier back has shown, by member index."""

    tier: str
    epoch: str
    right: dict[int, str] = field(default_factory=dict)
    """The instance that was read."""
    wrong: dict[int, tuple[str, bytes]] = field(default_factory=dict)
    """The instance that was read, and the digest it has."""

    def add(self, index: int, outcome: Done | Corrupt, *, good: bool) -> None:
        if good:
            self.right[index] = outcome.instance_id
        else:
            found = outcome.got if isinstance(outcome, Corrupt) else b""
            self.wrong[index] = (outcome.instance_id, found)

    def rows(self, members: Members, now_ms: int) -> list[DamagedReplica]:
        return [
            DamagedReplica(
                member_key=members.keys[index],
                tier=self.tier,
                instance_id=instance_id,
                epoch=self.epoch,
                found_sha256=found,
                at_ms=now_ms,
            )
            for index, (instance_id, found) in self.wrong.items()
        ]


class Copier:
    """STORE and VERIFY."""

    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch

    async def store(self, work: Pass, step: Step, indexes: Sequence[int]) -> None:
        """Copy members from the step's source tier into its target tier."""
        dispatch = self._dispatch
        source, target = dispatch.tier(step.source), dispatch.tier(step.target)
        members = list(work.members.select(indexes))
        origins = [Origin(partial(source.open, member)) for member in members]
        batch = [
            StoreItem(member=member, open_source=origin)
            for member, origin in zip(members, origins, strict=True)
        ]
        size_bytes = sum(item.member.size_bytes for item in batch)
        ticket = dispatch.ticket(work, (step.source, step.target), size_bytes)
        limit = dispatch.limiter(*ticket.tiers)
        outcomes = await dispatch.send(
            work, ticket, len(batch), lambda: target.store(batch, work.fence, limit=limit)
        )
        work.count(step, indexes, outcomes)
        self._expect_stored(work, step, indexes, outcomes)
        wrong = [
            index
            for index, outcome in zip(indexes, outcomes, strict=True)
            if isinstance(outcome, Corrupt)
        ]
        if wrong:
            await self._read_back(work, step.source, wrong)
        dispatch.note_failed(work, _at_fault(step, indexes, outcomes, origins))

    async def verify(self, work: Pass, step: Step, indexes: Sequence[int]) -> None:
        """Read replicas of the step's source tier back and keep the result as evidence."""
        outcomes = await self._read_back(work, step.source, indexes)
        work.count(step, indexes, outcomes)

    async def prove_again(self, work: Pass, tier: str, indexes: Sequence[int]) -> list[int]:
        """Read replicas back for a drop that is to come; those of them that are right."""
        outcomes = await self._read_back(work, tier, indexes)
        right = []
        for index, outcome in zip(indexes, outcomes, strict=True):
            if isinstance(outcome, Done):
                right.append(index)
            else:
                work.tally.add(outcome, f"{work.members.keys[index]} ({tier})")
        return right

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
        verdicts = _Verdicts(tier=tier_name, epoch=work.seen.epochs[tier_name])
        for index, outcome in zip(indexes, outcomes, strict=True):
            if isinstance(outcome, Done | Corrupt) and outcome.instance_id:
                verdicts.add(index, outcome, good=isinstance(outcome, Done))
        if verdicts.epoch:
            await self._keep(work, verdicts)
        judged = verdicts.right.keys() | verdicts.wrong.keys()
        dispatch.observer.failures.worked(tier_name, work.members.group_id, judged)
        unjudged = [
            (tier_name, index, weight_of(outcome) or 1)
            for index, outcome in zip(indexes, outcomes, strict=True)
            if index not in judged
        ]
        dispatch.note_failed(work, unjudged)
        return outcomes

    async def _keep(self, work: Pass, verdicts: _Verdicts) -> None:
        """Make the wrong ones durable, then let the right ones count."""
        members, damage = work.members, self._dispatch.store.damage
        group_id, evidence = members.group_id, self._dispatch.observer.evidence
        now_ms = self._dispatch.clock.wall_ms()
        evidence.forget(verdicts.tier, group_id, verdicts.wrong)
        await damage.record(group_id, verdicts.rows(members, now_ms))
        right = {(members.keys[index], name) for index, name in verdicts.right.items()}
        refuted = [
            row
            for row in damage.rows(group_id)
            if row.tier == verdicts.tier and (row.member_key, row.instance_id) in right
        ]
        await damage.forget(group_id, refuted)
        if verdicts.right:
            evidence.note(verdicts.tier, group_id, len(members), verdicts.epoch, verdicts.right)

    def _expect_stored(
        self, work: Pass, step: Step, indexes: Sequence[int], outcomes: Sequence[Outcome]
    ) -> None:
        there = [
            index
            for index, outcome in zip(indexes, outcomes, strict=True)
            if isinstance(outcome, Done | NoOp)
        ]
        observer, group_id = self._dispatch.observer, work.members.group_id
        observer.gate.expect(step.target, group_id, there, MemberState.COMPLETE)
        observer.capacity_changed(step.target)
        for tier in (step.source, step.target):
            observer.failures.worked(tier, group_id, there)


def _at_fault(
    step: Step, indexes: Sequence[int], outcomes: Sequence[Outcome], origins: Sequence[Origin]
) -> list[tuple[str, int, int]]:
    """(tier, member, weight) for each that gave no bytes or took none.

    Where one source never ended, those that waited behind it are its tier's fault as well.
    """
    found = []
    hung = any(origin.failed for origin in origins)
    for index, outcome, origin in zip(indexes, outcomes, origins, strict=True):
        behind = hung and isinstance(outcome, Unknown) and not origin.asked
        given = not (origin.failed or behind or isinstance(outcome, Corrupt))
        weight = weight_of(outcome)
        if weight and (not given or origin.lent):
            found.append((step.source, index, weight))
        if weight and given:
            found.append((step.target, index, weight))
    return found
