"""The error taxonomy: contract codes for callers, classes for the loop.  Layer: bottom.

Imports nothing of weightctl.

`WeightError` carries one contract code and is what every public call of the metadata
store raises.  The `ReconcileError` family says what the loop does with a failure.  Each
leaf has one stable `reason`, used alike in conditions, metrics, JSON and exit codes.  Every message
answers three questions: what failed (with its key), why, and what to do next.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class ErrorCode(IntEnum):
    """Contract error codes.  The numbers are the wire values."""

    INVALID_ARGUMENT = 1
    NOT_FOUND = 2
    CONFLICT = 3
    STALE_GENERATION = 4
    NOT_READY = 5
    BUSY = 6
    LEASE_EXPIRED = 7
    GENERATION_EXHAUSTED = 8
    DURABILITY_FAILED = 9


class WeightctlError(Exception):
    """Root of all errors that weightctl raises on purpose.

    `what` names the failed thing with its key, `why` the cause, `todo` the next step for a person.
    """

    reason: ClassVar[str] = "Error"

    def __init__(self, what: str, why: str = "", todo: str = "") -> None:
        super().__init__(what, why, todo)
        self.what = what
        self.why = why
        self.todo = todo

    def __str__(self) -> str:
        return "\n".join(line for line in (self.what, self.why, self.todo) if line)


class WeightError(WeightctlError):
    """A request was refused; `code` is the contract's error code."""

    reason: ClassVar[str] = "Refused"

    def __init__(self, code: ErrorCode, what: str, why: str = "", todo: str = "") -> None:
        super().__init__(what, why, todo)
        self.code = code

    def __str__(self) -> str:
        return f"{self.code.name}: {super().__str__()}"


class ManagedGroupError(WeightctlError):
    """A generic path tried to change a member of a managed group."""

    reason: ClassVar[str] = "UNAVAILABLE_IN_CURRENT_STATUS"


class ConfigError(WeightctlError):
    """The configuration cannot be used as it stands."""

    reason: ClassVar[str] = "InvalidConfig"


class StateDirectoryError(WeightctlError):
    """The state directory cannot be opened: held, damaged, or from a newer version."""

    reason: ClassVar[str] = "StateDirectory"


class StateDirectoryMovedError(StateDirectoryError):
    """A writer started while the state directory was being read: what was read is of no moment."""


class StateDirectoryHeldError(StateDirectoryError):
    """Another live process holds the state directory; `pid` is that process."""

    reason: ClassVar[str] = "StateDirectoryHeld"

    def __init__(self, pid: int, what: str, why: str = "", todo: str = "") -> None:
        super().__init__(what, why, todo)
        self.pid = pid


class SourceError(WeightctlError):
    """A model source (safetensors file or folder) cannot be read as what it claims to be."""

    reason: ClassVar[str] = "BadSource"


class TargetError(WeightctlError):
    """The place to load into (folder, file, buffer) cannot take the tensors."""

    reason: ClassVar[str] = "BadTarget"


class TargetExistsError(TargetError):
    """The place to load into holds something else, which nobody said may be replaced."""

    reason: ClassVar[str] = "TargetExists"


class ManifestError(WeightctlError):
    """A stored manifest breaks a rule of `core.manifest_rules`; nothing of it may be used."""

    reason: ClassVar[str] = "BadManifest"


class ReconcileError(WeightctlError):
    """Root of the errors that the loop classifies."""


class TransientError(ReconcileError):
    """May pass by itself (EIO, ESTALE, ETIMEDOUT): try again with backoff."""

    reason: ClassVar[str] = "Transient"


class NothingReadableError(TransientError):
    """A member has no readable replica in any tier; a tier that comes back may end that."""

    reason: ClassVar[str] = "NothingReadable"


class ThrottledError(ReconcileError):
    """The other side asks to wait `after_s` seconds."""

    reason: ClassVar[str] = "Throttled"

    def __init__(self, after_s: float, what: str, why: str = "", todo: str = "") -> None:
        super().__init__(what, why, todo)
        self.after_s = after_s


class StoppingError(WeightctlError):
    """The controller that was asked ends before the verb does; what is recorded stays so."""

    reason: ClassVar[str] = "Stopping"


class BusyError(ReconcileError):
    """Held by somebody until `until_ms` (wall clock, milliseconds), or unknown (None)."""

    reason: ClassVar[str] = "Busy"

    def __init__(self, until_ms: int | None, what: str, why: str = "", todo: str = "") -> None:
        super().__init__(what, why, todo)
        self.until_ms = until_ms


class CapacityError(ReconcileError):
    """No room (ENOSPC, EDQUOT or the tier's own limit): plan again."""

    reason: ClassVar[str] = "Capacity"

    def __init__(
        self, needed_bytes: int, free_bytes: int, what: str, why: str = "", todo: str = ""
    ) -> None:
        super().__init__(what, why, todo)
        self.needed_bytes = needed_bytes
        self.free_bytes = free_bytes


class IntegrityError(ReconcileError):
    """Bytes do not have the expected digest: quarantine, use another source."""

    reason: ClassVar[str] = "Integrity"


class TerminalError(ReconcileError):
    """Will not pass by itself: park with a condition until the generation changes."""

    reason: ClassVar[str] = "Terminal"


class FencedError(ReconcileError):
    """The pass acts for a generation, operation or term that is no longer current: abandon it."""

    reason: ClassVar[str] = "Fenced"


class UnknownOutcomeError(ReconcileError):
    """The answer was lost: observe before trying again."""

    reason: ClassVar[str] = "UnknownOutcome"


class InvariantViolationError(WeightctlError):
    """A rule that must always hold does not: the process must stop, nothing may be written."""

    reason: ClassVar[str] = "InvariantViolation"


def require(condition: object, what: object, why: str = "") -> None:
    """Assert an invariant; unlike `assert` it survives `python -O`.

    Give the key itself as `what`: it becomes text only when the invariant does not hold.
    """
    if not condition:
        raise InvariantViolationError(str(what), why or "an internal invariant does not hold")
