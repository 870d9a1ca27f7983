"""What one pass, or one dry run, was told; the pass that is running is found by its context."""

from contextvars import ContextVar
from dataclasses import dataclass, field

from weightctl.controller.core.identity import Identity
from weightctl.controller.core.observation import Members, TierObservation


@dataclass(slots=True, eq=False)
class Look:
    """The last detailed answer about one replica."""

    at_s: float
    state: int
    instance_id: str
    epoch: str
    as_recorded: bool
    """Whether size and digest, as far as they were told, are the member's."""


@dataclass(slots=True, eq=False)
class PassTrace:
    """What one pass, or one dry run, was told."""

    identity: Identity
    started_s: float
    dry: bool = False
    answers: dict[str, tuple[Members, TierObservation, float]] = field(default_factory=dict)
    """The last whole look at each tier."""
    looks: dict[tuple[str, str], Look] = field(default_factory=dict)
    inventories: dict[str, tuple[bool, float]] = field(default_factory=dict)
    """By tier: whether it listed anything, and when."""
    unsettled: dict[str, str] = field(default_factory=dict)
    """By tier: why its answer may not be relied on for a removal; empty when it may."""
    wrong: bool = False
    """Whether a copy did not have its bytes when a tier answered; it may be gone by now."""
    held: str = ""
    """Why nothing may be moved or dropped by a plan that was made when this one's was."""
    sent_members: int = 0
    sent_bytes: int = 0
    stored: set[str] = field(default_factory=set)
    """Members that were sent somewhere; a source at fault is read back beside the plan."""
    read_for_drops: set[str] = field(default_factory=set)
    """Members that were read back in a tier that shows another copy as the same."""
    lied: set[str] = field(default_factory=set)
    """Tiers that told this pass something that is not so."""


PASS: ContextVar[PassTrace | None] = ContextVar("PASS", default=None)
