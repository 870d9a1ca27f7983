"""The documents of revisions: their records, leases, members, op-log and snapshots.  Layer: api."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict  # pydantic reads the one of `typing` from Python 3.12 on


class Document(TypedDict):
    """What every document opens with; `kind` names the shape of the rest."""

    apiVersion: Literal["weightctl/v1"]
    kind: str


class Name(TypedDict):
    """The five fields of an identity beside its command-line form."""

    identity: str
    tenantId: str
    namespace: str
    resourceId: str
    revision: str
    weightGeneration: int


class ManifestDocument(TypedDict):
    """The reference to the immutable manifest; empty texts while the import runs."""

    manifestKey: str
    manifestSha256: str
    payloadGroupId: str
    payloadKeysSha256: str
    payloadCount: int
    logicalBytes: int


class OperationFields(TypedDict):
    """One operation, running or completed (`message` is `completed`)."""

    operationId: int
    operation: str
    targetResidency: str
    processedMembers: int
    totalMembers: int
    cursor: str
    message: str
    fencedMetadataGeneration: int
    startedAtMs: int
    updatedAtMs: int


class LeaseSummary(TypedDict):
    """The live leases of a revision."""

    active: int
    nearestExpiryMs: int | None


class Revision(Document, Name):
    """The record of one revision with its running operation."""

    availability: str
    residency: str
    operation: OperationFields | None
    metadataGeneration: int
    createdAtMs: int
    updatedAtMs: int
    manifest: ManifestDocument
    leases: LeaseSummary


class RevisionList(Document):
    """One page of revisions; pass `nextPageToken` on for the next one, empty at the end."""

    items: list[Revision]
    nextPageToken: str


class Lease(Document, Name):
    """One reader's claim; `live` at the moment of asking."""

    leaseId: int
    holder: str
    expiresAtMs: int
    fencedMetadataGeneration: int
    live: bool


class LeaseList(Document):
    """Leases, ascending by id."""

    items: list[Lease]


class MemberFields(TypedDict):
    """One object of the payload group."""

    key: str
    dataType: str
    sizeBytes: int
    sha256: str


class TensorFields(TypedDict):
    """One tensor of a model; a scalar has no dimension."""

    name: str
    dtype: str
    shape: list[int]
    sizeBytes: int


class TensorList(Document):
    """The tensors of a revision, as its manifest names them."""

    items: list[TensorFields]


class EvidenceFields(TypedDict):
    """Which verified copy justified the drop of another one."""

    memberKey: str
    droppedTier: str
    droppedInstance: str
    evidenceTier: str
    evidenceInstance: str
    evidenceSha256: str
    evidenceEpoch: str
    verifiedAtMs: int
    operationId: int
    atMs: int


class DamageFields(TypedDict):
    """One replica that was read back with a wrong digest; nothing reads it any more."""

    memberKey: str
    tier: str
    instance: str
    epoch: str
    foundSha256: str
    atMs: int


class RevisionDetails(Document):
    """Everything that the state directory holds about one revision."""

    revision: Revision
    members: list[MemberFields]
    membersTotal: int
    leases: list[Lease]
    operations: list[OperationFields]
    evidence: list[EvidenceFields]
    damage: list[DamageFields]


class LogEntryFields(TypedDict):
    """One entry of the op-log."""

    sequence: int
    timeMs: int
    type: str
    tenantId: str
    key: str
    summary: str
    problem: str


class OplogPage(Document):
    """Entries of the op-log, ascending by sequence."""

    items: list[LogEntryFields]


class OplogReport(Document):
    """Whether the whole op-log can be read and replayed."""

    ok: bool
    problem: str
    firstSequence: int
    lastSequence: int
    entries: int
    snapshotRows: int


class SnapshotReport(Document):
    """A snapshot file that was saved, restored or verified."""

    path: str
    action: str
    revisions: int
    leases: int
    operations: int
    sizeBytes: int
