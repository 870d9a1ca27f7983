"""What is durable, read back from the log of a simulated disk, and the rules that it must keep.

Invariants 4, 6 and 7: a published reference never changes, a tombstone stays, generations and ids
only grow, stored progress only grows. Written without the product's rules, only with its records.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from weightctl.controller.core.identity import Identity
from weightctl.controller.core.oplog import LeaseDelete, LeaseUpsert, MetadataUpsert
from weightctl.controller.core.records import (
    COMPLETED,
    Availability,
    Operation,
    ResidencyOperation,
    RevisionLease,
    RevisionMetadata,
)
from weightctl.controller.store.loading import StoredEntry

Violate = Callable[[str, str], None]
PUBLISHED = (Availability.READY, Availability.DEGRADED)
_ORDER = {
    Availability.IMPORTING: {Availability.READY, Availability.DELETING},
    Availability.READY: {Availability.DEGRADED, Availability.DELETING},
    Availability.DEGRADED: {Availability.READY, Availability.DELETING},
    Availability.DELETING: {Availability.DELETED},
    Availability.DELETED: set(),
}


@dataclass(slots=True)
class Ledger:
    """The durable records, by the entries of the log."""

    violate: Violate
    records: dict[Identity, RevisionMetadata] = field(default_factory=dict)
    leases: dict[int, RevisionLease] = field(default_factory=dict)
    operations: dict[int, ResidencyOperation] = field(default_factory=dict)
    released: set[int] = field(default_factory=set)
    """Leases that their readers gave back, or tried to."""
    last_lease_id: int = 0
    last_operation_id: int = 0
    records_before: dict[Identity, RevisionMetadata | None] = field(default_factory=dict)
    leases_before: dict[int, RevisionLease | None] = field(default_factory=dict)
    """What the last transaction has replaced: while it is published, some of it is still shown."""

    def begin(self) -> None:
        """Another transaction follows."""
        self.records_before.clear()
        self.leases_before.clear()

    def may_show(self, identity: Identity, record: RevisionMetadata | None) -> bool:
        """Whether a process may show this record now."""
        durable = self.records.get(identity)
        return record in (durable, self.records_before.get(identity, durable))

    def may_show_lease(self, lease: RevisionLease) -> bool:
        """Whether a process may show this lease now."""
        known = (self.leases.get(lease.lease_id), self.leases_before.get(lease.lease_id))
        return lease in known

    def live_leases(self, identity: Identity, wall_ms: int) -> list[RevisionLease]:
        return [
            lease
            for lease in self.leases.values()
            if lease.identity == identity and lease.expires_at_ms > wall_ms
        ]

    def absorb(
        self, entry: StoredEntry, wall_ms: int
    ) -> tuple[RevisionMetadata | None, MetadataUpsert | None]:
        """Take an entry in and judge it; gives the record before and the entry of a record.

        wall_ms: the latest time that the writer's wall clock has shown.
        """
        match entry.payload:
            case MetadataUpsert() as upsert:
                before = self.records.get(upsert.metadata.identity)
                self._record(before, upsert.metadata)
                if upsert.operation is not None:
                    self._operation(upsert.operation)
                return before, upsert
            case LeaseUpsert(lease=lease):
                self._lease(lease)
            case LeaseDelete(lease_id=lease_id):
                erased = self.leases.pop(lease_id, None)
                self.leases_before.setdefault(lease_id, erased)
                alive = erased is not None and erased.expires_at_ms > wall_ms
                if alive and lease_id not in self.released:
                    self.violate("lease", f"{erased} was erased alive")
            case _:
                self.violate("tombstone", f"a record was erased: {entry}")
        return None, None

    def _record(self, before: RevisionMetadata | None, after: RevisionMetadata) -> None:
        self.records[after.identity] = after
        self.records_before.setdefault(after.identity, before)
        if before is None:
            if after.availability is not Availability.IMPORTING or after.metadata_generation != 1:
                self.violate("generation", f"a revision begins as {after}")
            return
        name = str(before.identity)
        if before.availability is Availability.DELETED:
            self.violate("tombstone", f"{name} was changed after it was deleted: {after}")
        moved = after.availability is not before.availability
        if moved and after.availability not in _ORDER[before.availability]:
            self.violate("transition", f"{name}: {before.availability!r} to {after.availability!r}")
        self._held(before, after)
        step = after.metadata_generation - before.metadata_generation
        same = (before.availability, before.residency, before.operation_id) == (
            after.availability,
            after.residency,
            after.operation_id,
        )
        if step != (0 if same else 1):
            self.violate("generation", f"{name}: generation moved by {step}: {before} to {after}")
        frozen = before.availability is not Availability.IMPORTING
        if frozen and before.manifest != after.manifest:
            self.violate("frozen-reference", f"{name}: {before.manifest} to {after.manifest}")

    def _held(self, before: RevisionMetadata, after: RevisionMetadata) -> None:
        """A live lease keeps its revision from being evicted, rehydrated or deleted."""
        deleted = after.availability is not before.availability is not Availability.IMPORTING
        starts = after.operation is not before.operation is Operation.NONE
        begins = deleted and after.availability is Availability.DELETING
        begins = begins or (starts and after.operation is not Operation.REPAIRING)
        live = self.live_leases(after.identity, after.updated_at_ms)
        if begins and live:
            self.violate("lease", f"{after} begins under {live}")

    def _lease(self, lease: RevisionLease) -> None:
        known = self.leases.get(lease.lease_id)
        if known is None and lease.lease_id <= self.last_lease_id:
            self.violate("id", f"lease id {lease.lease_id} was used again")
        if known is not None and known.expires_at_ms > lease.expires_at_ms:
            self.violate("lease-shrinks", f"{known} to {lease}")
        record = self.records.get(lease.identity)
        if known is None and (
            record is None
            or record.availability is not Availability.READY
            or record.operation is not Operation.NONE
        ):
            self.violate("lease", f"{lease} was given out while {record}")
        self.last_lease_id = max(self.last_lease_id, lease.lease_id)
        self.leases_before.setdefault(lease.lease_id, known)
        self.leases[lease.lease_id] = lease

    def _operation(self, operation: ResidencyOperation) -> None:
        known = self.operations.get(operation.operation_id)
        self.operations[operation.operation_id] = operation
        if known is None:
            if operation.operation_id <= self.last_operation_id:
                self.violate("id", f"operation id {operation.operation_id} was used again")
            self.last_operation_id = operation.operation_id
            return
        if known.message == COMPLETED and operation != known:
            self.violate("progress", f"a finished operation changed: {operation}")
        if (known.operation, known.target_residency) != (
            operation.operation,
            operation.target_residency,
        ):
            self.violate("progress", f"an operation changed its kind: {known} to {operation}")
        backwards = (
            operation.processed_members < known.processed_members
            or operation.total_members < known.total_members
        )
        if backwards:
            self.violate("progress", f"progress went back: {known} to {operation}")
