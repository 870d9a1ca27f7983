"""What a tier declares about itself, as values.  Layer: core (pure).

The planner sees a tier only through its profile and capacity and never branches on its name, so a
tier that nobody here has heard of is planned for like the four that ship.
"""

from __future__ import annotations

from dataclasses import dataclass, field

TIER_API_VERSION = "1.0"
"""Major and minor.  A minor only adds what a tier may leave out; a major may take away."""


def refusal_of(version: object) -> str:
    """Why a tier written for that version cannot be used here; empty when it can.

    The major has to be the same, the minor not newer: a tier may count on what its minor added.
    """
    ours = TIER_API_VERSION
    major, _, minor = version.partition(".") if isinstance(version, str) else ("", "", "")
    if not (major.isdecimal() and minor.isdecimal()):
        return f"its API version is {version!r:.40}, not a text such as {ours!r}"
    ours_major, _, ours_minor = ours.partition(".")
    if int(major) != int(ours_major):
        return f"it speaks tier API {version:.40}, this weightctl speaks {ours}"
    if int(minor) > int(ours_minor):
        return f"it needs tier API {version:.40}, this weightctl has {ours} only"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a tier declares it can do; the conformance kit checks each declared one."""

    persistent: bool = False
    shared: bool = False
    atomic_publish: bool = False
    server_side_copy: bool = False
    checksum: bool = False
    ranged_read: bool = True
    mappable: bool = False
    """`map_path` gives a file that consumers on this host can map without a copy."""
    device_direct: bool = False
    delete_is_immediate: bool = True
    list_is_consistent: bool = True
    observe_only: bool = False
    """It shows replicas that others make, and can make none: nothing is ever to be stored there."""
    instance_is_reused: bool = False
    """What somebody else puts in the place of a copy may be shown as the same instance.

    Then reading a copy back justifies a drop elsewhere only when it was done for that drop.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class TierProfile:
    """What the core may know of a tier; it never branches on the name."""

    name: str
    kind: str
    """Entry-point name of the plugin, for people only."""
    hot: bool
    """True for memory, False for every cold tier."""
    api_version: str = TIER_API_VERSION
    """What the tier was written for; a plugin states it as a text of its own."""
    capabilities: Capabilities = field(default_factory=Capabilities)
    bandwidth_bytes_per_s: int = 0
    """Expected streaming bandwidth; orders sources, 0 when not known."""
    latency_s: float = 0.0
    medium: str = ""
    """Tiers with an equal one show replicas of the same objects; empty when no other does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierCapacity:
    """Bytes used by replicas of this tier, still free for it, and its limit."""

    used_bytes: int
    free_bytes: int
    total_bytes: int
