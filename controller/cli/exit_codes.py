"""Exit codes: the one table, and the code of each error.  Layer: cli.

The numbers are stable.  `weightctl --help` and `weightctl exit-codes` print this table.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from weightctl.controller import errors
from weightctl.controller.errors import ErrorCode

if TYPE_CHECKING:
    from typing import Self

    from weightctl.controller.api import documents as doc


class ExitCode(IntEnum):
    """How a command went."""

    def __new__(cls, value: int, about: str) -> Self:
        """A number with its meaning."""
        member = int.__new__(cls, value)
        member._value_ = value
        member.about = about
        return member

    about: str

    OK = 0, "it is done; with --wait: it was observed"
    ERROR = 1, "any other failure"
    USAGE = 2, "the command line, an identity or the configuration is wrong, or --yes is missing"
    NOT_FOUND = 3, "no such revision, lease or operation"
    STALE = 4, "the record has moved on: read it again and decide anew"
    BUSY = 5, "a lease or an operation holds the revision"
    NOT_READY = 6, "the revision's state does not allow it"
    CAPACITY = 7, "a tier has no room"
    INTEGRITY = 8, "bytes do not have the digest that they should have"
    FENCED = 9, "another holder or a newer operation took over"
    DURABILITY = 10, "the change could not be made durable and is not visible"
    CONFLICT = 11, "something else is there already"
    HELD = 12, "another process holds the state directory"
    LEASE_EXPIRED = 13, "the lease died before it was renewed"
    TIMEOUT = 14, "--timeout passed or the controller stopped; what is recorded goes on"
    LOST = 15, "a member has no readable replica in any tier"
    HELD_UP = 16, "a plugin held up the process without an end; the next start leaves it out"
    INTERRUPTED = 130, "stopped by Ctrl-C"
    BROKEN_PIPE = 141, "the reader of stdout went away"


_OF_CODE = {
    ErrorCode.INVALID_ARGUMENT: ExitCode.USAGE,
    ErrorCode.NOT_FOUND: ExitCode.NOT_FOUND,
    ErrorCode.CONFLICT: ExitCode.CONFLICT,
    ErrorCode.STALE_GENERATION: ExitCode.STALE,
    ErrorCode.NOT_READY: ExitCode.NOT_READY,
    ErrorCode.BUSY: ExitCode.BUSY,
    ErrorCode.LEASE_EXPIRED: ExitCode.LEASE_EXPIRED,
    ErrorCode.GENERATION_EXHAUSTED: ExitCode.ERROR,
    ErrorCode.DURABILITY_FAILED: ExitCode.DURABILITY,
}

_OF_REASON = {
    errors.ConfigError.reason: ExitCode.USAGE,
    errors.StateDirectoryHeldError.reason: ExitCode.HELD,
    errors.BusyError.reason: ExitCode.BUSY,
    errors.CapacityError.reason: ExitCode.CAPACITY,
    errors.IntegrityError.reason: ExitCode.INTEGRITY,
    errors.ManifestError.reason: ExitCode.INTEGRITY,
    errors.FencedError.reason: ExitCode.FENCED,
    errors.ManagedGroupError.reason: ExitCode.BUSY,
    errors.TargetExistsError.reason: ExitCode.CONFLICT,
    errors.StoppingError.reason: ExitCode.TIMEOUT,
    # Named as text: `output` imports this module, and where those of `--wait` are raised an event
    # loop is imported.
    "NeedsYes": ExitCode.USAGE,
    "Timeout": ExitCode.TIMEOUT,
    errors.NothingReadableError.reason: ExitCode.LOST,
}

DETAILED = {
    0: "nothing to do",
    2: "there is something to do",
    3: "blocked by a guard or a tier without an answer",
    ExitCode.LOST.value: "a member is lost",
}
"""What `plan --detailed-exitcode` ends with instead."""


def of(code: str | None, reason: str) -> ExitCode:
    """The exit code of an error with this contract code (None: it has none) and reason."""
    if code is not None:
        return _OF_CODE[ErrorCode[code]]
    return _OF_REASON.get(reason, ExitCode.ERROR)


def document() -> doc.ExitCodes:
    """The table as a document."""
    return {
        "apiVersion": "weightctl/v1",
        "kind": "ExitCodes",
        "items": [
            {"code": code.value, "name": code.name, "about": code.about} for code in ExitCode
        ],
    }


def epilog() -> str:
    """The table as the closing lines of `weightctl --help`."""
    lines = [f"  {code.value:>3}  {code.about}" for code in ExitCode]
    detailed = ", ".join(f"{code} {about}" for code, about in DETAILED.items())
    return "\n".join(["exit codes:", *lines, "", f"plan --detailed-exitcode: {detailed}"])
