"""The JSON documents, version `weightctl/v1`.  Layer: api.

These shapes are stable: fields are added, never renamed or removed, within one `apiVersion`.
Times are wall-clock milliseconds since the epoch, sizes are bytes, enums are the contract's names.
`weightctl schema KIND` prints the JSON Schema of each; the tests hold every output against it.
A command imports this module for its types only.
"""

from __future__ import annotations

from typing import Literal, NotRequired

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


class Hold(TypedDict):
    """One thing that keeps a revision where it is; `untilMs` when its end is known."""

    reason: str
    what: str
    untilMs: int | None


class Explanation(Document, Name):
    """What holds a revision now, and until when; `observed`: the tiers were asked for it."""

    summary: str
    holds: list[Hold]
    observed: bool


class StepFields(TypedDict):
    """One kind of primitive over `members` members."""

    round: int
    step: str
    reason: str
    source: str
    target: str
    members: int
    sizeBytes: int


class WaitFields(TypedDict):
    """Something that is waited for."""

    reason: str
    what: str
    members: int
    untilMs: int | None
    neededBytes: int
    freeBytes: int


class TierRoom(TypedDict):
    """What a plan brings into a tier, and the room there; `freeBytes` null when unknown."""

    name: str
    neededBytes: int
    freeBytes: int | None


class Transfer(TypedDict):
    """Bytes that would move from one tier to another."""

    source: str
    target: str
    sizeBytes: int


class Plan(Document, Name):
    """What would be done for one revision, and why; `purpose` is the verb asked about.

    Steps of round 1 would be done now; those of later rounds follow if all before them succeed.
    `remarks` say how tiers were looked at, where others use the same store.
    """

    purpose: str
    verdict: str
    steps: list[StepFields]
    waits: list[WaitFields]
    transfers: list[Transfer]
    tiers: list[TierRoom]
    availability: str | None
    residency: str | None
    processedMembers: int
    totalMembers: int
    lostMembers: int
    converges: bool
    warnings: list[str]
    remarks: list[str]


class PlanList(Document):
    """Plans of all revisions, identity order."""

    items: list[Plan]


class Keys(Document, Name):
    """Every name that is derived from an identity."""

    manifestKey: str
    payloadPrefix: str
    payloadGroupId: str
    identityDigest: str
    revisionRecordKey: str


class TierFields(TypedDict):
    """One tier: what it says of itself, its room, and its health (`problem` empty: it answers)."""

    name: str
    tier: str
    hot: bool
    capabilities: list[str]
    usedBytes: int | None
    freeBytes: int | None
    totalBytes: int | None
    problem: str


class TierList(Document):
    """The configured tiers."""

    items: list[TierFields]


class OrphanFields(TypedDict):
    """Objects of one group in one tier that nobody owns, or (no group) a tier that was not listed.

    `why` begins with a stable reason: OwnerDeleted, NoOwner, NotListed.
    """

    tier: str
    payloadGroupId: str
    why: str
    objects: int
    sizeBytes: int


class OrphanList(Document):
    """What the tiers hold that no revision owns."""

    items: list[OrphanFields]


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


class AdoptionTier(TypedDict):
    """How many objects of a candidate one tier shows complete."""

    name: str
    objects: int


class Obstacle(TypedDict):
    """Why objects cannot be adopted; without a key it concerns a whole tier."""

    key: str
    tier: str
    reason: str
    what: str
    why: str
    todo: str


class Adoption(Document, Name):
    """What the tiers hold of a revision to be adopted, and what is in the way.

    `verdict` is "adoptable" (a dry run, which reads no content), "refused", "adopted" or "managed"
    (it was before).  `digestsTold` objects had to have a digest that was given, `digestsRecorded`
    one that a tier had recorded; the content of `digestsTaken` counts as it was read.
    """

    verdict: str
    objects: int
    logicalBytes: int
    readBytes: int
    digestsTold: int
    digestsRecorded: int
    digestsTaken: int
    metadataGeneration: int | None
    residency: str | None
    seconds: float
    held: list[AdoptionTier]
    obstacles: list[Obstacle]
    remarks: list[str]


