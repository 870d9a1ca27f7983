"""Which replicas were read back and found right.  Layer: runtime, memory only.

Evidence turns COMPLETE into VERIFIED.  It holds for one stored instance in one epoch of its tier
and ages by the monotonic clock; what is not known for sure is forgotten.  Flat arrays per (tier,
group): 17 bytes a member; the least recently used groups are forgotten beyond a bound.  What was
found wrong is the store's to keep, because it must outlive the process.
"""

from array import array
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping

from weightctl.controller.core.observation import MemberState
from weightctl.controller.ports import Clock

MEMBERS_MAX = 4_000_000

_GOOD = MemberState.VERIFIED - MemberState.COMPLETE
_COMPLETE_MASK = bytes(0xFF if state == MemberState.COMPLETE else 0 for state in range(256))


class _Sheet:
    """Evidence of one group in one tier, within one epoch."""

    __slots__ = ("batches", "delta", "epoch", "instances", "read_s")

    def __init__(self, count: int, epoch: str) -> None:
        self.epoch = epoch
        self.delta = bytearray(count)
        self.instances = array("q", bytes(8 * count))
        self.read_s = array("d", bytes(8 * count))
        self.batches: deque[tuple[float, tuple[int, ...]]] = deque()

    def note(self, instances: Mapping[int, str], now_s: float) -> None:
        for index, instance_id in instances.items():
            self.delta[index] = _GOOD
            self.instances[index] = hash(instance_id)
            self.read_s[index] = now_s
        self.batches.append((now_s, tuple(instances)))

    def expire(self, before_s: float) -> None:
        """Forget what was read before."""
        while self.batches and self.batches[0][0] < before_s:
            for index in self.batches.popleft()[1]:
                if self.read_s[index] < before_s:
                    self.delta[index] = 0

    def merged(self, states: bytes) -> bytes:
        count = len(states)
        complete = int.from_bytes(states.translate(_COMPLETE_MASK), "little")
        delta = int.from_bytes(self.delta, "little") & complete
        return (int.from_bytes(states, "little") + delta).to_bytes(count, "little")


class EvidenceBook:
    """All evidence of this process."""

    def __init__(self, clock: Clock, *, members_max: int = MEMBERS_MAX) -> None:
        self._clock = clock
        self._members_max = members_max
        self._sheets: OrderedDict[tuple[str, str], _Sheet] = OrderedDict()
        self._held = 0

    def note(
        self, tier: str, group_id: str, count: int, epoch: str, instances: Mapping[int, str]
    ) -> None:
        """Record instances, by member index, that were read back right; the group has `count`."""
        sheet = self._sheet(tier, group_id, count, epoch)
        if sheet is None:
            sheet = self._sheets[tier, group_id] = _Sheet(count, epoch)
            self._held += count
        sheet.note(instances, self._clock.monotonic_s())
        while self._held > self._members_max and len(self._sheets) > 1:
            self._forget(next(iter(self._sheets)))

    def merge(self, tier: str, group_id: str, states: bytes, epoch: str, max_age_s: float) -> bytes:
        """`states` with VERIFIED where there is evidence; none of it is older."""
        if not epoch:
            return states
        sheet = self._sheet(tier, group_id, len(states), epoch)
        if sheet is None:
            return states
        sheet.expire(self._clock.monotonic_s() - max_age_s)
        return sheet.merged(states)

    def read_s(self, tier: str, group_id: str, index: int, epoch: str, instance_id: str) -> float:
        """Monotonic time at which exactly this instance was read back right; -inf when it was not.

        Ages are the caller's to judge.
        """
        sheet = self._sheets.get((tier, group_id))
        if (
            sheet is None
            or sheet.epoch != epoch
            or index >= len(sheet.delta)
            or sheet.delta[index] != _GOOD
            or sheet.instances[index] != hash(instance_id)
        ):
            return float("-inf")
        return sheet.read_s[index]

    def oldest_s(self, group_id: str, tiers: Iterable[str]) -> float:
        """Monotonic time at which the oldest evidence of a group was read; inf without any."""
        sheets = (self._sheets.get((tier, group_id)) for tier in tiers)
        return min(
            (sheet.batches[0][0] for sheet in sheets if sheet is not None and sheet.batches),
            default=float("inf"),
        )

    def forget(self, tier: str, group_id: str, indexes: Iterable[int]) -> None:
        """Drop the evidence of some members, because the instance is another one or gone."""
        sheet = self._sheets.get((tier, group_id))
        if sheet is not None:
            for index in indexes:
                sheet.delta[index] = 0

    def forget_group(self, group_id: str, tiers: Iterable[str]) -> None:
        """Drop everything known of a group."""
        for tier in tiers:
            self._forget((tier, group_id))

    def _sheet(self, tier: str, group_id: str, count: int, epoch: str) -> _Sheet | None:
        """The sheet if it is of this epoch and size; another one is worth nothing and goes."""
        sheet = self._sheets.get((tier, group_id))
        if sheet is None:
            return None
        if sheet.epoch != epoch or len(sheet.delta) != count:
            self._forget((tier, group_id))
            return None
        self._sheets.move_to_end((tier, group_id))
        return sheet

    def _forget(self, key: tuple[str, str]) -> None:
        sheet = self._sheets.pop(key, None)
        if sheet is not None:
            self._held -= len(sheet.delta)
