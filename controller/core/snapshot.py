"""Export, the one validation, and restore of the whole weight state.  Layer: core (pure).

Every way into a state passes `validate_snapshot`: restore, standby bootstrap and promotion; replay
keeps its rules entry by entry.  Restore makes a new state, so a refused snapshot leaves the old one
as it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weightctl.controller.core.identity import Identity, is_u64
from weightctl.controller.core.records import (
    COMPLETED,
    SCHEMA_VERSION,
    ManifestReference,
    Operation,
    ResidencyOperation,
    RevisionLease,
    RevisionMetadata,
    Snapshot,
)
from weightctl.controller.core.refusals import invalid
from weightctl.controller.core.state import WeightState
from weightctl.controller.core.validity import lease_problem, operation_problem, record_problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weightctl.controller.errors import WeightError

Records = dict[Identity, RevisionMetadata]


def export_snapshot(state: WeightState) -> Snapshot:
    """The whole state: records in identity order, leases and operations by ascending id."""
    identities = sorted(state.metadata, key=lambda identity: identity.sort_key())
    return Snapshot(
        metadata=tuple(state.metadata[identity] for identity in identities),
        leases=tuple(state.leases[lease_id] for lease_id in sorted(state.leases)),
        operations=tuple(state.operations[number] for number in sorted(state.operations)),
        next_lease_id=state.next_lease_id,
        next_operation_id=state.next_operation_id,
    )


def validate_snapshot(snapshot: Snapshot) -> None:
    """Raise INVALID_ARGUMENT with the first broken rule, in the contract's order."""
    _validated(snapshot)


def restore_snapshot(snapshot: Snapshot) -> WeightState:
    """A new state that holds the snapshot.  Raises INVALID_ARGUMENT."""
    _validated(snapshot)
    state = WeightState()
    for record in snapshot.metadata:
        state.put_metadata(record)
    for lease in snapshot.leases:
        state.put_lease(lease)
    for operation in snapshot.operations:
        state.put_operation(operation)
    state.next_lease_id = snapshot.next_lease_id
    state.next_operation_id = snapshot.next_operation_id
    return state


def _validated(snapshot: Snapshot) -> None:
    version = snapshot.schema_version
    if version != SCHEMA_VERSION:
        raise _refused(f"schema_version {version} is not {SCHEMA_VERSION}")
    for name in ("next_lease_id", "next_operation_id"):
        counter = getattr(snapshot, name)
        if not is_u64(counter) or counter == 0:
            raise _refused(f"{name} must be an integer from 1 to 2^64-1")
    _check_types(snapshot)
    records = _unique_records(snapshot.metadata)
    _check_leases(snapshot.leases, records, snapshot.next_lease_id)
    operations = _unique_operations(snapshot.operations, records)
    if max(operations, default=0) >= snapshot.next_operation_id:
        raise _refused("next_operation_id is not past every operation")
    for record in snapshot.metadata:
        if record.operation != Operation.NONE:
            _check_running(record, operations)


def _check_types(snapshot: Snapshot) -> None:
    """Refuse what is no record, or a record of nobody, before anything of it is looked at."""
    kinds: dict[str, type[RevisionMetadata | RevisionLease | ResidencyOperation]] = {
        "metadata": RevisionMetadata,
        "leases": RevisionLease,
        "operations": ResidencyOperation,
    }
    for name, kind in kinds.items():
        records = getattr(snapshot, name)
        if not isinstance(records, tuple | list):
            raise _refused(f"{name} is no sequence of records")
        for record in records:
            if not isinstance(record, kind):
                raise _refused(f"{name} holds {record!r:.200}, which is no {kind.__name__}")
            identity: object = record.identity
            if not isinstance(identity, Identity) or not identity.typed:
                raise _refused(f"{name}: {identity!r:.200} is no identity")
    for revision in snapshot.metadata:
        manifest: object = revision.manifest
        if not isinstance(manifest, ManifestReference):
            raise _refused(f"revision {revision.identity}: {manifest!r:.200} is no reference")


def _unique_records(metadata: tuple[RevisionMetadata, ...]) -> Records:
    records: Records = {}
    groups: set[str] = set()
    for record in metadata:
        problem = record_problem(record)
        if problem is None and record.identity in records:
            problem = "it occurs twice"
        if problem is None and record.manifest.payload_group_id in groups:
            problem = "its payload group belongs to another revision"
        if problem is not None:
            raise _refused(f"revision {record.identity}: {problem}")
        records[record.identity] = record
        groups.add(record.manifest.payload_group_id)
    return records


def _check_leases(leases: tuple[RevisionLease, ...], records: Records, next_id: int) -> None:
    seen: set[int] = set()
    for lease in leases:
        problem = lease_problem(lease, records.get(lease.identity))
        if problem is None and lease.lease_id in seen:
            problem = "it occurs twice"
        if problem is not None:
            raise _refused(f"lease {lease.lease_id}: {problem}")
        seen.add(lease.lease_id)
    if max(seen, default=0) >= next_id:
        raise _refused("next_lease_id is not past every lease")


def _unique_operations(
    operations: tuple[ResidencyOperation, ...], records: Records
) -> dict[int, ResidencyOperation]:
    unique: dict[int, ResidencyOperation] = {}
    for operation in operations:
        problem = operation_problem(operation, records.get(operation.identity))
        if problem is None and operation.operation_id in unique:
            problem = "it occurs twice"
        if problem is not None:
            raise _refused(f"operation {operation.operation_id}: {problem}")
        unique[operation.operation_id] = operation
    return unique


def _check_running(record: RevisionMetadata, operations: Mapping[int, ResidencyOperation]) -> None:
    operation = operations.get(record.operation_id)
    if operation is None or operation.identity != record.identity:
        raise _refused(f"revision {record.identity}: its running operation has no record")
    if operation.message == COMPLETED:
        raise _refused(f"revision {record.identity}: its running operation is completed")


def _refused(why: str) -> WeightError:
    return invalid(
        "the snapshot of the weight state is refused",
        why,
        "none of it was taken over; restore an older snapshot",
    )
