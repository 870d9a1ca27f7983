"""The documents of what was done, and of the installation and its health.  Layer: api."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict  # pydantic reads the one of `typing` from Python 3.12 on

from weightctl.controller.api.documents.records import Document, Name


class AdoptionTier(TypedDict):
    """How many objects of a candidate one tier shows complete."""

    name: str
    objects: int


class Obstacle(TypedDict):
    """What is in the way of an adoption or an import; without a key, of a whole tier or all of it.

    `code` is the contract's error code where the verb would be refused with one.
    """

    key: str
    tier: str
    code: str | None
    reason: str
    what: str
    why: str
    todo: str


class Adoption(Document, Name):
    """What the tiers hold of a revision to be adopted, and what is in the way.

    `verdict` is "adoptable" (a dry run, which reads no content), "refused", "adopted" or "managed"
    (it was before).  `digestsTold` payloads had to have a digest that was given, `digestsRecorded`
    one that a tier had recorded; the content of `digestsTaken` counts as it was read.  The
    manifest's digest is that of the bytes that were given.
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
    """One check of `doctor`; `todo` says what to do when it is not ok, or what is advised."""

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
