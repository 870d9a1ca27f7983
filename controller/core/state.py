"""The in-memory weight state and its indexes.  Layer: core (pure).

Owns every record by key, the group index, the leases of each revision, the listing order and the id
counters.  Single-threaded: whoever shares a state serialises its use.  Only Publish, replay and
restore write here, and every index changes together with its record.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from weightctl.controller.core.identity import text_bytes
from weightctl.controller.core.records import RevisionView
from weightctl.controller.errors import require

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from weightctl.controller.core.identity import Identity
    from weightctl.controller.core.records import (
        ResidencyOperation,
        RevisionLease,
        RevisionMetadata,
    )

_NO_LEASES: dict[int, RevisionLease] = {}


def row_key(identity: Identity) -> tuple[bytes, int]:
    """Order of the revisions of one resource: revision bytes, then generation."""
    return text_bytes(identity.revision), identity.weight_generation


class WeightState:
    """All revisions, leases and operations; empty when new, counters at 1.

    The dictionaries are for reading; the methods keep the indexes in step.
    """

    __slots__ = (
        "_leases_of",
        "_rows",
        "groups",
        "leases",
        "metadata",
        "next_lease_id",
        "next_operation_id",
        "operations",
    )

    def __init__(self) -> None:
        self.metadata: dict[Identity, RevisionMetadata] = {}
        self.groups: dict[str, Identity] = {}
        self.leases: dict[int, RevisionLease] = {}
        self.operations: dict[int, ResidencyOperation] = {}
        self.next_lease_id = 1
        self.next_operation_id = 1
        self._leases_of: dict[Identity, dict[int, RevisionLease]] = {}
        self._rows: dict[tuple[str, str, str], list[Identity]] = {}

    # --- reading ----------------------------------------------------------------------------------

    def leases_of(self, identity: Identity) -> Collection[RevisionLease]:
        """Every lease of the revision, live or not, in the order taken."""
        return self._leases_of.get(identity, _NO_LEASES).values()

    def active_leases(self, identity: Identity, now_ms: int) -> list[RevisionLease]:
        """Leases that count now: expiry strictly later, fence not ahead."""
        leases = self._leases_of.get(identity)
        if leases is None:
            return []
        generation = self.metadata[identity].metadata_generation
        return [
            lease
            for lease in leases.values()
            if lease.expires_at_ms > now_ms and lease.fenced_metadata_generation <= generation
        ]

    def live_leases(self, now_ms: int) -> int:
        """How many leases of all revisions count now."""
        return sum(len(self.active_leases(of, now_ms)) for of in self._leases_of)

    def view(self, record: RevisionMetadata, now_ms: int) -> RevisionView:
        """The record with the count and nearest expiry (wall ms) of its live leases."""
        live = self.active_leases(record.identity, now_ms)
        nearest = min((lease.expires_at_ms for lease in live), default=None)
        return RevisionView(
            metadata=record, active_lease_count=len(live), nearest_lease_expiry_ms=nearest
        )

    def current_operation(self, record: RevisionMetadata) -> ResidencyOperation | None:
        """The record of the operation that the revision runs, None when idle."""
        return self.operations.get(record.operation_id)

    def rows_after(
        self, resource: tuple[str, str, str], after: tuple[bytes, int] | None, count: int
    ) -> Sequence[Identity]:
        """Up to `count` revisions of (tenant, namespace, resource) after a row key, in order."""
        rows = self._rows.get(resource, [])
        start = 0 if after is None else bisect_right(rows, after, key=row_key)
        return rows[start : start + count]

    # --- ids --------------------------------------------------------------------------------------

    def take_lease_id(self) -> int:
        """Consume the next lease id; it is never given out again, used or not."""
        lease_id = self.next_lease_id
        self.next_lease_id += 1
        return lease_id

    def take_operation_id(self) -> int:
        """Consume the next operation id; it is never given out again, used or not."""
        operation_id = self.next_operation_id
        self.next_operation_id += 1
        return operation_id

    # --- writing ----------------------------------------------------------------------------------

    def put_metadata(self, record: RevisionMetadata) -> None:
        """Store a record and, for a new revision, its group and its place in the listing."""
        identity = record.identity
        if identity not in self.metadata:
            group_id = record.manifest.payload_group_id
            require(group_id not in self.groups, group_id, "the group has another revision")
            self.groups[group_id] = identity
            self._add_row(identity)
        self.metadata[identity] = record

    def erase_metadata(self, identity: Identity) -> None:
        """Remove a record, its group and its row; it must own neither lease nor operation."""
        require(identity not in self._leases_of, identity, "a record was erased with leases")
        record = self.metadata.pop(identity)
        require(
            self.groups.pop(record.manifest.payload_group_id, None) == identity,
            identity,
            "the group has another revision",
        )
        rows = self._rows[_resource_of(identity)]
        rows.remove(identity)
        if not rows:
            del self._rows[_resource_of(identity)]

    def put_lease(self, lease: RevisionLease) -> None:
        """Store a lease and keep the counter past its id."""
        require(lease.identity in self.metadata, lease.identity, "a lease has no revision")
        self.leases[lease.lease_id] = lease
        self._leases_of.setdefault(lease.identity, {})[lease.lease_id] = lease
        self.next_lease_id = max(self.next_lease_id, lease.lease_id + 1)

    def erase_lease(self, lease_id: int) -> None:
        """Remove a lease if it is there."""
        lease = self.leases.pop(lease_id, None)
        if lease is None:
            return
        own = self._leases_of[lease.identity]
        del own[lease_id]
        if not own:
            del self._leases_of[lease.identity]

    def put_operation(self, operation: ResidencyOperation) -> None:
        """Store an operation and keep the counter past its id."""
        require(
            operation.identity in self.metadata,
            operation.identity,
            "an operation has no revision",
        )
        self.operations[operation.operation_id] = operation
        self.next_operation_id = max(self.next_operation_id, operation.operation_id + 1)

    def _add_row(self, identity: Identity) -> None:
        rows = self._rows.setdefault(_resource_of(identity), [])
        if not rows or row_key(rows[-1]) < row_key(identity):
            rows.append(identity)
        else:
            rows.insert(bisect_right(rows, row_key(identity), key=row_key), identity)


def _resource_of(identity: Identity) -> tuple[str, str, str]:
    return identity.tenant_id, identity.namespace, identity.resource_id
