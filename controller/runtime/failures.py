"""Which copies could not be read lately, and which tiers took none.  Layer: runtime, memory only.

Counts, per tier, group and member, the tries in a row that failed, so that the next plan tries
another copy or another tier first.  It speaks against no replica: what a tier shows stays what was
observed, nothing is dropped for it, and whatever fails everywhere is tried everywhere again.  One
byte a member, and only where something failed; it is forgotten some time after the last failure.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from weightctl.controller.core.masks import GIVEN_UP
from weightctl.controller.ports import (
    Busy,
    Clock,
    Conflict,
    Corrupt,
    Done,
    Fenced,
    NoCapacity,
    NoOp,
    Outcome,
    Permanent,
    Retry,
    Unknown,
)

KEPT_S = 900.0
"""How long a failure is remembered after the last one of its group in its tier."""
DOUBT_S = 10.0
"""A tier that fails for a shorter time than this has given nothing up."""
STREAK = 16
"""After so many failures without a success in between, the others of the group expect no better."""
MEMBERS_MAX = 4_000_000
_PERMANENT = 3
"""A failure that will not pass by itself counts for so many."""
_MOST = 255
_RAISED = bytes(max(count, 1) for count in range(_MOST + 1))


def weight_of(outcome: Outcome) -> int:
    """For how many failures an outcome counts against who gave it; 0 for none."""
    match outcome:
        case Permanent():
            return _PERMANENT
        case Retry() | Unknown() | Conflict() | NoCapacity() | Busy() | Corrupt():
            return 1
        case Done() | NoOp() | Fenced():
            return 0


class _Sheet:
    __slots__ = ("counts", "first_s", "last_s", "streak")

    def __init__(self, count: int, now_s: float) -> None:
        self.counts = bytearray(count)
        self.first_s = self.last_s = now_s
        self.streak = 0


class FailureBook:
    """All failures of this process that may still matter."""

    def __init__(self, clock: Clock, *, members_max: int = MEMBERS_MAX) -> None:
        self._clock = clock
        self._members_max = members_max
        self._sheets: OrderedDict[tuple[str, str], _Sheet] = OrderedDict()
        self._held = 0

    def failed(
        self, tier: str, group_id: str, count: int, indexes: Sequence[int], weight: int = 1
    ) -> int:
        """Note failures of members of a group of `count`; how many of them had not failed before.

        While a tier has failed for less than `DOUBT_S`, none of its members comes to `GIVEN_UP`.
        """
        if not indexes:
            return 0
        now_s = self._clock.monotonic_s()
        sheet = self._sheet(tier, group_id, count, now_s) or self._new(tier, group_id, count, now_s)
        most = _MOST if now_s - sheet.first_s >= DOUBT_S else GIVEN_UP - 1
        fresh = 0
        for index in indexes:
            before = sheet.counts[index]
            fresh += not before
            # Who has failed longest does not always stand behind who has failed almost so long.
            sheet.counts[index] = GIVEN_UP if before == _MOST else min(before + weight, most)
        sheet.streak += len(indexes)
        sheet.last_s = now_s
        return fresh

    def worked(self, tier: str, group_id: str, indexes: Iterable[int]) -> None:
        """These have succeeded there."""
        sheet = self._sheets.get((tier, group_id))
        if sheet is None:
            return
        for index in indexes:
            sheet.counts[index] = 0
            sheet.streak = 0
        if sheet.counts.count(0) == len(sheet.counts):
            self._forget((tier, group_id))

    def counts(self, tier: str, group_id: str, count: int) -> bytes:
        """Failures in a row of each of the `count` members; empty where there is none."""
        sheet = self._sheet(tier, group_id, count, self._clock.monotonic_s())
        if sheet is None:
            return b""
        counts = bytes(sheet.counts)
        return counts.translate(_RAISED) if sheet.streak >= STREAK else counts

    def forget_group(self, group_id: str, tiers: Iterable[str]) -> None:
        """Drop everything known of a group."""
        for tier in tiers:
            self._forget((tier, group_id))

    def _sheet(self, tier: str, group_id: str, count: int, now_s: float) -> _Sheet | None:
        key = tier, group_id
        sheet = self._sheets.get(key)
        if sheet is None:
            return None
        if now_s - sheet.last_s > KEPT_S or len(sheet.counts) != count:
            self._forget(key)
            return None
        self._sheets.move_to_end(key)
        return sheet

    def _new(self, tier: str, group_id: str, count: int, now_s: float) -> _Sheet:
        sheet = self._sheets[tier, group_id] = _Sheet(count, now_s)
        self._held += count
        while self._held > self._members_max and len(self._sheets) > 1:
            self._forget(next(iter(self._sheets)))
        return sheet

    def _forget(self, key: tuple[str, str]) -> None:
        sheet = self._sheets.pop(key, None)
        if sheet is not None:
            self._held -= len(sheet.counts)