class Import(Document, Name):
    """A finished import; `movedBytes` is less than all when it resumed, 0 when nothing was new."""

    tensors: int
    payloadCount: int
    logicalBytes: int
    movedBytes: int
    tiers: list[str]
    metadataGeneration: int
    seconds: float


class Load(Document, Name):
    """A finished load; `verifiedBytes` of objects had their digest checked on the way."""

    path: str
    files: list[str]
    tensors: int
    sizeBytes: int
    verifiedBytes: int
    bytesByTier: dict[str, int]
    seconds: float


class SettingFields(TypedDict):
    """One setting; asked with `--origin`, where its value comes from and its variable."""

    key: str
    value: object
    about: str
    origin: NotRequired[str]
    variable: NotRequired[str]


class ConfiguredTier(TypedDict):
    """One `[[tier]]` of the configuration."""

    name: str
    plugin: str
    options: dict[str, object]


class Configuration(Document):
    """Every setting and every tier."""

    settings: list[SettingFields]
    tiers: list[ConfiguredTier]
    tiersOrigin: str


class CheckFields(TypedDict):
    """One check of `doctor`; `todo` says what to do when it is not ok."""

    name: str
    ok: bool
    detail: str
    todo: str


class Diagnosis(Document):
    """The checks of `doctor`."""

    ok: bool
    checks: list[CheckFields]


class MediumFields(TypedDict):
    """What a tier tells of its medium: who serves it or since when nobody does, and its numbers."""

    state: str
    numbers: dict[str, float]


class Health(Document):
    """How a running loop is doing; `doctor` asks for it over the control socket.

    `problems` are by service, `tiers` by tier and empty for one that answers, `media` by tier that
    tells of its medium; `due`, `delayed` and `active` count queued revisions, `stuck`, `failing`
    and `lost` those that need a person.
    """

    ready: bool
    problems: dict[str, str]
    tiers: dict[str, str]
    media: dict[str, MediumFields]
    due: int
    delayed: int
    active: int
    oldestWaitSeconds: float
    stuck: int
    failing: int
    lost: int
    driftRoundAgeSeconds: float | None


class DemoKill(TypedDict):
    """One `kill -9` of the loop: meant for `point` of the operation's course, and where it hit.

    `stage` is "before begin", "verifying", "copying", "dropping" or "finishing"; `done` of `total`
    of its `unit` were done, 0 of 0 where that cannot be counted.  "missed": it was done before.
    """

    round: int
    point: float
    stage: str
    done: int
    total: int
    unit: str


class DemoStep(TypedDict):
    """One step of the demo: what was verified, how long it took, what the tiers hold after it."""

    name: str
    ok: bool
    verified: str
    kills: int
    killed: list[DemoKill]
    seconds: float
    residency: str
    usedBytes: dict[str, int]


class Demo(Document):
    """The demo's closing table; over several rounds kills are summed and times are means."""

    ok: bool
    source: str
    sizeBytes: int
    tensors: int
    seed: int
    rounds: int
    results: list[DemoStep]


class ExitCodeFields(TypedDict):
    """One exit code."""

    code: int
    name: str
    about: str


class ExitCodes(Document):
    """The table of exit codes."""

    items: list[ExitCodeFields]


class Error(Document):
    """A failure, on stderr; `code` is the contract's error code where there is one.

    The exit code follows from the two; on the control socket it is left to the client.
    """

    code: str | None
    reason: str
    what: str
    why: str
    todo: str
    exitCode: NotRequired[int]


KINDS: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        Adoption,
        Configuration,
        Demo,
        Diagnosis,
        Error,
        ExitCodes,
        Explanation,
        Health,
        Import,
        Keys,
        Lease,
        LeaseList,
        Load,
        OplogPage,
        OplogReport,
        OrphanList,
        Plan,
        PlanList,
        Revision,
        RevisionDetails,
        RevisionList,
        SnapshotReport,
        TensorList,
        TierList,
    )
}
"""Every document by its `kind`."""
