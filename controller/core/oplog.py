"""What a mutation writes to the op-log, as values.  Layer: core (pure).

Owns the entry types 8 to 11, their keys and what each mutation emits.
The binary form, sequence and checksum belong to the store's codec.  What is emitted here is what
`replay` accepts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from weightctl.controller.core.identity import lease_record_key, revision_record_key
from weightctl.controller.core.mutations import (
    LeaseMutation,
    MetadataMutation,
    Mutation,
    OperationMutation,
)
from weightctl.controller.core.records import (
    MutationKind,
    ResidencyOperation,
    RevisionLease,
    RevisionMetadata,
)

if TYPE_CHECKING:
    from weightctl.controller.core.identity import Identity


class EntryType(IntEnum):
    """Type of an op-log entry; 1 to 7 belong to ordinary objects, 12 to a later version."""

    METADATA_UPSERT = 8
    METADATA_DELETE = 9
    LEASE_UPSERT = 10
    LEASE_DELETE = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataUpsert:
    """Type 8: a revision's record and, when one changed with it, its operation's."""

    metadata: RevisionMetadata
    operation: ResidencyOperation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataDelete:
    """Type 9; no public call writes it."""

    identity: Identity
    metadata_generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseUpsert:
    """Type 10."""

    lease: RevisionLease


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseDelete:
    """Type 11."""

    lease_id: int
    identity: Identity
    fenced_metadata_generation: int


Payload = MetadataUpsert | MetadataDelete | LeaseUpsert | LeaseDelete

TYPE_OF: dict[type[Payload], EntryType] = {
    MetadataUpsert: EntryType.METADATA_UPSERT,
    MetadataDelete: EntryType.METADATA_DELETE,
    LeaseUpsert: EntryType.LEASE_UPSERT,
    LeaseDelete: EntryType.LEASE_DELETE,
}


def identity_of(payload: Payload) -> Identity:
    """The revision that an entry concerns; its tenant is the entry's tenant."""
    match payload:
        case MetadataUpsert():
            return payload.metadata.identity
        case LeaseUpsert():
            return payload.lease.identity
        case MetadataDelete() | LeaseDelete():
            return payload.identity


def key_of(payload: Payload) -> str:
    """The entry's key: the revision's or the lease's record key; empty when that is invalid."""
    match payload:
        case LeaseUpsert():
            return lease_record_key(payload.lease.lease_id)
        case LeaseDelete():
            return lease_record_key(payload.lease_id)
        case MetadataUpsert() | MetadataDelete():
            return revision_record_key(identity_of(payload))


def emitted(mutation: Mutation) -> tuple[Payload, ...]:
    """The entries of one mutation in order; they are durable together.  A no-op emits none.

    A delete erases its expired leases first, because no lease may outlive the publication.
    """
    if mutation.no_op:
        return ()
    match mutation:
        case LeaseMutation():
            return _lease_entries(mutation)
        case OperationMutation():
            record = mutation.metadata.next
            if record is None:
                return ()
            return (MetadataUpsert(metadata=record, operation=mutation.next),)
        case MetadataMutation():
            retired = tuple(_lease_delete(lease) for lease in mutation.retired)
            return (*retired, *_metadata_entries(mutation))


def _metadata_entries(mutation: MetadataMutation) -> tuple[Payload, ...]:
    if mutation.kind == MutationKind.UPSERT and mutation.next is not None:
        return (MetadataUpsert(metadata=mutation.next),)
    if mutation.previous is None:
        return ()
    previous = mutation.previous
    return (
        MetadataDelete(
            identity=previous.identity, metadata_generation=previous.metadata_generation
        ),
    )


def _lease_entries(mutation: LeaseMutation) -> tuple[Payload, ...]:
    if mutation.next is not None:
        return (LeaseUpsert(lease=mutation.next),)
    return () if mutation.previous is None else (_lease_delete(mutation.previous),)


def _lease_delete(lease: RevisionLease) -> LeaseDelete:
    return LeaseDelete(
        lease_id=lease.lease_id,
        identity=lease.identity,
        fenced_metadata_generation=lease.fenced_metadata_generation,
    )
