"""Acceptance of op-log entries into a state.  Layer: core (pure).

An entry is applied wholly or refused with nothing changed and the expected sequence where it was.
The state after it would pass `snapshot.validate_snapshot`; only what the entry reaches is checked.
Size, checksum, type and decoding come before, in the store's codec.

Tombstones of erased records and leases live as long as the `Replay`; begin again from a snapshot to
drop them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from weightctl.controller.core.identity import U64_MAX
from weightctl.controller.core.oplog import (
    LeaseDelete,
    LeaseUpsert,
    MetadataDelete,
    MetadataUpsert,
    Payload,
    identity_of,
    key_of,
)
from weightctl.controller.core.records import (
    COMPLETED,
    Availability,
    Operation,
    ResidencyOperation,
    RevisionLease,
    RevisionMetadata,
)
from weightctl.controller.core.refusals import conflict, exhausted, invalid, stale
from weightctl.controller.core.validity import (
    PUBLISHED,
    can_advance,
    endings,
    is_transition,
    lease_problem,
    operation_problem,
    record_problem,
)

if TYPE_CHECKING:
    from weightctl.controller.core.identity import Identity
    from weightctl.controller.core.state import WeightState

_STOP = "stop replay here; the log and this state have parted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One decoded op-log entry."""

    sequence: int
    tenant_id: str
    key: str
    payload: Payload


class Replay:
    """Applies entries in sequence to a state; the first sequence of a log is 1."""

    def __init__(self, state: WeightState, *, expected_sequence: int = 1) -> None:
        self.state = state
        self.expected_sequence = expected_sequence
        self._erased_revisions: dict[Identity, int] = {}
        self._erased_leases: dict[int, tuple[Identity, int]] = {}

    def apply(self, entry: Entry) -> bool:
        """Apply the entry: True; an older sequence is skipped: False.

        Raises WeightError when it is refused: a newer sequence, another tenant or key than its
        record's, or a record that does not follow from the state.
        """
        if entry.sequence < self.expected_sequence:
            return False
        what = f"op-log entry {entry.sequence}"
        if entry.sequence > self.expected_sequence:
            raise conflict(what, f"sequence {self.expected_sequence} is expected", _STOP)
        _check_envelope(what, entry)
        match entry.payload:
            case MetadataUpsert():
                self._upsert_metadata(what, entry.payload)
            case MetadataDelete():
                self._delete_metadata(what, entry.payload)
            case LeaseUpsert():
                self._upsert_lease(what, entry.payload.lease)
            case LeaseDelete():
                self._delete_lease(what, entry.payload)
        self.expected_sequence += 1
        return True

    # --- revisions --------------------------------------------------------------------------------

    def _upsert_metadata(self, what: str, payload: MetadataUpsert) -> None:
        record, operation = payload.metadata, payload.operation
        problem = record_problem(record) or _pair_problem(record, operation)
        if problem is not None:
            raise invalid(what, problem, _STOP)
        if record.identity in self._erased_revisions:
            raise conflict(what, f"revision {record.identity} was erased", _STOP)
        current = self.state.metadata.get(record.identity)
        _check_successor(what, current, record)
        if operation is not None:
            _check_operation(what, self.state.operations.get(operation.operation_id), operation)
        if current is not None and not _is_accounted(current, record, operation):
            raise conflict(what, f"it drops the running operation {current.operation_id}", _STOP)
        if record.availability not in PUBLISHED and self.state.leases_of(record.identity):
            raise conflict(what, f"revision {record.identity} still has leases", _STOP)
        if self.state.groups.get(record.manifest.payload_group_id, record.identity) != (
            record.identity
        ):
            raise conflict(what, "the payload group belongs to another revision", _STOP)
        self.state.put_metadata(record)
        if operation is not None:
            self.state.put_operation(operation)

    def _delete_metadata(self, what: str, payload: MetadataDelete) -> None:
        identity, generation = payload.identity, payload.metadata_generation
        current = self.state.metadata.get(identity)
        if current is None:
            if self._erased_revisions.get(identity) != generation:
                raise conflict(what, f"revision {identity} is not known", _STOP)
            return
        if current.metadata_generation != generation:
            raise stale(current, generation)
        if self.state.leases_of(identity):
            raise conflict(what, f"revision {identity} still has leases", _STOP)
        if any(operation.identity == identity for operation in self.state.operations.values()):
            raise conflict(what, f"revision {identity} still has operation records", _STOP)
        self.state.erase_metadata(identity)
        self._erased_revisions[identity] = generation

    # --- leases -----------------------------------------------------------------------------------

    def _upsert_lease(self, what: str, lease: RevisionLease) -> None:
        record = self.state.metadata.get(lease.identity)
        problem = lease_problem(lease, record)
        if problem is not None:
            raise invalid(what, problem, _STOP)
        if lease.lease_id in self._erased_leases:
            raise conflict(what, f"lease {lease.lease_id} was erased", _STOP)
        current = self.state.leases.get(lease.lease_id)
        if current is not None:
            _check_renewal(what, current, lease)
        elif lease.lease_id >= U64_MAX:
            raise exhausted(what, "the last lease id is never given out")
        elif record is not None and record.metadata_generation != (
            lease.fenced_metadata_generation
        ):
            raise stale(record, lease.fenced_metadata_generation)
        self.state.put_lease(lease)

    def _delete_lease(self, what: str, payload: LeaseDelete) -> None:
        named = payload.identity, payload.fenced_metadata_generation
        lease = self.state.leases.get(payload.lease_id)
        if lease is None:
            known = self._erased_leases.get(payload.lease_id)
        else:
            known = lease.identity, lease.fenced_metadata_generation
        if known != named:
            raise conflict(what, f"lease {payload.lease_id} is not the one that it names", _STOP)
        self.state.erase_lease(payload.lease_id)
        self._erased_leases[payload.lease_id] = named


