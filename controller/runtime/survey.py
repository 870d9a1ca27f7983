"""From a record to a plan: read, observe, plan; nothing is written.  Layer: runtime.

The loop and the dry run share this, so both get the same plan from the same observation
(invariant 10).  `observe_and_plan` serves callers that have no running loop.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import anyio
from anyio import to_thread

from weightctl.controller.core.aggregate import GroupFacts, examine
from weightctl.controller.core.damage import DamagedReplica
from weightctl.controller.core.forecast import forecast
from weightctl.controller.core.observation import Members
from weightctl.controller.core.plan import Leases, Plan, Situation, TierView
from weightctl.controller.core.planner import plan
from weightctl.controller.core.policy import Policy
from weightctl.controller.core.records import (
    Availability,
    Operation,
    ResidencyOperation,
    RevisionMetadata,
)
from weightctl.controller.core.tiers import TierProfile
from weightctl.controller.ports import Clock, Tier
from weightctl.controller.runtime.observer import Observer, ObserverOptions, Seen
from weightctl.controller.runtime.timer import Timer

_FACTS_MAX = 1024
_MEMBERS_ON_LOOP = 20_000
"""Larger groups are examined and planned in a worker thread; the loop must not wait for that."""
_UNSEEN = (Availability.IMPORTING, Availability.DELETED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked about: the records of one revision, and its members."""

    record: RevisionMetadata
    operation: ResidencyOperation | None
    members: Members
    leases: Leases = field(default_factory=Leases)
    import_idle_ms: int = 0
    damage: Sequence[DamagedReplica] = ()
    """Which replicas of the group are known to be damaged."""
    known_tiers: Sequence[str] = ()
    """Names of all tiers that the store has ever used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What was seen, and what would be done."""

    situation: Situation
    seen: Seen
    plan: Plan

    async def forecast(self) -> tuple[Plan, ...]:
        """The plan and what would follow from it, for people; see `core.forecast`."""
        if len(self.situation.members) <= _MEMBERS_ON_LOOP:
            return forecast(self.situation)
        return await to_thread.run_sync(forecast, self.situation)


class Survey:
    """Observes and plans for one revision at a time."""

    def __init__(self, observer: Observer, *, policy: Policy, clock: Clock) -> None:
        self._observer = observer
        self._clock = clock
        self.policy = policy
        """May be replaced while running; the next pass uses it."""
        self._facts: OrderedDict[str, tuple[Members, GroupFacts]] = OrderedDict()
        self._repairs: OrderedDict[str, tuple[int, float]] = OrderedDict()
        """By group: the repair that runs, and since when it has been known here."""

    async def answer(self, question: Question) -> Answer:
        """Look at all tiers (unless the record's state makes that needless) and plan."""
        record, members, policy = question.record, question.members, self._policy_for(question)
        if record.availability in _UNSEEN:
            seen = Seen(members=members, views=(), epochs={})
        else:
            with_capacity = record.operation is not Operation.NONE
            seen = await self._observer.observe(
                members, policy, damage=question.damage, with_capacity=with_capacity
            )
            seen = self._with_missing(question, seen)
        situation = Situation(
            record=record,
            operation=question.operation,
            members=members,
            facts=await self._examine(members),
            views=seen.views,
            now_ms=self._clock.wall_ms(),
            policy=policy,
            leases=question.leases,
            import_idle_ms=question.import_idle_ms,
        )
        if len(members) <= _MEMBERS_ON_LOOP:
            return Answer(situation=situation, seen=seen, plan=plan(situation))
        planned = await to_thread.run_sync(plan, situation)
        return Answer(situation=situation, seen=seen, plan=planned)

    def _with_missing(self, question: Question, seen: Seen) -> Seen:
        """A deletion needs the word of every tier that may hold something, also of those that the
        configuration names no longer.
        """
        if question.record.availability is not Availability.DELETING:
            return seen
        gone = {*self._observer.tiers, *self.policy.retired_tiers}
        missing = [name for name in question.known_tiers if name not in gone]
        views = tuple(_unasked(name, len(question.members)) for name in missing)
        epochs = dict(seen.epochs) | dict.fromkeys(missing, "")
        return replace(seen, views=seen.views + views, epochs=epochs)

    def _policy_for(self, question: Question) -> Policy:
        """A repair reads every replica back once, however long that takes; it drops nothing.

        What was read is older than no part of this process, so the time that the repair has been
        known here is enough; its recorded start would not do, because the wall clock may be set.
        """
        operation, group_id = question.operation, question.members.group_id
        if operation is None or operation.operation is not Operation.REPAIRING:
            self._repairs.pop(group_id, None)
            return self.policy
        now_s = self._clock.monotonic_s()
        known_id, since_s = self._repairs.get(group_id, (0, now_s))
        if known_id != operation.operation_id:
            since_s = now_s
        self._repairs[group_id] = (operation.operation_id, since_s)
        self._repairs.move_to_end(group_id)
        if len(self._repairs) > _FACTS_MAX:
            self._repairs.popitem(last=False)
        age_s = max(self.policy.evidence_max_age_s, now_s - since_s)
        return replace(self.policy, evidence_max_age_s=age_s)

    async def _examine(self, members: Members) -> GroupFacts:
        """Facts of a group, kept for as long as the directory gives the same members."""
        known = self._facts.get(members.group_id)
        if known is not None and known[0] is members:
            self._facts.move_to_end(members.group_id)
            return known[1]
        if len(members) <= _MEMBERS_ON_LOOP:
            facts = examine(members)
        else:
            facts = await to_thread.run_sync(examine, members)
        self._facts[members.group_id] = (members, facts)
        if len(self._facts) > _FACTS_MAX:
            self._facts.popitem(last=False)
        return facts


def _unasked(name: str, count: int) -> TierView:
    """A tier that nobody can ask, because it is not configured."""
    problem = "it was used and is not configured: configure it, or name it in policy.retired_tiers"
    profile = TierProfile(name=name, kind="", hot=False)
    return TierView(profile=profile, states=bytes(count), problem=problem)


async def observe_and_plan(
    question: Question,
    tiers: Sequence[Tier],
    *,
    policy: Policy,
    clock: Clock,
    options: ObserverOptions | None = None,
) -> Answer:
    """One dry run without a loop: no copy counts as read back right, nothing is written."""
    timer = Timer(clock)
    observer = Observer(tiers, clock=clock, timer=timer, options=options)
    async with anyio.create_task_group() as group:
        group.start_soon(timer.run)
        answer = await Survey(observer, policy=policy, clock=clock).answer(question)
        group.cancel_scope.cancel()
    return answer
