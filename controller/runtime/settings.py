"""Every bound and duration of the loop, as values.  Layer: runtime.

Safe defaults: everything is bounded, nothing needs to be set.  Durations are seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from weightctl.controller.runtime.admission import TierLimits
from weightctl.controller.runtime.observer import ObserverOptions
from weightctl.controller.runtime.workqueue import QueueOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorOptions:
    """Batches and their deadlines."""

    batch_members_max: int = 64
    batch_bytes_max: int = 256 * 1024**2
    batches_at_once: int = 4
    """Batches of one pass that may be under way together."""
    deadline_s: float = 60.0
    """What a batch may take on top of moving its bytes."""
    slowest_bytes_per_s: float = 1024**2
    """Slower than this for a whole batch counts as no answer."""
    passes_per_group: int = 16
    """A pass may handle this fraction of a large group, so that looking stays worth its cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResyncOptions:
    """How often everything is looked at without being asked."""

    working_s: float = 30.0
    """Records with unfinished work."""
    published_s: float = 600.0
    """Idle published records (drift)."""
    pulse_s: float = 5.0
    """Every tier is asked this often whether it answers, and as which epoch."""
    leases_s: float = 5.0
    """Expired leases are erased this often."""
    chunk: int = 512
    """Records per slice of a round; between slices the loop is free."""
    pause_s: float = 0.0
    """Rest between the slices of a drift round, to spread its cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSettings:
    """All of the loop."""

    slots: int = 8
    """Passes at a time."""
    queue: QueueOptions = field(default_factory=QueueOptions)
    observer: ObserverOptions = field(default_factory=ObserverOptions)
    executor: ExecutorOptions = field(default_factory=ExecutorOptions)
    resync: ResyncOptions = field(default_factory=ResyncOptions)
    tiers: Mapping[str, TierLimits] = field(default_factory=dict)
    """By tier name; a tier without an entry has the default limits."""
    wait_max_s: float = 60.0
    """A wait of known end is re-read at least this often, because wall clocks jump."""
    park_s: float = 600.0
    """What will not pass by itself is probed this often."""
    stuck_after_s: float = 600.0
    drain_s: float = 20.0
    """Passes under way may take this long to end after a request to stop."""
