"""What each error code of Mooncake means for the loop: the one table.  Layer: a tier; pure.

Invariant: a code that nobody has thought of is Unknown: the loop looks before it tries again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from weightctl.controller.ports import Busy, Conflict, NoOp, Outcome, Permanent, Retry, Unknown


class Meaning(Enum):
    """What the loop does about a code."""

    ABSENT = "the object is not there: a removal is done, anything else looks again"
    EXISTS = "somebody has put it: look, and compare the content"
    LEASED = "a reader holds it: wait for the lease to run out"
    WRITING = "a copy is being made: wait"
    FULL = "no room: plan again"
    PASSING = "nothing was changed: try again with backoff"
    UNKNOWN = "it may have happened: look before trying again"
    REFUSED = "will not pass by itself: park with a condition"


@dataclass(frozen=True, slots=True)
class Code:
    """One code: Mooncake's name for it, and what it means."""

    name: str
    meaning: Meaning


CODES = {
    -1: Code("INTERNAL_ERROR", Meaning.UNKNOWN),
    -10: Code("BUFFER_OVERFLOW", Meaning.PASSING),
    -101: Code("SEGMENT_NOT_FOUND", Meaning.PASSING),
    -102: Code("SEGMENT_ALREADY_EXISTS", Meaning.PASSING),
    -103: Code("CLIENT_NOT_FOUND", Meaning.PASSING),
    -200: Code("NO_AVAILABLE_HANDLE", Meaning.FULL),
    -400: Code("INVALID_KEY", Meaning.REFUSED),
    -500: Code("WRITE_FAIL", Meaning.PASSING),
    -600: Code("INVALID_PARAMS", Meaning.REFUSED),
    -601: Code("ILLEGAL_CLIENT", Meaning.REFUSED),
    -700: Code("INVALID_WRITE", Meaning.PASSING),
    -701: Code("INVALID_READ", Meaning.PASSING),
    -702: Code("INVALID_REPLICA", Meaning.PASSING),
    -703: Code("REPLICA_IS_NOT_READY", Meaning.WRITING),
    -704: Code("OBJECT_NOT_FOUND", Meaning.ABSENT),
    -705: Code("OBJECT_ALREADY_EXISTS", Meaning.EXISTS),
    -706: Code("OBJECT_HAS_LEASE", Meaning.LEASED),
    -707: Code("LEASE_EXPIRED", Meaning.PASSING),
    -708: Code("OBJECT_HAS_REPLICATION_TASK", Meaning.WRITING),
    -709: Code("OBJECT_NO_REPLICATION_TASK", Meaning.UNKNOWN),
    -710: Code("REPLICA_NOT_FOUND", Meaning.PASSING),
    -711: Code("REPLICA_ALREADY_EXISTS", Meaning.EXISTS),
    -712: Code("REPLICA_IS_GONE", Meaning.PASSING),
    -713: Code("REPLICA_NOT_IN_LOCAL_MEMORY", Meaning.PASSING),
    -714: Code("OBJECT_REPLICA_BUSY", Meaning.WRITING),
    -800: Code("TRANSFER_FAIL", Meaning.PASSING),
    -801: Code("CHECKSUM_MISMATCH", Meaning.PASSING),
    -900: Code("RPC_FAIL", Meaning.UNKNOWN),
    -901: Code("RPC_TIMEOUT", Meaning.UNKNOWN),
    -1010: Code("UNAVAILABLE_IN_CURRENT_STATUS", Meaning.PASSING),
    -1011: Code("UNAVAILABLE_IN_CURRENT_MODE", Meaning.PASSING),
    -1012: Code("NOT_SUPPORTED", Meaning.REFUSED),
    -1100: Code("FILE_NOT_FOUND", Meaning.PASSING),
    -1101: Code("FILE_OPEN_FAIL", Meaning.PASSING),
    -1102: Code("FILE_READ_FAIL", Meaning.PASSING),
    -1103: Code("FILE_WRITE_FAIL", Meaning.PASSING),
    -1300: Code("UNABLE_OFFLOAD", Meaning.REFUSED),
    -1301: Code("UNABLE_OFFLOADING", Meaning.PASSING),
    -1400: Code("TASK_NOT_FOUND", Meaning.UNKNOWN),
    -1401: Code("TASK_PENDING_LIMIT_EXCEEDED", Meaning.PASSING),
    -1601: Code("DFS_SERVICE_UNAVAILABLE", Meaning.REFUSED),
    -1700: Code("TENANT_QUOTA_EXCEEDED", Meaning.FULL),
}
"""Every code that a call of the adapter may give."""

_STRANGE = Code("not known to weightctl", Meaning.UNKNOWN)


def meaning_of(code: int) -> Meaning:
    """What a negative code means; PASSING for 0, which is no code."""
    if code >= 0:
        return Meaning.PASSING
    return CODES.get(code, _STRANGE).meaning


def told(code: int) -> str:
    """A code for people."""
    return f"Mooncake answered {code} {CODES.get(code, _STRANGE).name}"


def outcome_of_code(code: int, *, busy_until_ms: int | None = None) -> Outcome:
    """The outcome of one item whose call gave `code` (negative).

    FULL is Retry here: who knows the numbers makes a NoCapacity of it.
    """
    detail = told(code)
    match meaning_of(code):
        case Meaning.ABSENT:
            return NoOp()
        case Meaning.EXISTS:
            return Conflict(detail=detail)
        case Meaning.LEASED:
            return Busy(until_ms=busy_until_ms, detail=f"{detail}: a reader holds a lease on it")
        case Meaning.WRITING:
            return Busy(detail=detail)
        case Meaning.REFUSED:
            return Permanent(detail=f"{detail}; see adapters/mooncake/README.md")
        case Meaning.UNKNOWN:
            return Unknown(detail=detail)
        case _:
            return Retry(detail=detail)