def _check_envelope(what: str, entry: Entry) -> None:
    identity = identity_of(entry.payload)
    problem = identity.problem()
    if problem is not None:
        raise invalid(what, problem, _STOP)
    if entry.tenant_id != identity.tenant_id:
        raise invalid(what, "its tenant is not its record's", _STOP)
    if entry.key != key_of(entry.payload):
        raise invalid(what, "its key is not its record's", _STOP)


def _pair_problem(record: RevisionMetadata, operation: ResidencyOperation | None) -> str | None:
    """A record and its operation fit together: running with the record, or completed by it."""
    if operation is None:
        running = record.operation != Operation.NONE
        return "the record of its running operation is missing" if running else None
    if operation.identity != record.identity:
        return "its operation belongs to another revision"
    if record.operation != Operation.NONE:
        if operation.message == COMPLETED:
            return "its running operation is completed"
    elif operation.message != COMPLETED:
        return "its revision is idle and its operation is not completed"
    elif record.residency not in endings(operation.operation, operation.target_residency):
        return "its operation is completed and its revision is not at the target"
    return operation_problem(operation, record)


def _check_successor(what: str, current: RevisionMetadata | None, record: RevisionMetadata) -> None:
    if current is None:
        if record.metadata_generation != 1:
            raise conflict(what, "a revision that is not known starts at generation 1", _STOP)
        return
    if record == current:
        return
    if not can_advance(current.metadata_generation):
        raise exhausted(what, f"revision {record.identity} is at its last generation")
    if record.metadata_generation != current.metadata_generation + 1:
        raise stale(current, record.metadata_generation - 1)
    if record.updated_at_ms < current.updated_at_ms:
        raise conflict(what, "updated_at_ms goes back", _STOP)
    if record.created_at_ms != current.created_at_ms:
        raise conflict(what, "created_at_ms changes", _STOP)
    if not _keeps_reference(current, record):
        raise conflict(what, "the immutable manifest reference changes", _STOP)
    if record.availability != current.availability and not is_transition(
        current.availability, record.availability
    ):
        raise conflict(
            what, f"{current.availability.name} never becomes {record.availability.name}", _STOP
        )


def _keeps_reference(current: RevisionMetadata, record: RevisionMetadata) -> bool:
    old, new = current.manifest, record.manifest
    if current.availability != Availability.IMPORTING:
        return old == new
    return (old.payload_group_id, old.payload_count, old.logical_bytes) == (
        new.payload_group_id,
        new.payload_count,
        new.logical_bytes,
    )


def _is_accounted(
    current: RevisionMetadata, record: RevisionMetadata, operation: ResidencyOperation | None
) -> bool:
    """Whether the operation that runs now still runs after the entry, or is completed by it."""
    if current.operation == Operation.NONE or record.operation_id == current.operation_id:
        return True
    return operation is not None and operation.operation_id == current.operation_id


def _check_operation(
    what: str, known: ResidencyOperation | None, operation: ResidencyOperation
) -> None:
    """A known operation never changes what it is and never goes back; a completed one is final."""
    if operation.operation_id >= U64_MAX:
        raise exhausted(what, "the last operation id is never given out")
    if known is None or known == operation:
        return
    if known.message == COMPLETED:
        raise conflict(what, f"operation {known.operation_id} is completed and changes", _STOP)
    if _nature(known) != _nature(operation):
        raise conflict(what, f"operation {known.operation_id} becomes another one", _STOP)
    if (
        operation.processed_members < known.processed_members
        or operation.total_members < known.total_members
        or operation.updated_at_ms < known.updated_at_ms
        or operation.fenced_metadata_generation < known.fenced_metadata_generation
    ):
        raise conflict(what, f"operation {known.operation_id} goes back", _STOP)


def _nature(operation: ResidencyOperation) -> tuple[object, ...]:
    return (
        operation.identity,
        operation.operation,
        operation.target_residency,
        operation.started_at_ms,
    )


def _check_renewal(what: str, current: RevisionLease, lease: RevisionLease) -> None:
    if (current.identity, current.holder, current.fenced_metadata_generation) != (
        lease.identity,
        lease.holder,
        lease.fenced_metadata_generation,
    ):
        raise conflict(what, f"lease {lease.lease_id} becomes another one", _STOP)
    if lease.expires_at_ms < current.expires_at_ms:
        raise conflict(what, f"lease {lease.lease_id} shrinks", _STOP)
