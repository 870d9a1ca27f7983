"""What is to be said about each revision.  Layer: runtime, memory only.

A condition has a type, a status, a stable reason, a message, the generation that was looked at and
the time since when the status holds.  A converged revision is forgotten, so the board is bounded by
the work, and beyond that by a maximum.
"""

import logging
from collections import OrderedDict
from dataclasses import dataclass, replace
from enum import StrEnum

from weightctl.controller.core.identity import Identity
from weightctl.controller.core.plan import Plan, Verdict
from weightctl.controller.ports import Clock
from weightctl.controller.telemetry.logs import event

REVISIONS_MAX = 20_000
_MESSAGE_MAX = 500
_LOG = logging.getLogger("weightctl.runtime")


class ConditionType(StrEnum):
    """What a condition speaks of."""

    CONVERGED = "Converged"
    """The wanted state has been observed."""
    BLOCKED = "Blocked"
    """A guard or a missing answer holds the revision."""
    LOST = "Lost"
    """Some member has no readable replica anywhere."""
    FAILING = "Failing"
    """The last pass met errors."""
    STUCK = "Stuck"
    """Nothing has moved for longer than the deadline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One statement; `since_ms` is wall clock, when `status` last changed."""

    type: ConditionType
    status: bool
    reason: str
    message: str
    observed_generation: int
    since_ms: int


@dataclass(slots=True)
class _Entry:
    identity: Identity
    conditions: dict[ConditionType, Condition]
    moved_s: float


class ConditionBoard:
    """Conditions by revision."""

    def __init__(
        self, clock: Clock, *, stuck_after_s: float, revisions_max: int = REVISIONS_MAX
    ) -> None:
        self._clock = clock
        self._stuck_after_s = stuck_after_s
        self._revisions_max = revisions_max
        self._entries: OrderedDict[Identity, _Entry] = OrderedDict()

    def of(self, identity: Identity) -> tuple[Condition, ...]:
        """What is to be said of a revision; empty when nothing is."""
        entry = self._entries.get(identity)
        return () if entry is None else tuple(entry.conditions.values())

    def idle_s(self, identity: Identity) -> float:
        """Seconds since the revision has last come nearer to what is wanted."""
        entry = self._entries.get(identity)
        return 0.0 if entry is None else self._clock.monotonic_s() - entry.moved_s

    def count(self, kind: ConditionType) -> int:
        """Revisions for which the condition is true."""
        return sum(
            1
            for entry in self._entries.values()
            if (condition := entry.conditions.get(kind)) is not None and condition.status
        )

    def all_true(self, kind: ConditionType) -> dict[Identity, Condition]:
        """Every revision for which the condition is true."""
        return {
            identity: condition
            for identity, entry in self._entries.items()
            if (condition := entry.conditions.get(kind)) is not None and condition.status
        }

    def clear(self, identity: Identity) -> None:
        """Nothing more to say: converged or gone."""
        entry = self._entries.pop(identity, None)
        for condition in () if entry is None else entry.conditions.values():
            if condition.status:
                _tell(identity, replace(condition, status=False, message=""))

    def planned(
        self, identity: Identity, plan: Plan, generation: int, *, moved: bool = True
    ) -> None:
        """Derive the conditions from a pass's plan; `moved`: the revision has come nearer to it."""
        if plan.verdict is Verdict.CONVERGED:
            self.clear(identity)
            return
        entry = self._entry(identity)
        waits = "; ".join(f"{wait.reason}: {wait.what}" for wait in plan.waits)
        first = str(plan.waits[0].reason) if plan.waits else "Working"
        lost, held = plan.verdict is Verdict.LOST, bool(plan.waits) and not plan.steps
        said = (
            (ConditionType.CONVERGED, False, first, waits or "work is under way"),
            (ConditionType.BLOCKED, held, first if held else "NotBlocked", waits),
            (ConditionType.LOST, lost, first if lost else "NotLost", waits if lost else ""),
        )
        for kind, status, reason, message in said:
            self._say(entry, kind, (reason, message), status=status, generation=generation)
        self._judge_progress(entry, generation, moved=moved)

    def failing(self, identity: Identity, reason: str, message: str, generation: int) -> None:
        """The pass met an error."""
        entry = self._entry(identity)
        kind = ConditionType.FAILING
        self._say(entry, kind, (reason, message), status=True, generation=generation)

    def failed(self, identity: Identity, reason: str, message: str, generation: int) -> None:
        """The pass ended early: what an earlier one waited for is not known to hold any more."""
        self.failing(identity, reason, message, generation)
        entry = self._entry(identity)
        said = ((ConditionType.CONVERGED, reason, message), (ConditionType.BLOCKED, "Failed", ""))
        for kind, why, what in said:
            self._say(entry, kind, (why, what), status=False, generation=generation)

    def recovered(self, identity: Identity, generation: int) -> None:
        """The pass met no error; only changes a revision that was failing."""
        entry = self._entries.get(identity)
        if entry is not None and ConditionType.FAILING in entry.conditions:
            said = ("Recovered", "")
            self._say(entry, ConditionType.FAILING, said, status=False, generation=generation)

    def _entry(self, identity: Identity) -> _Entry:
        entry = self._entries.get(identity)
        if entry is None:
            entry = self._entries[identity] = _Entry(identity, {}, self._clock.monotonic_s())
            if len(self._entries) > self._revisions_max:
                self._entries.popitem(last=False)
        return entry

    def _judge_progress(self, entry: _Entry, generation: int, *, moved: bool) -> None:
        now_s = self._clock.monotonic_s()
        if moved:
            entry.moved_s = now_s
        idle_s = now_s - entry.moved_s
        stuck = idle_s >= self._stuck_after_s
        reason = "NoProgress" if stuck else "Moving"
        message = f"nothing has moved for {idle_s:.0f} s" if stuck else ""
        kind = ConditionType.STUCK
        self._say(entry, kind, (reason, message), status=stuck, generation=generation)

    def _say(
        self,
        entry: _Entry,
        kind: ConditionType,
        said: tuple[str, str],
        *,
        status: bool,
        generation: int,
    ) -> None:
        old = entry.conditions.get(kind)
        new = Condition(
            type=kind,
            status=status,
            reason=said[0],
            message=said[1][:_MESSAGE_MAX],
            observed_generation=generation,
            since_ms=self._clock.wall_ms(),
        )
        if old is not None and old.status is status:
            new = replace(new, since_ms=old.since_ms)
        entry.conditions[kind] = new
        if status is not (old is not None and old.status):
            _tell(entry.identity, new)


def _tell(identity: Identity, condition: Condition) -> None:
    """One line in the log for each condition that comes or goes."""
    event(
        _LOG,
        logging.INFO,
        f"{condition.type}: {'true' if condition.status else 'no longer'}",
        revision=identity,
        reason=condition.reason,
        detail=condition.message,
    )
