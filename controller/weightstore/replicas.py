"""Which tiers can serve which objects, best first.  Layer: weightstore.

A hot replica is read before a cold one, a fast tier before a slow one.  A tier that gave no answer
comes last, but it comes: no answer is not absence.  A replica that fails in the middle is followed
by the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from weightctl.controller.core.observation import MemberState
from weightctl.controller.errors import IntegrityError, ReconcileError, TransientError
from weightctl.controller.weightstore.parallel import for_each
from weightctl.controller.weightstore.primitives import as_members, observe

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from weightctl.controller.core.observation import Member
    from weightctl.controller.ports import Tier

Result = TypeVar("Result")


class Replicas:
    """One look at some members of a group, in every tier."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = members
        self._index = {member.key: index for index, member in enumerate(members)}
        self._seen: list[tuple[Tier, bytes]] = []

    async def look(self, tiers: Sequence[Tier], deadline_s: float) -> None:
        """Observe all tiers at once; a tier without an answer is unknown."""
        if not self.members:
            return
        asked = as_members(self.members[0].group_id, self.members)
        states: dict[str, bytes] = {}

        async def ask(tier: Tier) -> None:
            states[tier.profile.name] = (await observe(tier, asked, deadline_s)).states

        await for_each(tiers, max(1, len(tiers)), ask)
        self._seen = [(tier, states[tier.profile.name]) for tier in sorted(tiers, key=_rank)]

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

        Raises IntegrityError when a replica had wrong bytes and no other served, else the first
        tier's error, TransientError when there was no tier to try.
        """
        failures: list[ReconcileError] = []
        for tier in self.sources(member):
            try:
                return await read(tier)
            except ReconcileError as error:
                failures.append(error)
        failures.sort(key=lambda error: not isinstance(error, IntegrityError))
        if failures:
            raise failures[0]
        raise TransientError(
            f"object {member.key} cannot be read",
            "no tier holds a complete replica of it",
            "`weightctl explain` shows where it was last seen; repair the revision",
        )


def _rank(tier: Tier) -> tuple[bool, int, float]:
    profile = tier.profile
    return (not profile.hot, -profile.bandwidth_bytes_per_s, profile.latency_s)
