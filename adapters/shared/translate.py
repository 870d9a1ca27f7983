"""The border: what a failed system call or an error means for the loop.  Layer: adapters, shared.

Invariant: no `OSError` leaves a tier.  ENOSPC, EDQUOT: capacity; EIO, ESTALE, ETIMEDOUT and what
else passes by itself (ENXIO, too: so MooseFS answers while the servers of a chunk are away):
transient; a read-only or forbidden medium: permanent.  An errno that nobody has thought of is
transient, so that the loop looks again instead of giving up.
"""

from __future__ import annotations

import errno
import os

from weightctl.controller.errors import (
    BusyError,
    CapacityError,
    FencedError,
    IntegrityError,
    InvariantViolationError,
    ReconcileError,
    TerminalError,
    ThrottledError,
    TransientError,
    UnknownOutcomeError,
    WeightctlError,
)
from weightctl.controller.ports import (
    Busy,
    Corrupt,
    Fenced,
    NoCapacity,
    Outcome,
    Permanent,
    Retry,
    Unknown,
)

CAPACITY_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT})
PERMANENT_ERRNOS = frozenset(
    {
        errno.EROFS, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.EFBIG, errno.EINVAL,
        errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENOSYS, errno.EOPNOTSUPP,
    }
)  # fmt: skip


def error_from_os(
    error: OSError, what: str, *, needed_bytes: int = 0, free_bytes: int = 0
) -> ReconcileError:
    """The error of the loop's taxonomy that stands for a failed system call on `what`."""
    why = f"{errno.errorcode.get(error.errno or 0, 'EUNKNOWN')}: {error.strerror or error}"
    if error.errno in CAPACITY_ERRNOS:
        todo = "make room on the medium or raise its quota"
        return CapacityError(needed_bytes, free_bytes, what, why, todo)
    if error.errno in PERMANENT_ERRNOS:
        path = f" of {os.fspath(error.filename)!r}" if isinstance(error.filename, str) else ""
        return TerminalError(what, why, f"correct the mount and permissions{path}")
    return TransientError(what, why, "it is tried again; see the health of the medium")


def outcome_from_error(error: BaseException, *, expected_sha256: bytes = b"") -> Outcome:
    """The outcome of one item that failed with `error`, which is re-raised when it is foreign.

    `expected_sha256`: the member's digest, for an IntegrityError of its source.
    """
    if isinstance(error, OSError):
        error = error_from_os(error, "a file call failed")
    detail = ": ".join(part for part in str(error).splitlines() if part)
    match error:
        case CapacityError():
            return NoCapacity(needed_bytes=error.needed_bytes, free_bytes=error.free_bytes)
        case BusyError():
            return Busy(until_ms=error.until_ms, detail=detail)
        case ThrottledError():
            return Retry(after_s=error.after_s, detail=detail)
        case IntegrityError():
            return Corrupt(expected=expected_sha256, got=b"")
        case FencedError():
            return Fenced(detail=detail)
        case TerminalError():
            return Permanent(detail=detail)
        case UnknownOutcomeError():
            return Unknown(detail=detail)
        case InvariantViolationError():
            raise error
        case TransientError() | ReconcileError():
            return Retry(detail=detail)
        case WeightctlError():
            return Permanent(detail=detail)
    raise error
