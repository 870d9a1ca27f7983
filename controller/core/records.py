"""Records of the Weight Metadata Store and the requests' shapes.  Layer: core (pure).

Owns the enums, the frozen records and their limits.  No tensor, fragment or endpoint field exists
here.  Equality is field-wise, which is what compare-and-swap relies on.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weightctl.controller.core.identity import Identity

SCHEMA_VERSION = 1
LIST_LIMIT_MAX = 1000
LIST_LIMIT_DEFAULT = 100
LEASE_TTL_MS_MAX = 86_400_000
IMPORT_ABANDON_MS = 300_000
COMPLETED = "completed"
"""The only terminal marker in an operation's message."""


class Availability(IntEnum):
    """Whether the complete revision is safe to discover and load."""

    IMPORTING = 0
    READY = 1
    DEGRADED = 2
    DELETING = 3
    DELETED = 4


class Residency(IntEnum):
    """Observed placement across the required group members."""

    UNKNOWN = 0
    HOT = 1
    COLD = 2
    MIXED = 3
    ABSENT = 4


class Operation(IntEnum):
    """Durable non-terminal group work."""

    NONE = 0
    EVICTING = 1
    REHYDRATING = 2
    REPAIRING = 3


class MutationKind(IntEnum):
    """How a journal entry changes the state."""

    UPSERT = 0
    ERASE = 1


class DataType(IntEnum):
    """What a member of a payload group holds; OTHER only for foreign objects in a group."""

    OTHER = 0
    WEIGHT = 1
    METADATA = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestReference:
    """What the metadata record knows of the immutable manifest."""

    manifest_key: str = ""
    manifest_sha256: str = ""
    payload_group_id: str = ""
    payload_keys_sha256: str = ""
    payload_count: int = 0
    logical_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionMetadata:
    """The metadata record of one revision; times are wall-clock milliseconds."""

    identity: Identity
    manifest: ManifestReference
    availability: Availability = Availability.IMPORTING
    residency: Residency = Residency.UNKNOWN
    operation: Operation = Operation.NONE
    operation_id: int = 0
    metadata_generation: int = 1
    created_at_ms: int = 0
    updated_at_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionLease:
    """A reader's claim on one revision, dead at `expires_at_ms` (wall clock, exclusive)."""

    lease_id: int
    identity: Identity
    holder: str
    expires_at_ms: int
    fenced_metadata_generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidencyOperation:
    """Progress of one operation; `message == COMPLETED` is the only terminal marker."""

    operation_id: int
    identity: Identity
    operation: Operation
    target_residency: Residency
    fenced_metadata_generation: int
    started_at_ms: int = 0
    updated_at_ms: int = 0
    processed_members: int = 0
    total_members: int = 0
    cursor: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionView:
    """What Get and List return: the record and its live leases."""

    metadata: RevisionMetadata
    active_lease_count: int = 0
    nearest_lease_expiry_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionPage:
    """One page of List; an empty token marks the end."""

    revisions: tuple[RevisionView, ...]
    next_page_token: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The whole weight state: identity order, ids ascending."""

    metadata: tuple[RevisionMetadata, ...] = ()
    leases: tuple[RevisionLease, ...] = ()
    operations: tuple[ResidencyOperation, ...] = ()
    next_lease_id: int = 1
    next_operation_id: int = 1
    schema_version: int = SCHEMA_VERSION
