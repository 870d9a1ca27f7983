"""The ports: what the loop needs from tiers, time and chance.  Layer: ports.

`Tier` is the plugin contract (API version 1).  Every call is batched; each item of a batch gets its
own `Outcome`, in the order asked; an item without a known outcome is `Unknown`, never success.  A
tier translates foreign exceptions at its border; only `weightctl.controller.errors` may leave it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from weightctl.controller.core.observation import Member, Members, TierObservation
    from weightctl.controller.core.tiers import TierCapacity, TierProfile

PIECE_BYTES = 8 * 1024 * 1024
"""Unit of streaming: large enough to hide a thread hop, small enough to bound memory."""


# --- outcomes -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The item was carried out and its result is durable as far as the tier is persistent."""

    instance_id: str = ""
    moved_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOp:
    """The wanted state was there already."""

    instance_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """Held by a reader or writer until `until_ms` (wall clock), or for an unknown time (None)."""

    until_ms: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """A passing fault (EIO, ESTALE, ETIMEDOUT); nothing was changed."""

    after_s: float = 0.0
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoCapacity:
    """It does not fit: ENOSPC, EDQUOT or the tier's own limit; both 0 where nobody has counted."""

    needed_bytes: int
    free_bytes: int

    @property
    def detail(self) -> str:
        """In words."""
        if not self.needed_bytes:
            return "the medium says that it is full or that its quota is used up"
        return f"it needs {self.needed_bytes} bytes and {self.free_bytes} are free"


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrupt:
    """The bytes read do not have the expected digest.  Digests are raw, 32 bytes."""

    expected: bytes
    got: bytes
    instance_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Something else is there: other content under the key, or another instance than named."""

    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fenced:
    """The fence is older than one the tier has already served; nothing was changed."""

    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Permanent:
    """Will not succeed by itself; `detail` says why and what a person can do."""

    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """The answer was lost: it may or may not have happened.  Observe before trying again."""

    detail: str = ""


Outcome = (
    Done | NoOp | Busy | Retry | NoCapacity | Corrupt | Conflict | Fenced | Permanent | Unknown
)


# --- tiers ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """For whom a primitive acts: store, holder term, operation and metadata generation.

    Terms of one `holder` only grow, and no two processes have the same one.  A tier that has served
    a higher term of the same holder answers `Fenced` to a lower one.
    """

    holder: str
    term: int
    operation_id: int
    generation: int
    past: tuple[int, ...] = ()
    """Terms before this one that were of the same state directory, ascending, the first with all
    below it; empty where that is not told.  Another one between them was a copy's of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryItem:
    """One stored thing of a group: a replica, a quarantined one, or a writer's leftover."""

    key: str
    instance_id: str
    size_bytes: int
    state: str
    """`complete`, `partial` or `quarantined`."""


