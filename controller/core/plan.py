"""What a plan is made of.  Layer: core (pure).

Owns the planner's input (`Situation`) and output (`Plan`) and their stable codes.  A step selects
its members by a mask, one byte per member, so that a million members are one flat buffer.
The dry run and the loop get the same plan from the same situation (invariant 10).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from itertools import compress
from typing import TYPE_CHECKING

from weightctl.controller.core.policy import Policy
from weightctl.controller.errors import require

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from weightctl.controller.core.aggregate import GroupFacts
    from weightctl.controller.core.observation import Members
    from weightctl.controller.core.records import (
        Availability,
        Residency,
        ResidencyOperation,
        RevisionMetadata,
    )
    from weightctl.controller.core.tiers import TierCapacity, TierProfile


class StepKind(StrEnum):
    """The primitives and record writes that a plan may ask for."""

    QUARANTINE = "quarantine"
    VERIFY = "verify"
    STORE = "store"
    DROP = "drop"
    ABORT_IMPORT = "abort_import"
    PUBLISH = "publish"
    FINISH = "finish"
    FINISH_DELETE = "finish_delete"


class Reason(StrEnum):
    """Stable reason codes of steps and waits, the same in JSON, conditions, metrics and logs."""

    COLD_COPY_VERIFIED = "ColdCopyVerified"
    COLD_COPY_UNVERIFIED = "ColdCopyUnverified"
    COLD_COPY_MISSING = "ColdCopyMissing"
    MEMORY_COPY_MISSING = "MemoryCopyMissing"
    COPIES_BELOW_POLICY = "CopiesBelowPolicy"
    COPY_UNVERIFIED = "CopyUnverified"
    WRONG_DIGEST = "WrongDigest"
    PAYLOAD_OF_DELETED = "PayloadOfDeleted"
    MANIFEST_OF_DELETED = "ManifestOfDeleted"
    ABSENCE_OBSERVED = "AbsenceObserved"
    TARGET_OBSERVED = "TargetObserved"
    SUMMARY_DIFFERS = "SummaryDiffers"
    IMPORT_ABANDONED = "ImportAbandoned"
    # waits
    TIER_UNKNOWN = "TierUnknown"
    COPY_IN_PROGRESS = "CopyInProgress"
    LEASE_LIVE = "LeaseLive"
    NO_CAPACITY = "NoCapacity"
    NO_TIER = "NoTier"
    UNSETTLED = "Unsettled"
    WINDOW_CLOSED = "WindowClosed"
    PAUSED = "Paused"
    IMPORT_RUNNING = "ImportRunning"
    NOTHING_READABLE = "NothingReadable"
    GROUP_INCOMPLETE = "GroupIncomplete"
    OTHER_REPLICAS = "OtherReplicas"


GUARDS = frozenset(
    {
        Reason.LEASE_LIVE,
        Reason.NO_CAPACITY,
        Reason.NO_TIER,
        Reason.UNSETTLED,
        Reason.WINDOW_CLOSED,
        Reason.PAUSED,
    }
)
"""Waits that stand for a rule that protects something, as opposed to plain progress of others."""


class Verdict(StrEnum):
    """The plan in one word."""

    CONVERGED = "converged"
    WORK = "work"
    WAITING = "waiting"
    BLOCKED = "blocked"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class TierView:
    """One tier as the planner sees it: profile, one `MemberState` byte a member, room, trust."""

    profile: TierProfile
    states: bytes
    capacity: TierCapacity | None = None
    """None when it could not be read."""
    settled: bool = True
    """False after an epoch or mass change until the observation has stayed the same."""
    settles_at_ms: int | None = None
    problem: str = ""
    failures: bytes = b""
    """One byte a member: how many tries in a row to read its replica here, or to bring one in, have
    failed; empty where none has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leases:
    """The live leases of the revision."""

    count: int = 0
    nearest_expiry_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Everything that a plan depends on."""

    record: RevisionMetadata
    operation: ResidencyOperation | None
    members: Members
    facts: GroupFacts
    views: tuple[TierView, ...]
    now_ms: int
    policy: Policy = field(default_factory=Policy)
    leases: Leases = field(default_factory=Leases)
    import_idle_ms: int = 0
    """How long the writer of an IMPORTING revision has not been heard of."""

    def __post_init__(self) -> None:
        for view in self.views:
            require(
                len(view.states) == len(self.members),
                f"tier {view.profile.name}: answered {len(view.states)} of {len(self.members)}",
            )
            require(
                len(view.failures) in (0, len(self.members)),
                f"tier {view.profile.name}: {len(view.failures)} counts of failures"
                f" for {len(self.members)} members",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One kind of primitive over a set of members, `mask[i] == 1` selects member i."""

    kind: StepKind
    reason: Reason
    source: str = ""
    """Tier that bytes come from, or that is read, or that loses a replica."""
    target: str = ""
    """Tier that bytes go to; for a DROP, empty."""
    mask: bytes = b""
    count: int = 0
    size_bytes: int = 0

    def indexes(self) -> Iterator[int]:
        """Selected member indexes in key order."""
        return compress(range(len(self.mask)), self.mask)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Something that the revision waits for; `until_ms` when the end is known."""

    reason: Reason
    what: str
    count: int = 0
    until_ms: int | None = None
    needed_bytes: int = 0
    free_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The answer to "what would you do, and why"."""

    verdict: Verdict
    steps: tuple[Step, ...] = ()
    waits: tuple[Wait, ...] = ()
    availability: Availability | None = None
    """As observed; None while an unanswered tier could still change it."""
    residency: Residency | None = None
    processed_members: int = 0
    total_members: int = 0
    cursor: str = ""
    lost_members: int = 0
    bytes_by_pair: Mapping[tuple[str, str], int]
    """Bytes that would move, by (source tier, target tier)."""
    needed_bytes: Mapping[str, int]
    """Bytes that would be brought into each tier."""
    free_bytes: Mapping[str, int | None]
    """Free bytes of each tier now; None when unknown."""
    converges: bool = False
    """Whether these steps and what follows from them reach the wanted state without more help."""
