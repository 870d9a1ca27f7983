"""Plans and tier reports, with or without a running loop.  Layer: api; writes nothing anywhere.

Needs tiers, a policy and a clock only, so that the same code answers beside a running controller
and from a state directory that nobody holds, with tiers that were opened for reading only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import anyio

from weightctl.controller.api import views
from weightctl.controller.api.provable import dead_end
from weightctl.controller.api.supposing import Subject, Wish, suppose
from weightctl.controller.api.waiting import can_not_end, loss, not_readable, not_started
from weightctl.controller.core.losses import lost_keys, named
from weightctl.controller.core.plan import StepKind
from weightctl.controller.core.records import Availability, Operation
from weightctl.controller.core.validity import PUBLISHED
from weightctl.controller.errors import ErrorCode, WeightctlError, WeightError
from weightctl.controller.runtime.border import complaint_of, dropping_of, remark_of
from weightctl.controller.runtime.conditions import ConditionType
from weightctl.controller.runtime.survey import Question, observe_and_plan
from weightctl.controller.weightstore.options import WeightStoreOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from weightctl.controller.api import documents as doc
    from weightctl.controller.core.identity import Identity
    from weightctl.controller.core.observation import Members
    from weightctl.controller.core.plan import Plan
    from weightctl.controller.core.policy import Policy
    from weightctl.controller.core.records import RevisionMetadata
    from weightctl.controller.ports import Clock, Tier
    from weightctl.controller.runtime.conditions import Condition
    from weightctl.controller.runtime.controller import Controller
    from weightctl.controller.runtime.survey import Answer

_PURPOSES = {
    Operation.EVICTING: "evict",
    Operation.REHYDRATING: "rehydrate",
    Operation.REPAIRING: "repair",
}
_REPAIRS = frozenset({StepKind.STORE, StepKind.VERIFY, StepKind.QUARANTINE})
TIER_DEADLINE_S = 10.0
"""A tier that has not told its capacity by then has a problem."""


class Records(Protocol):
    """Where the records are read: an open store, or a state directory that is only looked at."""

    async def subject(self, identity: Identity) -> Subject:
        """One revision.  Raises NOT_FOUND."""

    def subjects(self) -> Iterable[Subject]:
        """Every revision that is no tombstone, identity order."""

    async def members(self, group_id: str) -> Members:
        """Members of a payload group, key order."""

    def known_tiers(self) -> Sequence[str]:
        """Names of all tiers that the store has ever used."""

    async def groups(self) -> tuple[frozenset[str], frozenset[str]]:
        """Group ids that have an owner, and those of tombstones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planning:
    """Where plans come from."""

    records: Records
    tiers: Sequence[Tier]
    policy: Policy
    clock: Clock
    running: Controller | None = None
    """A running loop knows more: what was read back lately, and which tiers have settled."""
    attended: bool = True
    """Some process carries out what is recorded."""
    import_options: WeightStoreOptions = field(default_factory=WeightStoreOptions)
    """How an import would cut and hash a source."""

    async def members(self, record: RevisionMetadata) -> Members:
        """The revision's members as the directory lists them."""
        return await self.records.members(record.manifest.payload_group_id)

    async def plan(self, subject: Subject) -> doc.Plan:
        """What would be done for the revision as it stands."""
        return await self._told(subject, purpose(subject.record), await self.look(subject))

    async def look(self, subject: Subject) -> Answer:
        """What the tiers show of the revision as it is recorded, and the plan on that."""
        if self.running is not None:
            return await self.running.ask(subject.identity)
        return await self._answer(subject)

    async def check_whole(self, subject: Subject, wish: Wish) -> None:
        """Raises what the store would refuse the wish with, then LostError where no tier has
        anything readable of a member, and NOT_READY where what has to be read back cannot be: what
        is started then could never end.

        What runs already is left to the store, which lets the same start go on.
        """
        if subject.record.operation is not Operation.NONE:
            return
        await self._suppose(subject, wish, copies_short=True)
        situation = (await self.look(subject)).situation
        if lost := lost_keys(situation):
            raise not_started(wish.verb, subject.identity, lost)
        if wish.verb != "rehydrate":
            refused = await dead_end(situation, self.tiers, wish.verb)
            if refused is not None:
                raise refused

    async def check_readable(self, verb: str, identity: Identity) -> None:
        """Raises LostError where a published revision cannot be read because of what is lost."""
        subject = await self.records.subject(identity)
        if subject.record.availability in PUBLISHED:
            lost = lost_keys((await self.look(subject)).situation)
            if lost:
                raise not_readable(verb, identity, lost)

    def failing(self, identity: Identity) -> Condition | None:
        """What the last pass of the running loop over the revision met; None for no trouble."""
        said = () if self.running is None else self.running.conditions(identity)
        return next((one for one in said if one.type is ConditionType.FAILING and one.status), None)

    async def with_loss(self, identity: Identity, refusal: WeightError) -> WeightError:
        """A refusal because of an operation that cannot end: with what is lost, and the way out.

        A running loop knows that from its last pass; without one the tiers are asked.
        """
        if refusal.code is not ErrorCode.BUSY:
            return refusal
        subject = await self.records.subject(identity)
        if subject.record.operation is Operation.NONE:
            return refusal
        if self.running is None:
            keys = lost_keys((await self.look(subject)).situation)
            lost = f"no tier has a readable replica of {named(keys)}" if keys else ""
        else:
            said = self.running.conditions(identity)
            messages = (of.message for of in said if of.type is ConditionType.LOST and of.status)
            lost = next(messages, "")
        return can_not_end(refusal, lost) if lost else refusal

    async def plan_all(self) -> doc.PlanList:
        """One plan after the other, so that asking costs the tiers little at a time."""
        return {
            "apiVersion": views.API_VERSION,
            "kind": "PlanList",
            "items": [await self.plan(subject) for subject in self.records.subjects()],
        }

    async def dry_run(self, subject: Subject, wish: Wish) -> doc.Plan:
        """What a verb would lead to now.  Raises what the verb would be refused with."""
        if wish.verb != "delete":
            await self.check_whole(subject, wish)
        short = wish.verb == "repair" and await self.copies_short(subject, wish)
        supposed = await self._suppose(subject, wish, copies_short=short)
        return await self._told(subject, wish.verb, await self._answer(supposed))

    async def _told(self, subject: Subject, verb: str, answer: Answer) -> doc.Plan:
        rounds = await answer.forecast()
        warnings = views.warnings(rounds[0], self.policy)
        if rounds[0].lost_members:
            warnings.append(loss(lost_keys(answer.situation)))
        told = [*map(remark_of, self.tiers)]
        if answer.situation.record.availability in PUBLISHED:
            told = [*self._droppings(rounds, answer), *told]
        remarks = list(dict.fromkeys(filter(None, told)))
        return views.plan(subject.identity, verb, rounds, warnings=warnings, remarks=remarks)

    def _droppings(self, rounds: Sequence[Plan], answer: Answer) -> Iterator[str]:
        """How what is to be dropped would be, where a tier has several ways."""
        tiers = {tier.profile.name: tier for tier in self.tiers}
        for step in (step for made in rounds for step in made.steps):
            tier = tiers.get(step.source)
            if step.kind is StepKind.DROP and tier is not None:
                keys = answer.situation.members.keys
                yield dropping_of(tier, [keys[index] for index in step.indexes()])

    async def copies_short(self, subject: Subject, wish: Wish) -> bool:
        """Whether a repair would find something to do: a copy to bring in or to set aside."""
        if subject.record.availability is not Availability.READY:
            return False
        supposed = await self._suppose(subject, wish, copies_short=True)
        steps = (await self.forecast_of(supposed))[0].steps
        return any(step.kind in _REPAIRS for step in steps)

    async def _suppose(self, subject: Subject, wish: Wish, *, copies_short: bool) -> Subject:
        return suppose(
            subject,
            wish,
            member_count=len(await self.members(subject.record)),
            copies_short=copies_short,
            now_ms=self.clock.wall_ms(),
        )

    async def forecast_of(self, subject: Subject) -> tuple[Plan, ...]:
        """Observe every tier and plan to the end; for what is recorded or only supposed."""
        return await (await self._answer(subject)).forecast()

    async def _answer(self, subject: Subject) -> Answer:
        question = Question(
            record=subject.record,
            operation=subject.operation,
            members=await self.members(subject.record),
            leases=subject.live_leases(self.clock.wall_ms()),
            damage=subject.damage,
            known_tiers=self.records.known_tiers(),
        )
        return await observe_and_plan(question, self.tiers, policy=self.policy, clock=self.clock)


