"""Which tiers can serve which objects, best first.  Layer: weightstore.

A hot replica is read before a cold one, a fast tier before a slow one.  Nobody waits for a tier
that is not needed: one that hangs costs a load from another next to nothing.  A tier that gave no
answer comes last, but it comes: no answer is not absence.  A replica that fails in the middle is
followed by the next one.  One that is known to be damaged is not read at all; one that turns out to
be is reported before the next is tried.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

import anyio

from weightctl.controller.core.damage import mark_damaged, suspects
from weightctl.controller.core.identity import text_bytes
from weightctl.controller.core.observation import MemberState, unknown_observation
from weightctl.controller.errors import (
    IntegrityError,
    NothingReadableError,
    ReconcileError,
    TransientError,
)
from weightctl.controller.weightstore.parallel import for_each
from weightctl.controller.weightstore.primitives import as_members, complete_mask, observe

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from weightctl.controller.core.damage import DamagedReplica
    from weightctl.controller.core.observation import Member
    from weightctl.controller.ports import Tier

Result = TypeVar("Result")
HASTE_S = 0.25
"""How long a better tier is waited for once the others hold everything."""
_TO_BRING_BACK = (
    "bring a tier back that holds a good one (`weightctl tiers` shows which has a problem),"
    " or import the weights under a new weight generation"
)

_TO_ASK_AGAIN = (
    "wait, and load again: nothing shows that it is lost; `weightctl tiers` shows which tier has a"
    " problem, and until when"
)


class Reports(Protocol):
    """What is known to be damaged, and who is told of more."""

    def known(self) -> Sequence[DamagedReplica]:
        """Replicas that are known to be damaged."""

    async def confirm(self, tier: Tier, member: Member) -> None:
        """Have it judged whether the tier's replica is damaged."""


class Replicas:
    """One look at some members of a group, in every tier."""

    def __init__(self, members: Sequence[Member], reports: Reports) -> None:
        self.members = sorted(members, key=lambda member: text_bytes(member.key))
        self._reports = reports
        self._index = {member.key: index for index, member in enumerate(self.members)}
        self._seen: list[tuple[Tier, bytearray]] = []

    async def look(self, tiers: Sequence[Tier], deadline_s: float) -> None:
        """Observe all tiers at once, until it is known where to read each member best.

        A tier without an answer by then is unknown.
        """
        if not self.members:
            return
        asked = as_members(self.members[0].group_id, self.members)
        suspected = suspects(self._reports.known(), asked)
        ranked = sorted(tiers, key=_rank)
        states: dict[str, bytes] = {}
        enough = anyio.CancelScope()

        async def ask(tier: Tier) -> None:
            damaged = suspected.get(tier.profile.name, {})
            seen = await observe(tier, asked, deadline_s, detail=tuple(damaged))
            states[tier.profile.name], _ = mark_damaged(seen.states, seen, damaged)
            if not _is_served(ranked, states, len(asked)):
                answered = [one for one in ranked if one.profile.name in states]
                if not _is_served(answered, states, len(asked)):
                    return
                await anyio.sleep(HASTE_S)  # cut short by the answer that makes it needless
            enough.cancel()

        with enough:
            await for_each(ranked, max(1, len(ranked)), ask)
        unknown = unknown_observation(len(asked), "not waited for").states
        self._seen = [(tier, bytearray(states.get(tier.profile.name, unknown))) for tier in ranked]

    def member(self, key: str) -> Member:
        """The member with that key."""
        return self.members[self._index[key]]

    def sources(self, member: Member) -> list[Tier]:
        """Tiers that hold it, then those that did not say."""
        index = self._index[member.key]
        return [
            tier
            for wanted in (MemberState.COMPLETE, MemberState.UNKNOWN)
            for tier, states in self._seen
            if states[index] == wanted
        ]

    def mappable(self, member: Member) -> Tier | None:
        """The best tier that holds it as a file which this host can map."""
        index = self._index[member.key]
        for tier, states in self._seen:
            if tier.profile.capabilities.mappable and states[index] == MemberState.COMPLETE:
                return tier
        return None

    async def from_best(self, member: Member, read: Callable[[Tier], Awaitable[Result]]) -> Result:
        """What `read` gives from the first tier that serves the member whole and right.

        Raises IntegrityError when a replica had wrong bytes and no other served; TransientError
        when none served and a tier gave no answer; else NothingReadableError.
        """
        failures: list[ReconcileError] = []
        for tier in self.sources(member):
            try:
                return await read(tier)
            except ReconcileError as error:
                failures.append(error)
                if isinstance(error, IntegrityError):
                    await self.report(tier, member)
        failures += self._known_damage(member)
        for failure in failures:
            if isinstance(failure, IntegrityError):
                failure.todo = _TO_BRING_BACK
                raise failure
        raise self._not_served(member, failures)

    def _not_served(self, member: Member, failures: Sequence[ReconcileError]) -> TransientError:
        """No answer is not absence: as long as a tier may have it, it is not lost."""
        index = self._index[member.key]
        states = {tier.profile.name: MemberState(states[index]) for tier, states in self._seen}
        silent = [name for name, state in states.items() if state is MemberState.UNKNOWN]
        seen = [f"{name}: {state.name}" for name, state in states.items()]
        told = dict.fromkeys(error.why or error.what for error in failures)
        why = "; ".join([*seen, *told])
        what = f"object {member.key} cannot be read"
        if silent:
            whom = " and ".join(silent)
            return TransientError(what, f"no answer from {whom} ({why})", _TO_ASK_AGAIN)
        why = f"no tier holds a readable replica of it ({why})"
        return NothingReadableError(what, why, _TO_BRING_BACK)

    async def report(self, tier: Tier, member: Member) -> None:
        """Wrong bytes came from that replica: read it no more here, and have it judged."""
        for known, states in self._seen:
            if known is tier:
                states[self._index[member.key]] = MemberState.CORRUPT
        await self._reports.confirm(tier, member)

    def _known_damage(self, member: Member) -> list[ReconcileError]:
        """Why the replicas that were left out cannot serve."""
        index = self._index[member.key]
        return [
            IntegrityError(
                f"object {member.key} in tier {tier.profile.name} is damaged",
                "it was read back with a wrong digest before",
                "`weightctl repair` replaces the replica from a good one",
            )
            for tier, states in self._seen
            if states[index] == MemberState.CORRUPT
        ]


def _is_served(ranked: Sequence[Tier], states: Mapping[str, bytes], count: int) -> bool:
    """Whether each of `count` members has a replica before the first tier without an answer."""
    missing = (1 << 8 * count) - 1
    for tier in ranked:
        if (seen := states.get(tier.profile.name)) is None:
            return False
        missing &= ~(255 * int.from_bytes(complete_mask(seen), "little"))
        if not missing:
            return True
    return False


def _rank(tier: Tier) -> tuple[bool, int, float]:
    profile = tier.profile
    return (not profile.hot, -profile.bandwidth_bytes_per_s, profile.latency_s)