class RangedReader(Protocol):
    """Reads one replica.  Close it in every case (it is an async context manager)."""

    @property
    def size_bytes(self) -> int:
        """Size of the replica."""

    @property
    def instance_id(self) -> str:
        """The copy that is being read."""

    async def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill `buffer` wholly from byte `offset`.  Raises a ReconcileError."""

    def fileno(self) -> int | None:
        """A local descriptor whose reads cannot hang, starting at byte 0 of the replica, or None.

        Lets another tier on this host copy in the kernel and read from its own worker threads.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreItem:
    """One replica to bring in: read the bytes from `open_source()`, verify `member.sha256`."""

    member: Member
    open_source: Callable[[], AbstractAsyncContextManager[RangedReader]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DropItem:
    """One replica instance to remove; another instance of the same key stays (`Conflict`)."""

    member: Member
    instance_id: str
    whole: bool = False
    """The object itself is being deleted: a tier whose store cannot remove one replica alone may
    remove every replica of the object that its store has.  Others take no notice."""
    elsewhere: bool = False
    """A copy on another medium was proven for this drop: the tier needs to keep none of its own,
    and one that it cannot prove may go as well.  Others take no notice."""


class Limiter(Protocol):
    """A bandwidth budget; charged by whoever moves the bytes."""

    async def charge(self, size_bytes: int) -> None:
        """Wait until `size_bytes` more may flow."""


class Tier(Protocol):
    """A place that holds replicas.  Plugin contract, API version 1; all calls are cancellable.

    A tier is an async context manager: entering checks or creates its marker and cleans up what a
    killed writer left; leaving releases every thread, process and descriptor within a deadline.
    """

    @property
    def profile(self) -> TierProfile:
        """Constant for the life of the object."""

    async def __aenter__(self) -> Self:
        """Ready the tier.  Raises ConfigError for what a person must mend."""

    async def __aexit__(self, *exc_info: object) -> None:
        """Release everything; never hangs, even when the medium does."""

    async def observe(self, members: Members, *, detail: Sequence[int] = ()) -> TierObservation:
        """One state byte for every member; `detail` asks for `ReplicaDetail` of those indexes.

        Never raises for the medium: what cannot be answered is UNKNOWN.  Asked for no member it
        tells its epoch, or its problem.  Has no side effect on the replicas: renews, heats and pins
        nothing.
        """

    async def store(
        self, batch: Sequence[StoreItem], fence: Fence, *, limit: Limiter | None = None
    ) -> Sequence[Outcome]:
        """Bring replicas in: stream, digest while copying, publish atomically when it is right.

        `limit` is charged before each piece that moves (the caller joins both ends in it).
        NoOp where the same content is COMPLETE, Conflict for other content, Corrupt when the
        source does not have the digest, NoCapacity when it does not fit.
        """

    async def drop(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        """Remove exactly the named instances; NoOp where absent, Conflict for another instance."""

    async def quarantine(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        """Take the named instances out of sight (observed ABSENT) but keep their bytes for people.

        They show up in `inventory` as `quarantined` and are removed by `drop` of their instance.
        """

    def open(self, member: Member) -> AbstractAsyncContextManager[RangedReader]:
        """A ranged reader of the COMPLETE replica.  Raises a ReconcileError on entering."""

    async def verify(
        self, batch: Sequence[Member], *, limit: Limiter | None = None
    ) -> Sequence[Outcome]:
        """Read back from the medium and digest: Done(instance_id), Corrupt, or why not.

        A member that is not there is `Conflict`; one that could not be read is Retry or Unknown.
        """

    async def inventory(self, group_id: str | None = None) -> Mapping[str, Sequence[InventoryItem]]:
        """What it holds, by group id.  Raises a ReconcileError when it cannot be listed wholly."""

    async def capacity(self) -> TierCapacity:
        """Raises a ReconcileError when it cannot be read."""

    def map_path(self, member: Member) -> str | None:
        """Path of a file that holds exactly the replica's bytes, where `mappable`; else None."""


class Remarking(Protocol):
    """What a tier may have beside the port; a plan shows it."""

    def remark(self) -> str:
        """How it was looked at, for people, where that matters to others; empty where it does not.

        For a medium that is shared with strangers and whose own looks can cost them something.
        """


class Foretelling(Protocol):
    """What a tier may have beside the port, where a drop may be done in ways that differ much."""

    def dropping(self, keys: Sequence[str]) -> str:
        """How replicas of these members would be dropped now, for people, without asking."""


class Choosing(Protocol):
    """What a tier may have beside the port, where it cannot keep every object; for imports."""

    def unfit(self, member: Member) -> str:
        """Why it could never keep a replica of the member; empty when it could.

        Told from the key and the size, without asking the medium.
        """


class Doubting(Protocol):
    """What a tier may have beside the port, where it cannot read back every replica it shows."""

    async def unprovable(self, members: Sequence[Member]) -> Mapping[str, str]:
        """By key why `verify` can never say Done of the replica while the member's others stay.

        Keys whose doubt may pass by itself are not in it.  Raises a ReconcileError.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class MediumReport:
    """How a tier's medium does."""

    state: str = ""
    """For people, in one line: who serves it, or since when nobody does."""
    numbers: Mapping[str, float]
    """By the names that the tier has declared."""


class Reporting(Protocol):
    """What a tier may have beside the port, over a medium that others run; for health, metrics."""

    @property
    def numbers(self) -> Sequence[str]:
        """Every name that a report may use, constant for the life of the object."""

    async def report(self) -> MediumReport:
        """Asked every few seconds, with a deadline; may ask the medium, with no effect on it.

        What the medium does not answer is a report that says so, and no error.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What `doctor` tells of one thing."""

    name: str
    """The same for every tier that would tell the same."""
    ok: bool
    detail: str
    todo: str = ""
    """What to do when it is not ok, or what is advised."""


class Checking(Protocol):
    """What a tier may have beside the port, over a medium that others set up; for `doctor`."""

    async def checks(self, *, evidence_max_age_s: float) -> Sequence[Check]:
        """How it is set up, as far as that can be told without changing anything.

        evidence_max_age_s: as of the policy.  Asked by people and not often, with a deadline of
        half a minute; what the medium does not answer is told or left out, and no error.
        """


NOT_SET_UP = "not set up yet"
"""How a dry run names a medium that was never used."""
SET_UP_BY_USE = "the first import sets it up"
"""What a person must do about it, where that is nothing; else the tier says what has to be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierContext:
    """What the host gives a tier factory."""

    clock: Clock
    entropy: Entropy
    state_dir: str
    """Absolute path of the controller's state directory, for defaults of relative paths."""
    read_only: bool = False
    """True for a dry run: nothing may be created, changed or removed, not even a marker or a
    leftover; a medium that was never set up is UNKNOWN, and the TransientError of `capacity` says
    NOT_SET_UP first and SET_UP_BY_USE, or what is in the way, last."""
    holder: str = ""
    """Uuid of the store for which the tier is opened, empty for none.  A medium belongs to the
    store that first used it: while another one asks, all of it is UNKNOWN, every primitive is
    Permanent, and nothing changes.  A dry run never makes it anybody's."""
    fence: Fence | None = None
    """Holder and term for which the tier is opened to act, as its primitives will be given them;
    None for a dry run, and where nobody tells."""


class TierFactory(Protocol):
    """What an entry point of the group `weightctl.tiers` names."""

    def __call__(self, name: str, options: Mapping[str, object], context: TierContext, /) -> Tier:
        """Build a tier.  Raises ConfigError, naming the nearest known, for an unknown option."""


# --- time and chance ------------------------------------------------------------------------------


class Clock(Protocol):
    """The only source of time."""

    def wall_ms(self) -> int:
        """Wall clock, milliseconds since the epoch; may jump either way, at a restart above all."""

    def monotonic_s(self) -> float:
        """Monotonic seconds for durations."""

    async def sleep(self, seconds: float) -> None:
        """Sleep by the monotonic clock; cancellable."""


class Entropy(Protocol):
    """The only source of chance."""

    def random(self) -> float:
        """Uniform in [0, 1)."""

    def token(self, size_bytes: int) -> str:
        """A fresh hexadecimal token of that many random bytes."""
