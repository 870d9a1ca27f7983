"""What makes a record valid, and the arithmetic of generations.  Layer: core (pure).

Owns every rule of a single record and the transitions of availability, one place for Publish,
replay and restore alike.  A `*_problem` function returns the first broken rule as text for people,
or None; the caller decides the error code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weightctl.controller.core.identity import (
    U64_MAX,
    derived_names,
    encode_text,
    is_u64,
    is_valid_component,
    is_valid_sha256,
)
from weightctl.controller.core.records import COMPLETED, Availability, Operation, Residency

if TYPE_CHECKING:
    from weightctl.controller.core.records import (
        ManifestReference,
        ResidencyOperation,
        RevisionLease,
        RevisionMetadata,
    )

GENERATION_MAX = U64_MAX - 1
"""The last generation that a record can reach."""

PUBLISHED = frozenset({Availability.READY, Availability.DEGRADED})
TARGETS = frozenset({Residency.HOT, Residency.COLD})

TRANSITIONS = frozenset(
    {
        (Availability.IMPORTING, Availability.READY),
        (Availability.IMPORTING, Availability.DELETING),
        (Availability.READY, Availability.DEGRADED),
        (Availability.READY, Availability.DELETING),
        (Availability.DEGRADED, Availability.READY),
        (Availability.DEGRADED, Availability.DELETING),
        (Availability.DELETING, Availability.DELETED),
    }
)


def is_transition(before: Availability, after: Availability) -> bool:
    """Whether the availability may change so; staying is not a transition."""
    return (before, after) in TRANSITIONS


def can_advance(generation: int) -> bool:
    """Whether a record of this generation may change once more."""
    return 0 < generation < GENERATION_MAX


def is_retry(current: int, expected: int) -> bool:
    """Whether a caller that expected `expected` may be the author of `current`."""
    return current in (expected, expected + 1)


def is_expected_generation(value: int) -> bool:
    """Whether `value` can be an expected generation: an unsigned 64-bit integer, not 0."""
    return is_u64(value) and value != 0


def is_kind(kind: type, value: object) -> bool:
    """Whether `value` is a member of an enum, and no bare number that merely equals one."""
    return type(value) is kind


def reference_problem(reference: ManifestReference) -> str | None:
    """Full validity of a committed manifest reference."""
    if not is_valid_component(reference.manifest_key):
        return "manifest_key must be 1 to 1024 bytes without control bytes"
    if not is_valid_sha256(reference.manifest_sha256):
        return "manifest_sha256 must be 64 lower-case hexadecimal characters"
    if not is_valid_component(reference.payload_group_id):
        return "payload_group_id must be 1 to 1024 bytes without control bytes"
    if not is_valid_sha256(reference.payload_keys_sha256):
        return "payload_keys_sha256 must be 64 lower-case hexadecimal characters"
    if not is_u64(reference.payload_count) or reference.payload_count == 0:
        return "payload_count must be an integer from 1 to 2^64-1"
    if not is_u64(reference.logical_bytes) or reference.logical_bytes == 0:
        return "logical_bytes must be an integer from 1 to 2^64-1"
    return None


def record_problem(record: RevisionMetadata) -> str | None:
    """The first rule that the record breaks, in the order below, or None."""
    return (
        _enum_problem(record)
        or record.identity.problem()
        or _names_problem(record)
        or _number_problem(record)
        or _state_problem(record)
    )


def successor_problem(record: RevisionMetadata, previous: RevisionMetadata) -> str | None:
    """As `record_problem`, for the successor of a record already known to be valid.

    The derived names of an unchanged identity and reference were checked with the first record;
    deriving them again is most of the cost.
    """
    if record.identity is not previous.identity or record.manifest is not previous.manifest:
        return record_problem(record)
    return (
        _enum_problem(record)
        or _number_problem(record)
        or _state_problem(record, checked=previous.availability in PUBLISHED)
    )


def _enum_problem(record: RevisionMetadata) -> str | None:
    if not is_kind(Availability, record.availability):
        return f"availability {record.availability!r} is not known"
    if not is_kind(Residency, record.residency):
        return f"residency {record.residency!r} is not known"
    if not is_kind(Operation, record.operation):
        return f"operation {record.operation!r} is not known"
    return None


def _names_problem(record: RevisionMetadata) -> str | None:
    """Rules 3 and 4: the group id and a set manifest key are the derived ones."""
    group_id, key = derived_names(record.identity)
    if record.manifest.payload_group_id != group_id:
        return "payload_group_id is not the one derived from the identity"
    if record.manifest.manifest_key not in ("", key):
        return "manifest_key is not the one derived from the identity"
    return None


def _number_problem(record: RevisionMetadata) -> str | None:
    if not is_u64(record.metadata_generation) or not 0 < record.metadata_generation < U64_MAX:
        return "metadata_generation must be an integer from 1 to 2^64-2"
    if not is_u64(record.created_at_ms) or not is_u64(record.updated_at_ms):
        return "created_at_ms and updated_at_ms must be unsigned 64-bit integers"
    if record.updated_at_ms < record.created_at_ms:
        return "updated_at_ms is earlier than created_at_ms"
    if not is_u64(record.operation_id):
        return "operation_id must be an unsigned 64-bit integer"
    if (record.operation == Operation.NONE) != (record.operation_id == 0):
        return "an operation has an id other than 0, and only an operation has one"
    return None


def _state_problem(record: RevisionMetadata, *, checked: bool = False) -> str | None:
    """Rules 8 to 13; `checked` when the same reference was published before."""
    availability, residency = record.availability, record.residency
    if availability in PUBLISHED:
        problem = None if checked else reference_problem(record.manifest)
        return problem or placement_problem(availability, residency)
    if record.operation != Operation.NONE:
        return "only a READY or DEGRADED revision runs an operation"
    if availability == Availability.IMPORTING and residency != Residency.UNKNOWN:
        return "an IMPORTING revision has residency UNKNOWN"
    if availability == Availability.DELETED and residency != Residency.ABSENT:
        return "a DELETED revision has residency ABSENT"
    return _draft_problem(record.manifest)


def placement_problem(availability: Availability, residency: Residency) -> str | None:
    """Rules 11 and 12, and that the residency is known at all, for READY or DEGRADED."""
    if not is_kind(Residency, residency):
        return f"residency {residency!r} is not known"
    if residency == Residency.UNKNOWN:
        return f"a {availability.name} revision has a known residency"
    if availability == Availability.READY and residency == Residency.ABSENT:
        return "a READY revision is not ABSENT"
    return None


def _draft_problem(reference: ManifestReference) -> str | None:
    """A reference that need not be whole must still fit the types of its fields."""
    if not is_u64(reference.payload_count) or not is_u64(reference.logical_bytes):
        return "payload_count and logical_bytes must be unsigned 64-bit integers"
    if encode_text(reference.manifest_sha256) is None:
        return "manifest_sha256 is not text"
    if encode_text(reference.payload_keys_sha256) is None:
        return "payload_keys_sha256 is not text"
    return None


def lease_problem(lease: RevisionLease, record: RevisionMetadata | None) -> str | None:
    """The first rule that a stored lease breaks, or None."""
    fence = lease.fenced_metadata_generation
    if not is_u64(lease.lease_id) or lease.lease_id == 0:
        return "lease_id must be an integer from 1 to 2^64-1"
    if lease.identity.problem() is not None:
        return lease.identity.problem()
    if not is_valid_component(lease.holder):
        return "holder must be 1 to 1024 bytes without control bytes"
    if not is_u64(lease.expires_at_ms) or lease.expires_at_ms == 0:
        return "expires_at_ms must be an integer from 1 to 2^64-1"
    if not is_u64(fence) or fence == 0:
        return "fenced_metadata_generation must be an integer from 1 to 2^64-1"
    if record is None:
        return "it belongs to no revision"
    if fence > record.metadata_generation:
        return "its fence is ahead of the revision's metadata_generation"
    if record.availability not in PUBLISHED:
        return f"its revision is {record.availability.name}, only a published one has leases"
    return None


def operation_problem(operation: ResidencyOperation, record: RevisionMetadata | None) -> str | None:
    """The first rule that a stored operation breaks, or None."""
    return _operation_shape_problem(operation) or _operation_link_problem(operation, record)


_TARGET_OF = {Operation.EVICTING: Residency.COLD, Operation.REHYDRATING: Residency.HOT}


_REPAIRED = frozenset({Residency.HOT, Residency.COLD, Residency.MIXED})


def endings(kind: Operation, target: Residency) -> frozenset[Residency]:
    """The residencies at which an operation may end.

    A repair only adds replicas, so one towards COLD, which asks for cold copies, ends wherever
    else the members lie; every other operation ends at its target.
    """
    if kind == Operation.REPAIRING and target == Residency.COLD:
        return _REPAIRED
    return frozenset({target})


def _operation_shape_problem(operation: ResidencyOperation) -> str | None:
    kind, target = operation.operation, operation.target_residency
    if not is_u64(operation.operation_id) or operation.operation_id == 0:
        return "operation_id must be an integer from 1 to 2^64-1"
    if operation.identity.problem() is not None:
        return operation.identity.problem()
    if not is_kind(Operation, kind) or kind == Operation.NONE:
        return f"operation {kind!r} is not known"
    if not is_kind(Residency, target) or target not in TARGETS:
        return "target_residency must be HOT or COLD"
    if _TARGET_OF.get(kind, target) != target:
        return f"{kind.name} does not lead to {target.name}"
    return _operation_progress_problem(operation)


def _operation_progress_problem(operation: ResidencyOperation) -> str | None:
    fence = operation.fenced_metadata_generation
    if not is_u64(fence) or fence == 0:
        return "fenced_metadata_generation must be an integer from 1 to 2^64-1"
    if not is_u64(operation.started_at_ms) or not is_u64(operation.updated_at_ms):
        return "started_at_ms and updated_at_ms must be unsigned 64-bit integers"
    if operation.updated_at_ms < operation.started_at_ms:
        return "updated_at_ms is earlier than started_at_ms"
    if not is_u64(operation.processed_members) or not is_u64(operation.total_members):
        return "processed_members and total_members must be unsigned 64-bit integers"
    if operation.processed_members > operation.total_members:
        return "processed_members is more than total_members"
    if operation.cursor and not is_valid_component(operation.cursor):
        return "cursor must be empty or 1 to 1024 bytes without control bytes"
    if operation.message and not is_valid_component(operation.message):
        return "message must be empty or 1 to 1024 bytes without control bytes"
    return None


def _operation_link_problem(
    operation: ResidencyOperation, record: RevisionMetadata | None
) -> str | None:
    fence = operation.fenced_metadata_generation
    if record is None:
        return "it belongs to no revision"
    if operation.message != COMPLETED:
        if (record.operation, record.operation_id) != (
            operation.operation,
            operation.operation_id,
        ):
            return "it is not completed and its revision does not run it"
        if record.metadata_generation != fence:
            return "its fence is not the revision's metadata_generation"
        return None
    if fence >= record.metadata_generation:
        return "it is completed, but its fence is not behind the revision's metadata_generation"
    if record.metadata_generation == fence + 1 and (
        record.operation != Operation.NONE
        or record.residency not in endings(operation.operation, operation.target_residency)
    ):
        return "it completed last, but its revision is not idle at its target"
    return None
