"""The refusals of the state machine, worded once.  Layer: core (pure).

Each builder returns a `WeightError` that says what was refused with its key, why, and what to do
next.  Builders return and callers raise, so that the flow of a rule table stays visible there.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from weightctl.controller.core.records import Availability
from weightctl.controller.errors import ErrorCode, WeightError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weightctl.controller.core.identity import Identity
    from weightctl.controller.core.records import RevisionLease, RevisionMetadata

_OBSERVE = "read the record again and decide anew with its metadata_generation"
_ANEW = "import the weights under a new weight generation"
_UNAVAILABLE = {
    Availability.IMPORTING: (
        "it is IMPORTING: nothing of it can be used before its import is finished",
        "wait until it is READY, or run the same import again: it resumes",
    ),
    Availability.DEGRADED: (
        "it is DEGRADED: not every member is readable",
        "`weightctl repair` restores what some tier still holds; `weightctl explain` says more",
    ),
    Availability.DELETING: (
        "it is DELETING: it goes away, and its name is never used again",
        _ANEW,
    ),
    Availability.DELETED: ("it is DELETED, and its name is never used again", _ANEW),
}
_HOLDERS_SHOWN = 3
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def invalid(what: str, why: str, todo: str = "correct that argument") -> WeightError:
    """INVALID_ARGUMENT."""
    return WeightError(ErrorCode.INVALID_ARGUMENT, what, why, todo)


def not_found(what: str, why: str = "the store holds no such record") -> WeightError:
    """NOT_FOUND."""
    return WeightError(ErrorCode.NOT_FOUND, what, why, "check the name; list what is there")


def conflict(what: str, why: str, todo: str = _OBSERVE) -> WeightError:
    """CONFLICT."""
    return WeightError(ErrorCode.CONFLICT, what, why, todo)


def used_up(record: RevisionMetadata) -> WeightError:
    """CONFLICT for a name whose revision is gone, or going."""
    return conflict(
        f"the name {record.identity} is used up",
        f"its revision is {record.availability.name}: no name is given twice",
        _ANEW,
    )


def stale(record: RevisionMetadata, expected: int) -> WeightError:
    """STALE_GENERATION for a caller that expected another generation."""
    return WeightError(
        ErrorCode.STALE_GENERATION,
        f"revision {record.identity} has moved on",
        f"expected metadata_generation {expected}, it is {record.metadata_generation}",
        _OBSERVE,
    )


def outdated(what: str) -> WeightError:
    """STALE_GENERATION for a mutation whose previous record is no longer the current one."""
    return WeightError(
        ErrorCode.STALE_GENERATION, what, "it changed after the mutation was prepared", _OBSERVE
    )


def not_ready(identity: Identity, why: str, todo: str = "wait until it is READY") -> WeightError:
    """NOT_READY."""
    return WeightError(ErrorCode.NOT_READY, f"revision {identity} is not ready", why, todo)


def unavailable(record: RevisionMetadata) -> WeightError:
    """NOT_READY for what needs a readable revision; says what its state means and allows."""
    why, todo = _UNAVAILABLE[record.availability]
    return not_ready(record.identity, why, todo)


def busy_operation(record: RevisionMetadata) -> WeightError:
    """BUSY because the revision runs an operation."""
    return WeightError(
        ErrorCode.BUSY,
        f"revision {record.identity} is busy",
        f"operation {record.operation_id} ({record.operation.name}) is running",
        "wait until it is finished",
    )


def busy_lease(identity: Identity, leases: Iterable[RevisionLease]) -> WeightError:
    """BUSY because of live leases; names who holds them, the last to die first."""
    held = sorted(leases, key=lambda lease: -lease.expires_at_ms)
    named = [
        f"lease {lease.lease_id} of {lease.holder!r} until {instant(lease.expires_at_ms)}"
        for lease in held[:_HOLDERS_SHOWN]
    ]
    more = len(held) - len(named)
    return WeightError(
        ErrorCode.BUSY,
        f"revision {identity} is busy",
        f"held by {', '.join(named)}{f' and {more} more' if more else ''}",
        "wait until then, or let the holder release it: `weightctl lease release`",
    )


def busy(identity: Identity, why: str, todo: str) -> WeightError:
    """BUSY for another cause."""
    return WeightError(ErrorCode.BUSY, f"revision {identity} is busy", why, todo)


def exhausted(what: str, why: str) -> WeightError:
    """GENERATION_EXHAUSTED."""
    return WeightError(
        ErrorCode.GENERATION_EXHAUSTED, what, why, "none; import the weights as a new revision"
    )


def lease_expired(lease: RevisionLease, now_ms: int) -> WeightError:
    """LEASE_EXPIRED."""
    return WeightError(
        ErrorCode.LEASE_EXPIRED,
        f"lease {lease.lease_id} on revision {lease.identity} has expired",
        f"it ended at {instant(lease.expires_at_ms)}, now is {instant(now_ms)}",
        "read the revision again and acquire a new lease before any further transfer",
    )


def instant(wall_ms: int) -> str:
    """A wall time for people, with the number that records hold."""
    try:
        moment = _EPOCH + timedelta(milliseconds=wall_ms)
    except OverflowError:
        return f"{wall_ms} ms"
    return f"{moment:%Y-%m-%dT%H:%M:%SZ} ({wall_ms} ms)"
