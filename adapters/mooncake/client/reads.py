"""Our own reading: the leases that it takes, its budget, and when it stands back.  Layer: a tier.

Whoever reads an object holds Mooncake's lease on it, and on every object of its group.  So what is
read only to be verified is read within a budget, and not at all in a group whose drop has waited
for some leases' time: it is asked again when the drop has had its turn.  Nor is what has just been
dropped from memory: reading it brings it back.  Invariant: no amount of verifying keeps a drop
waiting for more than `READ_ON_LEASES` and one lease more, or undoes it before it was looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weightctl.controller.ports import Busy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weightctl.controller.core.observation import Member
    from weightctl.controller.ports import Clock

READ_ON_LEASES = 3
"""So many leases long it is still verified in a group whose drop waits."""
SUSPECT_ON = 6
"""So many leases long a drop is refused, with no lease of ours, before it is read again."""
DROP_FORGOTTEN_S = 120.0
"""A drop that was not asked for again for so long, after its lease, is not wanted any more."""
REST_S = 30.0
"""Nothing is verified for so long after it was dropped from memory."""
NAP_S = 30.0
"""The longest wait for the budget within one call; for more it is Busy."""
LATE_S = 0.02
"""A lease begins when the Master answers, which is a little after it was asked."""
STEPS = 8
"""So many times within a lease a group is looked at whose lease has not run out when it should."""
_LEASES_KEPT = 100_000
_GROUPS_KEPT = 10_000


class Reads:
    """What this process reads of one cluster, and may read; used on the loop."""

    def __init__(self, clock: Clock, lease_ttl_s: float, verify_bytes_per_s: int) -> None:
        self._clock = clock
        self._ttl_s = lease_ttl_s
        self._rate = verify_bytes_per_s
        self._leases: dict[str, tuple[float, float]] = {}
        """By group: when its lease should run out, and when it has at the latest, monotonic."""
        self._waiting: dict[str, tuple[float, float]] = {}
        """By group whose drop waits for a lease: since when, and when it was last asked for."""
        self._epoch = ""
        self._suspected: dict[str, float] = {}
        """By key of what could not be dropped: when it was read again to see whose it is."""
        self._dropped: dict[str, float] = {}
        """By key of what was dropped from memory: until when it is not verified."""
        self._free_at_s = clock.monotonic_s()
        """When the budget allows the next object."""
        self.count = 0
        """Reads of objects, each of which took a lease."""
        self.verified_bytes = 0
        self.put_off = 0
        """Objects that were not verified when it was asked for."""

    # --- leases that were taken ---

    def note(self, group_id: str) -> None:
        """This process has just read an object of the group, which leases all of them.

        The Master renews the lease of a group only when no more than half of it is left.
        """
        self.count += 1
        now_s = self._clock.monotonic_s()
        end_s = now_s + self._ttl_s
        if len(self._leases) >= _LEASES_KEPT:
            self._leases = {k: ends for k, ends in self._leases.items() if ends[1] > now_s}
        first_s, _ = self._leases.get(group_id, (0.0, 0.0))
        renewed = first_s - now_s <= self._ttl_s / 2
        self._leases[group_id] = (end_s if renewed else first_s, end_s)

    def lease_end_ms(self) -> int:
        """When a lease that is taken now runs out, wall clock."""
        return self._in_ms(self._ttl_s)

    def leased_until_ms(self, group_id: str) -> int | None:
        """When the lease that this process took on a group should have run out; None when it did.

        It may still be leased then, at most until a full lease after the last read: a little later.
        """
        now_s = self._clock.monotonic_s()
        first_s, last_s = self._leases.get(group_id, (0.0, 0.0))
        for end_s in (first_s + LATE_S, now_s + self._ttl_s / STEPS):
            if now_s < end_s and now_s < last_s:
                return self._in_ms(min(end_s, last_s) - now_s)
        return None

    def _in_ms(self, wait_s: float) -> int:
        return self._clock.wall_ms() + round(wait_s * 1000) + 1

    # --- drops that wait for leases ---

    def drop_waits(self, group_id: str) -> None:
        """Something of the group was to be dropped, and is leased."""
        now_s = self._clock.monotonic_s()
        since_s, asked_s = self._waiting.pop(group_id, (now_s, now_s))
        if now_s - asked_s > self._ttl_s + DROP_FORGOTTEN_S:
            since_s = now_s
        if len(self._waiting) >= _GROUPS_KEPT:
            del self._waiting[next(iter(self._waiting))]
        self._waiting[group_id] = (since_s, now_s)

    def drop_went(self, group_id: str) -> None:
        """Nothing of what was to be dropped is leased any more."""
        self._waiting.pop(group_id, None)

    def saw(self, epoch: str) -> None:
        """What was read in another epoch proves nothing: it is read again before any drop."""
        if epoch != self._epoch:
            self._epoch = epoch
            self._waiting.clear()

    def may_be_anothers(self, member: Member) -> bool:
        """Whether a drop has waited so long, with no lease of ours, that it may not be ours at all.

        Says so once in as long a time: it is to be read then, which takes a lease.
        """
        now_s, group_id = self._clock.monotonic_s(), member.group_id
        since_s, _ = self._waiting.get(group_id, (now_s, now_s))
        asked_s = self._suspected.get(member.key, since_s)
        waited_s = now_s - max(since_s, asked_s)
        if self.leased_until_ms(group_id) or waited_s < SUSPECT_ON * self._ttl_s:
            return False
        if len(self._suspected) >= _GROUPS_KEPT:
            self._suspected.clear()
        self._suspected[member.key] = now_s
        return True

    def dropped(self, keys: Iterable[str]) -> None:
        """Objects have just lost their memory replicas."""
        now_s = self._clock.monotonic_s()
        if len(self._dropped) >= _LEASES_KEPT:
            self._dropped = {key: at_s for key, at_s in self._dropped.items() if at_s > now_s}
        self._dropped |= dict.fromkeys(keys, now_s + REST_S)

    def wanted_back(self, keys: Iterable[str]) -> None:
        """Objects that are to be in memory again, whoever reads them."""
        for key in keys:
            self._dropped.pop(key, None)

    # --- verifying ---

    async def may_verify(self, member: Member) -> Busy | None:
        """Wait a little for the budget; Busy when the object is not to be read now."""
        if self._stands_back(member.group_id):
            return self._put_off(self._ttl_s, "a drop in its group waits for leases")
        now_s = self._clock.monotonic_s()
        rest_s = self._dropped.pop(member.key, now_s) - now_s
        if rest_s > 0:
            self._dropped[member.key] = now_s + rest_s
            return self._put_off(rest_s, "it has just left memory, and reading would bring it back")
        return await self.within_budget(member)

    async def within_budget(self, member: Member) -> Busy | None:
        """As `may_verify`, for what is read without a lease and without coming into memory."""
        now_s = self._clock.monotonic_s()
        wait_s = max(self._free_at_s - now_s, 0.0)
        if wait_s > NAP_S:
            return self._put_off(wait_s, "verify_bytes_per_s allows no more now")
        self._free_at_s = now_s + wait_s + member.size_bytes / self._rate
        self.verified_bytes += member.size_bytes
        await self._clock.sleep(wait_s)
        return None

    def _put_off(self, wait_s: float, why: str) -> Busy:
        self.put_off += 1
        return Busy(until_ms=self._in_ms(wait_s), detail=f"not verified now: {why}")

    def _stands_back(self, group_id: str) -> bool:
        if group_id not in self._waiting:
            return False
        now_s = self._clock.monotonic_s()
        since_s, asked_s = self._waiting[group_id]
        if now_s - asked_s > self._ttl_s + DROP_FORGOTTEN_S:
            del self._waiting[group_id]
            return False
        return now_s - since_s >= READ_ON_LEASES * self._ttl_s
