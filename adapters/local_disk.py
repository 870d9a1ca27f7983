"""The local_disk tier: a folder on a disk of this host.

Layer: a tier.  Invariants: file and folder are synchronised to the medium before a replica counts
as COMPLETE; verifying drops the cached pages first; which medium belongs to the tier is remembered
in the state directory, so an unmounted disk is UNKNOWN and never empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from weightctl.adapters.shared.file_tier import FileTier
from weightctl.adapters.shared.markers import Medium
from weightctl.adapters.shared.options import TierOptions
from weightctl.adapters.shared.ownership import ADOPT
from weightctl.adapters.shared.room import Room
from weightctl.adapters.shared.root import Root
from weightctl.controller.core.identity import percent_encode
from weightctl.controller.core.tiers import Capabilities, TierProfile
from weightctl.controller.ports import Tier, TierContext

KIND = "local_disk"


def factory(name: str, options: Mapping[str, object], context: TierContext, /) -> Tier:
    """Options: `path` (relative to the state directory), `capacity_bytes`, `adopt`."""
    known = TierOptions(name, options, ("path", "capacity_bytes", ADOPT))
    state_dir = Path(context.state_dir)
    profile = TierProfile(
        name=name,
        kind=KIND,
        hot=False,
        capabilities=Capabilities(persistent=True, atomic_publish=True, checksum=True),
        bandwidth_bytes_per_s=1024**3,
        latency_s=0.001,
    )
    remembered = state_dir / "tiers" / f"{percent_encode(name)}.uuid"
    root = Root(
        Medium(
            state_dir / known.text("path"),
            KIND,
            remembered=remembered,
            durable=True,
            holder=context.holder,
        ),
        Room(known.size_bytes("capacity_bytes")),
        durable=True,
        token=context.entropy.token,
    )
    return FileTier(
        profile,
        root,
        read_only=context.read_only,
        adopt=known.flag(ADOPT),
        fence=context.fence,
    )
