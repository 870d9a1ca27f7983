"""Whether a revision comes nearer to what is wanted.  Layer: runtime, memory only.

The whole way that is left to do has a length that each effective step makes smaller.  Work that was
answered as done and made it no smaller (a tier that flaps, forgets, or did not do what it said) is
a setback: the next pass over that revision waits, longer with each one.  Only a new goal, or a
distance that was never reached before, ends that; attempts, answers and time do not.  Where
something hides a part of the way, doing just the same once more is a setback.
"""

import zlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from weightctl.controller.core.backoff import Backoff
from weightctl.controller.core.identity import Identity
from weightctl.controller.core.plan import Plan, Reason, Step, StepKind
from weightctl.controller.core.records import Availability, RevisionMetadata
from weightctl.controller.ports import Clock

REVISIONS_MAX = 20_000
_SETBACKS_MOVING = 3
"""After so many setbacks in a row, coming nearer again is no progress: it goes round in circles."""
_WEIGHTS = {
    StepKind.QUARANTINE: 4,
    StepKind.STORE: 3,
    StepKind.VERIFY: 2,
    StepKind.DROP: 1,
}
"""What is set aside is stored again, what is stored is read back, what is read back may be let go.
"""

Goal = tuple[int, bool]
Hindrances = frozenset[Reason]
NOTHING: Hindrances = frozenset()


def distance(way: Sequence[Plan]) -> int:
    """What is left to do on a way as of `core.forecast`; smaller after each step with its effect.

    The whole way counts: a copy that was read back lets the plan show the next step, which is no
    step back.
    """
    plan = way[0]
    tiers = len(plan.free_bytes)
    left = (plan.total_members - plan.processed_members) * (1 + tiers)
    steps = [step for one in way for step in one.steps]
    return left + sum(_WEIGHTS.get(step.kind, 1) * max(step.count, 1) for step in steps)


def goal_of(record: RevisionMetadata) -> Goal:
    """What is wanted, apart from what was observed meanwhile."""
    return record.operation_id, record.availability is Availability.DELETING


@dataclass(slots=True)
class _Entry:
    goal: Goal
    best: dict[Hindrances, int] = field(default_factory=dict)
    """The shortest distance that was seen, for each set of hindrances: they hide parts of it."""
    last: int | None = None
    """What the last look saw; None where something hid a part of it."""
    bound: int | None = None
    """Not to be exceeded by the next look that sees all of the way."""
    done: int | None = None
    """The digest of what was carried out since the last look; None where nothing was."""
    planned: int = 0
    setbacks: int = 0
    resume_s: float = float("-inf")


class Headway:
    """The way of each unconverged revision."""

    def __init__(
        self, clock: Clock, backoff: Backoff, *, revisions_max: int = REVISIONS_MAX
    ) -> None:
        self._clock = clock
        self._backoff = backoff
        self._revisions_max = revisions_max
        self._entries: OrderedDict[Identity, _Entry] = OrderedDict()

    def pause_s(self, record: RevisionMetadata) -> float:
        """Seconds until a pass may work on the revision again; 0 when it may now."""
        entry = self._entries.get(record.identity)
        if entry is None or entry.goal != goal_of(record):
            return 0.0
        return max(entry.resume_s - self._clock.monotonic_s(), 0.0)

    def look(
        self,
        record: RevisionMetadata,
        left: int,
        hindrances: Hindrances = NOTHING,
        steps: Sequence[Step] = (),
    ) -> bool:
        """Take in the distance that was seen; whether the revision has moved.

        hindrances: what the plan waits for; a lease or a silent tier hides a part of the way.
        steps: what is done next.
        """
        entry = self._entry(record)
        entry.planned = hash(tuple(steps))
        again, entry.done = entry.done == entry.planned, None
        best = entry.best.get(hindrances)
        reached = best is None or left < best
        if reached:
            entry.best[hindrances] = left
        if hindrances:
            entry.last = None
            if again and not reached:
                self._set_back(record.identity, entry)
            return reached
        last, entry.last = entry.last, left
        bound, entry.bound = entry.bound, left
        if reached:
            entry.setbacks = 0
            return True
        if bound is not None and left > bound:
            self._set_back(record.identity, entry)
            return False
        return last is not None and left < last and entry.setbacks < _SETBACKS_MOVING

    def acted(self, record: RevisionMetadata) -> None:
        """Something was carried out, or so it was answered: the next look must be nearer."""
        entry = self._entries.get(record.identity)
        if entry is None:
            return
        entry.done = entry.planned
        if entry.last is not None and entry.bound is not None:
            entry.bound -= 1

    def forget(self, identity: Identity) -> None:
        """It has arrived, or is gone."""
        self._entries.pop(identity, None)

    def _entry(self, record: RevisionMetadata) -> _Entry:
        goal = goal_of(record)
        entry = self._entries.get(record.identity)
        if entry is None or entry.goal != goal:
            entry = self._entries[record.identity] = _Entry(goal)
            if len(self._entries) > self._revisions_max:
                self._entries.popitem(last=False)
        return entry

    def _set_back(self, identity: Identity, entry: _Entry) -> None:
        """Wait; many revisions that one tier sets back at once do not come back at once."""
        entry.setbacks += 1
        chance = zlib.crc32(f"{identity}{entry.setbacks}".encode()) / 2**32
        delay_s = self._backoff.delay_s(entry.setbacks, chance)
        entry.resume_s = self._clock.monotonic_s() + delay_s
