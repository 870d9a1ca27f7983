"""The documents of plans and of what the tiers hold.  Layer: api."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict  # pydantic reads the one of `typing` from Python 3.12 on

from weightctl.controller.api.documents.records import Document, MemberFields, Name
from weightctl.controller.api.documents.service import CheckFields, Obstacle


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


class ImportTier(TypedDict):
    """What one tier is to an import; sizes are null where it has not told them."""

    name: str
    tier: str
    hot: bool
    chosen: bool
    neededBytes: int | None
    freeBytes: int | None
    why: str


class ImportPlan(Document, Name):
    """What an import would do and why, or what is in its way (`import --dry-run`).

    `verdict` is "importable", "resumable" (an import that was begun goes on), "published" (with the
    same content: nothing to do) or "refused", with what the import would end with first among
    `obstacles`.  Steps of one round are done at the same time.  `readBytes` of the source were
    read, to compare contents; where none were, members have a digest of zeros, and so has a
    manifest whose time is not known yet.
    """

    verdict: str
    source: str
    availability: str | None
    metadataGeneration: int | None
    tensors: int
    payloadCount: int
    logicalBytes: int
    manifestBytes: int
    manifestKey: str
    payloadGroupId: str
    readBytes: int
    steps: list[StepFields]
    tiers: list[ImportTier]
    members: list[MemberFields]
    obstacles: list[Obstacle]
    remarks: list[str]


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
    todo: str
    """What to do about the problem, where the tier says so; `problem` ends with it."""


class TierList(Document):
    """The configured tiers.

    `checks`, where they were asked for, say how their media are set up.
    """

    items: list[TierFields]
    checks: NotRequired[list[CheckFields]]


class OrphanFields(TypedDict):
    """Objects of one group in one tier that nobody owns, or (no group) a tier that was not listed.

    `why` begins with a stable reason: OwnerDeleted, NoOwner, NotListed.  `keys` are the first few.
    `identity` is what their names say, in the default tenant; empty where they do not.
    """

    tier: str
    payloadGroupId: str
    identity: str
    why: str
    objects: int
    sizeBytes: int
    keys: list[str]
    todo: str


class OrphanList(Document):
    """What the tiers hold that no revision owns."""

    items: list[OrphanFields]
