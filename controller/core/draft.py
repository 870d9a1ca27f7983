"""The draft of a plan.  Layer: core (pure).

Collects steps and waits, and accounts for bytes and room.  Which replica is read, which tier takes
a copy and in what order is settled here, by preference, speed, room and what has failed before;
what is to become of a member is the planner's to decide.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, compress
from typing import TYPE_CHECKING

from weightctl.controller.core import aggregate as agg
from weightctl.controller.core.identity import is_valid_component
from weightctl.controller.core.masks import Masks
from weightctl.controller.core.observation import MemberState
from weightctl.controller.core.plan import (
    GUARDS,
    Plan,
    Reason,
    Situation,
    Step,
    StepKind,
    Verdict,
    Wait,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weightctl.controller.core.plan import TierView
    from weightctl.controller.core.records import Availability, Residency

_FORGIVEN = 2
"""Failures of a tier to take a member before the next one by preference is asked."""


class Draft:
    """A plan in the making."""

    def __init__(self, situation: Situation) -> None:
        self.situation = situation
        self.masks = Masks(situation)
        self.steps: list[Step] = []
        self.waits: list[Wait] = []
        self.availability: Availability | None = None
        self.residency: Residency | None = None
        self.lost_members = 0
        self._quarantined = 0
        self._sizes: dict[int, int] = {}
        self._processed = (0, "")
        self._free = {
            view.profile.name: view.capacity.free_bytes if view.capacity else None
            for view in situation.views
        }
        self._needed = dict.fromkeys(self._free, 0)
        self._pairs: dict[tuple[str, str], int] = {}
        ordered = sorted(situation.views, key=self._preference)
        self.hot = tuple(view.profile.name for view in ordered if view.profile.hot)
        self.cold = tuple(view.profile.name for view in ordered if not view.profile.hot)
        by_speed = sorted(
            ordered, key=lambda view: (-view.profile.bandwidth_bytes_per_s, not view.profile.hot)
        )
        self._takers = frozenset(
            view.profile.name
            for view in situation.views
            if not view.profile.capabilities.observe_only
        )
        self._fastest = tuple(view.profile.name for view in by_speed)

    def takers(self, tiers: Sequence[str]) -> tuple[str, ...]:
        """Those of the tiers in which anything can be stored at all."""
        return tuple(tier for tier in tiers if tier in self._takers)

    def _preference(self, view: TierView) -> tuple[int, int, str]:
        names = self.situation.policy.tier_preference
        rank = names.index(view.profile.name) if view.profile.name in names else len(names)
        return rank, -view.profile.bandwidth_bytes_per_s, view.profile.name

    # --- what was seen ----------------------------------------------------------------------

    def observe(self, *, complete_group: bool, count_right: bool) -> None:
        """Aggregate availability and residency."""
        self.availability, self.residency = agg.aggregate(
            self.masks.folded, complete_group=complete_group, count_right=count_right
        )

    def undecided(self, among: int) -> int:
        """Members of `among` that some tier is still writing or gave no answer for."""
        return self.masks.flagged(agg.HOT_PENDING | agg.COLD_PENDING) & among

    def progress(self, done: int) -> None:
        """Members that satisfy the target already, and the last of them in key order.

        A key that is too long for a cursor leaves it empty: completion never rests on it.
        """
        flags = done.to_bytes(self.masks.size, "little")
        last = flags.rfind(1)
        key = self.situation.members.keys[last] if last >= 0 else ""
        self._processed = (flags.count(1), key if is_valid_component(key) else "")

    def lose(self, mask: int) -> None:
        """Members of which nothing readable is left."""
        self.lost_members = mask.bit_count()
        if mask:
            first = self.situation.members.keys[mask.to_bytes(self.masks.size, "little").find(1)]
            more = f" and {self.lost_members - 1} more" if self.lost_members > 1 else ""
            what = f"no readable replica in any tier of {first}{more}"
            self.wait(Reason.NOTHING_READABLE, what, mask)

    # --- what is waited for -----------------------------------------------------------------

    def wait(
        self, reason: Reason, what: str, mask: int = 0, *, until_ms: int | None = None
    ) -> None:
        """Note a wait, once per reason and subject."""
        wait = Wait(reason=reason, what=what, count=mask.bit_count(), until_ms=until_ms)
        if wait not in self.waits:
            self.waits.append(wait)

    def wait_undecided(self, among: int) -> None:
        """Say which tiers keep members of `among` from being decided, and how."""
        for view in self.situation.views:
            name = view.profile.name
            unknown = self.masks.state(name, MemberState.UNKNOWN) & among
            if unknown:
                self.wait(Reason.TIER_UNKNOWN, f"{name}: {view.problem or 'no answer'}", unknown)
            partial = self.masks.state(name, MemberState.PARTIAL) & among
            if partial:
                self.wait(Reason.COPY_IN_PROGRESS, f"{name}: a writer is at work", partial)

    def may_drop(self) -> bool:
        """Whether anything may lose a replica now; notes what forbids it."""
        leases = self.situation.leases
        unsettled = [view for view in self.situation.views if not view.settled]
        if leases.count:
            until = leases.nearest_expiry_ms
            self.wait(Reason.LEASE_LIVE, f"{leases.count} live leases", until_ms=until)
        for view in unsettled:
            what = f"{view.profile.name}: {view.problem or 'what it holds has just changed'}"
            self.wait(Reason.UNSETTLED, what, until_ms=view.settles_at_ms)
        return self._window_open() and not leases.count and not unsettled

    def _window_open(self) -> bool:
        now = self.situation.now_ms
        closed_ms = self.situation.policy.closed_for_ms(now)
        if closed_ms is None:
            self.wait(Reason.PAUSED, "paused by policy")
        elif closed_ms:
            self.wait(Reason.WINDOW_CLOSED, "outside the window", until_ms=now + closed_ms)
        return closed_ms == 0

    # --- what would be done -----------------------------------------------------------------

    def record_step(self, kind: StepKind, reason: Reason) -> None:
        """A step that writes the record and no replica."""
        self.steps.append(Step(kind=kind, reason=reason))

    def step(
        self, kind: StepKind, reason: Reason, mask: int, *, source: str = "", target: str = ""
    ) -> int:
        """A primitive over the members of a mask; returns their bytes."""
        flags = mask.to_bytes(self.masks.size, "little")
        size = self._size(mask)
        self.steps.append(
            Step(
                kind=kind,
                reason=reason,
                source=source,
                target=target,
                mask=flags,
                count=flags.count(1),
                size_bytes=size,
            )
        )
        return size

    def _size(self, mask: int) -> int:
        """Bytes of the members of a mask; the sums are the dearest part of a plan, so kept."""
        size = self._sizes.get(mask)
        if size is None:
            flags = mask.to_bytes(self.masks.size, "little")
            size = self._sizes[mask] = sum(compress(self.situation.members.sizes_bytes, flags))
        return size

    def drop(self, tier: str, mask: int, reason: Reason) -> None:
        """Drop the replicas of a mask from one tier."""
        if mask:
            self.step(StepKind.DROP, reason, mask, source=tier)

    def read_back(self, tier: str, mask: int, reason: Reason) -> None:
        """Read back the replicas of a mask in one tier."""
        if mask and self._window_open():
            self.step(StepKind.VERIFY, reason, mask, source=tier)

    def verify(self, mask: int, tiers: Sequence[str], reason: Reason) -> None:
        """Read back one replica of each member: where that has failed least often, then in the
        first of the tiers that has it.
        """
        for tier, among in self.masks.by_failures(tiers):
            here = self.masks.readable(tier) & mask & among
            self.read_back(tier, here, reason)
            mask &= ~here

    def quarantine(self, tier: str, mask: int) -> None:
        """Take wrong replicas out of sight; their members are stored again in a later pass."""
        self.step(StepKind.QUARANTINE, Reason.WRONG_DIGEST, mask, source=tier)
        self._quarantined |= mask

    def store(self, mask: int, tiers: Sequence[str], reason: Reason) -> None:
        """Bring the members of a mask into the first tiers with room, or nothing at all.

        Only a tier that answered ABSENT takes a member; one in which a wrong replica is being
        quarantined gets it back in a later pass.
        """
        mask &= ~self._quarantined
        if not mask or not self._window_open():
            return
        takers = 0
        tiers = self.takers(tiers)
        for tier in tiers:
            if self._free[tier] is None:
                self.wait(Reason.TIER_UNKNOWN, f"{tier}: its capacity could not be read")
            else:
                takers |= self.masks.state(tier, MemberState.ABSENT) & mask
        if mask & ~takers:
            self.wait_undecided(mask & ~takers)
            self.wait(Reason.NO_TIER, "no tier that answers could take it", mask & ~takers)
        parts, left = self._place(takers, tiers)
        if left:
            self._wait_for_room(left, tiers)
            return
        for target, part in parts:
            self._copy(part, target, reason)

    def _place(self, mask: int, tiers: Sequence[str]) -> tuple[list[tuple[str, int]], int]:
        parts = []
        taken = dict(self._needed)
        for tier, among in self.masks.by_failures(tiers, forgiven=_FORGIVEN):
            free = self._free[tier]
            candidates = self.masks.state(tier, MemberState.ABSENT) & mask & among
            if candidates and free is not None:
                part = self._prefix_that_fits(candidates, free - taken[tier])
                parts.append((tier, part))
                taken[tier] += self._size(part)
                mask &= ~part
        return [(tier, part) for tier, part in parts if part], mask

    def _prefix_that_fits(self, mask: int, free_bytes: int) -> int:
        if self._size(mask) <= free_bytes:
            return mask
        flags = mask.to_bytes(self.masks.size, "little")
        running = list(accumulate(compress(self.situation.members.sizes_bytes, flags)))
        fitting = bisect_right(running, max(free_bytes, 0))
        if fitting == 0:
            return 0
        indexes = compress(range(len(flags)), flags)
        last = next(index for rank, index in enumerate(indexes, 1) if rank == fitting)
        return mask & ((1 << (8 * (last + 1))) - 1)

    def _wait_for_room(self, left: int, tiers: Sequence[str]) -> None:
        holders = [tier for tier in tiers if self._free[tier] is not None]
        needed = self._size(left)
        free = sum(max((self._free[tier] or 0) - self._needed[tier], 0) for tier in holders)
        self.waits.append(
            Wait(
                reason=Reason.NO_CAPACITY,
                what=", ".join(holders),
                count=left.bit_count(),
                needed_bytes=needed,
                free_bytes=free,
            )
        )

    def _copy(self, mask: int, target: str, reason: Reason) -> None:
        for source, among in self.masks.by_failures(self._fastest):
            part = self.masks.readable(source) & mask & among if source != target else 0
            if part:
                size = self.step(StepKind.STORE, reason, part, source=source, target=target)
                self._needed[target] += size
                self._pairs[source, target] = self._pairs.get((source, target), 0) + size
            mask &= ~part

    # --- the result -------------------------------------------------------------------------

    def finish(self) -> Plan:
        """The finished plan."""
        processed, cursor = self._processed
        return Plan(
            verdict=self._verdict(),
            steps=tuple(self.steps),
            waits=tuple(self.waits),
            availability=self.availability,
            residency=self.residency,
            processed_members=processed,
            total_members=self.masks.size,
            cursor=cursor,
            lost_members=self.lost_members,
            bytes_by_pair=self._pairs,
            needed_bytes=self._needed,
            free_bytes=self._free,
            converges=not self.waits,
        )

    def _verdict(self) -> Verdict:
        if self.steps:
            return Verdict.WORK
        if self.lost_members:
            return Verdict.LOST
        if any(wait.reason in GUARDS for wait in self.waits):
            return Verdict.BLOCKED
        return Verdict.WAITING if self.waits else Verdict.CONVERGED
