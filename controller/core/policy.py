"""What the operator wants, as values.  Layer: core (pure).

Owns the knobs that the planner and the executor read: tier preference, wanted cold copies, evidence
age, hysteresis, per-pass budgets, the import limit and maintenance windows.  Everything is bounded
by default; nothing here names a tier that ships.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from weightctl.controller.core.records import IMPORT_ABANDON_MS

_MINUTE_MS = 60_000
_DAY_MINUTES = 24 * 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A daily UTC window, minutes of the day; `end_minute` below `start_minute` wraps midnight."""

    start_minute: int
    end_minute: int

    def wait_ms(self, now_ms: int) -> int:
        """Milliseconds until the window is open; 0 while it is."""
        minute = now_ms // _MINUTE_MS % _DAY_MINUTES
        length = (self.end_minute - self.start_minute) % _DAY_MINUTES or _DAY_MINUTES
        if (minute - self.start_minute) % _DAY_MINUTES < length:
            return 0
        until = (self.start_minute - minute) % _DAY_MINUTES
        return until * _MINUTE_MS - now_ms % _MINUTE_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Cluster-wide policy.  Durations in seconds, sizes in bytes."""

    tier_preference: tuple[str, ...] = ()
    """Names of tiers in the order in which they are filled; unnamed ones follow, fastest first."""
    cold_copies: int = 1
    """Good cold copies that a repair asks for, per member."""
    auto_repair: bool = False
    """Start a repair towards these by itself, of an idle revision that has fewer."""
    evidence_max_age_s: float = 3600.0
    """How long a read-back copy justifies a drop."""
    settle_s: float = 10.0
    """How long an observation must stay the same after an epoch change or a mass change."""
    mass_change_share: float = 0.2
    """Share of a group's members whose verdict may change at once without settling first."""
    import_abandon_ms: int = IMPORT_ABANDON_MS
    pass_members_max: int = 256
    pass_bytes_max: int = 4 * 1024**3
    windows: tuple[Window, ...] = field(default=())
    """When work that moves or drops bytes may run; empty means always."""
    paused: bool = False
    retired_tiers: tuple[str, ...] = ()
    """Names of former tiers whose media are gone: nothing is expected there any more."""
    members_budget: int = 100_000
    """Members of one revision beyond which reports warn: each costs memory, a row and a look."""

    def closed_for_ms(self, now_ms: int) -> int | None:
        """0 when work may run, else milliseconds until it may; None while paused."""
        if self.paused:
            return None
        return min((window.wait_ms(now_ms) for window in self.windows), default=0)
