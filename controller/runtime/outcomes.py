"""What the tiers answered, added up.  Layer: runtime.

An answer is taken for exactly the items that were asked: a missing one is Unknown, an answer for
something else is no answer (invariant 12).  Errors that arrive as exceptions become outcomes too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from weightctl.controller.errors import (
    BusyError,
    CapacityError,
    FencedError,
    TerminalError,
    ThrottledError,
    TransientError,
    WeightctlError,
)
from weightctl.controller.ports import (
    Busy,
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

_DETAILS_MAX = 5


def complete(outcomes: Sequence[Outcome], asked: int) -> list[Outcome]:
    """One outcome for each asked item."""
    if len(outcomes) > asked:
        return [Unknown(detail=f"{len(outcomes)} answers for {asked} items")] * asked
    missing = Unknown(detail="not answered")
    return [*outcomes, *(missing for _ in range(asked - len(outcomes)))]


def outcome_of(error: Exception) -> Outcome:
    """The outcome that an exception of a whole batch stands for, for each of its items."""
    detail = f"{error.reason}: {error}" if isinstance(error, WeightctlError) else repr(error)
    match error:
        case ThrottledError(after_s=after_s):
            return Retry(after_s=after_s, detail=detail)
        case TransientError():
            return Retry(detail=detail)
        case BusyError(until_ms=until_ms):
            return Busy(until_ms=until_ms, detail=detail)
        case CapacityError(needed_bytes=needed_bytes, free_bytes=free_bytes):
            return NoCapacity(needed_bytes=needed_bytes, free_bytes=free_bytes)
        case FencedError():
            return Fenced(detail=detail)
        case TerminalError():
            return Permanent(detail=detail)
        case _:
            return Unknown(detail=detail)


@dataclass(slots=True)
class Tally:
    """The outcomes of one pass."""

    changed: int = 0
    """Items that were carried out, or found to be so; also wrong replicas that were found, and
    evidence that was found to be of another copy: what is known has changed."""
    moved_bytes: int = 0
    failures: int = 0
    first_failures: int = 0
    """Copies and tiers that had not failed before: another one may do."""
    fenced: bool = False
    retry_after_s: float = 0.0
    busy: int = 0
    busy_until_ms: int | None = None
    permanent: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    """Items by the name of their outcome."""
    details: list[str] = field(default_factory=list)
    """The first few things that went wrong, for people."""

    def add(self, outcome: Outcome, key: str) -> None:
        """Count the outcome of one item."""
        name = type(outcome).__name__
        self.reasons[name] = self.reasons.get(name, 0) + 1
        match outcome:
            case Done(moved_bytes=moved_bytes):
                self.changed += 1
                self.moved_bytes += moved_bytes
            case NoOp():
                self.changed += 1
            case Busy(until_ms=until_ms, detail=detail):
                self.busy += 1
                if until_ms is not None:
                    self.busy_until_ms = min(self.busy_until_ms or until_ms, until_ms)
                self._note(key, name, detail)
            case Corrupt():
                self.changed += 1  # knowing it is what moves the revision on
                self._note(key, name, "the bytes do not have the recorded digest")
            case Retry(after_s=after_s, detail=detail):
                self.failures += 1
                self.retry_after_s = max(self.retry_after_s, after_s)
                self._note(key, name, detail)
            case NoCapacity(detail=detail):
                self.failures += 1
                self._note(key, name, detail)
            case Fenced(detail=detail):
                self.fenced = True
                self._note(key, name, detail)
            case Permanent(detail=detail):
                self.permanent += 1
                self._note(key, name, detail)
            case Conflict(detail=detail) | Unknown(detail=detail):
                self.failures += 1
                self._note(key, name, detail)

    def _note(self, key: str, name: str, detail: str) -> None:
        if len(self.details) < _DETAILS_MAX:
            self.details.append(f"{key}: {name}: {detail}" if detail else f"{key}: {name}")