async def tier_list(tiers: Sequence[Tier]) -> doc.TierList:
    """Capacity and health of every tier, asked at the same time."""
    found: dict[str, doc.TierFields] = {}

    async def ask(tier: Tier) -> None:
        found[tier.profile.name] = await _tier(tier)

    async with anyio.create_task_group() as tasks:
        for tier in tiers:
            tasks.start_soon(ask, tier)
    return {
        "apiVersion": views.API_VERSION,
        "kind": "TierList",
        "items": [found[tier.profile.name] for tier in tiers],
    }


def purpose(record: RevisionMetadata) -> str:
    """What a plan of the revision as it stands is for."""
    if record.operation is not Operation.NONE:
        return _PURPOSES[record.operation]
    return {
        Availability.IMPORTING: "import",
        Availability.DELETING: "delete",
    }.get(record.availability, "keep")


async def _tier(tier: Tier) -> doc.TierFields:
    try:
        with anyio.fail_after(TIER_DEADLINE_S):
            capacity = await tier.capacity()
            return views.tier(tier.profile, capacity, complaint_of(tier))
    except TimeoutError:
        problem, todo = f"no answer within {TIER_DEADLINE_S:g} s", ""
    except WeightctlError as error:
        problem = "; ".join(part for part in (error.what, error.why, error.todo) if part)
        todo = error.todo
    return views.tier(tier.profile, None, problem, todo=todo)
