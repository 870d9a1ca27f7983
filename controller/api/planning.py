"""Plans and tier reports, with or without a running loop.  Layer: api; writes nothing anywhere.

Needs tiers, a policy and a clock only, so that the same code answers beside a running controller
and from a state directory that nobody holds, with tiers that were opened for reading only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import anyio

from weightctl.controller.api import views
from weightctl.controller.api.supposing import Subject, Wish, suppose
from weightctl.controller.core.observation import MemberState
from weightctl.controller.core.plan import StepKind
from weightctl.controller.core.records import Availability, Operation
from weightctl.controller.errors import WeightctlError
from weightctl.controller.runtime.border import complaint_of, remark_of
from weightctl.controller.runtime.conditions import ConditionType
from weightctl.controller.runtime.survey import Question, observe_and_plan
from weightctl.controller.weightstore.primitives import observe

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weightctl.controller.api import documents as doc
    from weightctl.controller.core.identity import Identity
    from weightctl.controller.core.observation import Members
    from weightctl.controller.core.plan import Plan
    from weightctl.controller.core.policy import Policy
    from weightctl.controller.core.records import RevisionMetadata
    from weightctl.controller.ports import Clock, Tier
    from weightctl.controller.runtime.conditions import Condition
    from weightctl.controller.runtime.controller import Controller

_PURPOSES = {
    Operation.EVICTING: "evict",
    Operation.REHYDRATING: "rehydrate",
    Operation.REPAIRING: "repair",
}
_REPAIRS = frozenset({StepKind.STORE, StepKind.VERIFY, StepKind.QUARANTINE})
_MAY_BE_READABLE = bytes(
    state in (MemberState.UNKNOWN, MemberState.COMPLETE, MemberState.VERIFIED)
    for state in range(256)
)
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

    async def members(self, record: RevisionMetadata) -> Members:
        """The revision's members as the directory lists them."""
        return await self.records.members(record.manifest.payload_group_id)

    async def plan(self, subject: Subject) -> doc.Plan:
        """What would be done for the revision as it stands."""
        found = await self.as_it_stands(subject)
        return self._told(subject, purpose(subject.record), found)

    async def as_it_stands(self, subject: Subject) -> tuple[Plan, ...]:
        """The plan of the revision as it is recorded, and what would follow."""
        if self.running is not None:
            return await self.running.forecast(subject.identity)
        return await self.forecast_of(subject)

    def failing(self, identity: Identity) -> Condition | None:
        """What the last pass of the running loop over the revision met; None for no trouble."""
        said = () if self.running is None else self.running.conditions(identity)
        return next((one for one in said if one.type is ConditionType.FAILING and one.status), None)

    async def unreadable(self, record: RevisionMetadata) -> list[str]:
        """Keys of the members of which every tier says that it has no complete replica."""
        members = await self.members(record)
        possible = 0
        for tier in self.tiers:
            states = (await observe(tier, members, TIER_DEADLINE_S)).states
            possible |= int.from_bytes(states.translate(_MAY_BE_READABLE), "little")
        left = possible.to_bytes(len(members), "little")
        return [key for key, found in zip(members.keys, left, strict=True) if not found]

    async def plan_all(self) -> doc.PlanList:
        """One plan after the other, so that asking costs the tiers little at a time."""
        return {
            "apiVersion": views.API_VERSION,
            "kind": "PlanList",
            "items": [await self.plan(subject) for subject in self.records.subjects()],
        }

    async def dry_run(self, subject: Subject, wish: Wish) -> doc.Plan:
        """What a verb would lead to now.  Raises what the verb would be refused with."""
        short = wish.verb == "repair" and await self.copies_short(subject, wish)
        supposed = await self._suppose(subject, wish, copies_short=short)
        return self._told(subject, wish.verb, await self.forecast_of(supposed))

    def _told(self, subject: Subject, verb: str, rounds: Sequence[Plan]) -> doc.Plan:
        warnings = views.warnings(rounds[0], self.policy)
        remarks = list(dict.fromkeys(filter(None, map(remark_of, self.tiers))))
        return views.plan(subject.identity, verb, rounds, warnings=warnings, remarks=remarks)

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
        question = Question(
            record=subject.record,
            operation=subject.operation,
            members=await self.members(subject.record),
            leases=subject.live_leases(self.clock.wall_ms()),
            damage=subject.damage,
            known_tiers=self.records.known_tiers(),
        )
        asked = observe_and_plan(question, self.tiers, policy=self.policy, clock=self.clock)
        return await (await asked).forecast()


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
        problem = f"no answer within {TIER_DEADLINE_S:g} s"
    except WeightctlError as error:
        problem = "; ".join(part for part in (error.what, error.why, error.todo) if part)
    return views.tier(tier.profile, None, problem)
