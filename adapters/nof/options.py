"""The options of a nof tier.  Layer: nof tier.

Owns their names and defaults.  Invariant: what cannot be used is refused before anything is opened.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from weightctl.adapters.nof.access import DeviceOptions
from weightctl.adapters.nof.tier import NofTier
from weightctl.adapters.shared.options import TierOptions
from weightctl.adapters.shared.ownership import ADOPT
from weightctl.controller.core.identity import percent_encode
from weightctl.controller.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weightctl.controller.ports import TierContext

_WORKERS_MIN = 2
OPTIONS = (
    "path",
    "size_bytes",
    "capacity_bytes",
    "format",
    "takeover",
    "deadline_s",
    "workers",
    ADOPT,
)


def build(name: str, options: Mapping[str, object], context: TierContext) -> NofTier:
    """Build a nof tier.  Raises ConfigError.

    path: the device or file, relative to the state directory; size_bytes: create a plain file of
    that size where there is none; capacity_bytes: use at most so much; format: format a device or
    file that is there and blank; takeover: a host that is down and did not close the device;
    deadline_s: of each call; workers: processes that move data; adopt: on entering the device
    becomes this store's.
    """
    given = TierOptions(name, options, OPTIONS)
    workers = given.count("workers", 3)
    if workers < _WORKERS_MIN:
        raise ConfigError(
            f"tier {name!r}: option 'workers' cannot be used",
            "one process that is busy with a store would keep every read waiting",
            f"write {_WORKERS_MIN} or more",
        )
    state_dir = Path(context.state_dir)
    return NofTier(
        name,
        DeviceOptions(
            path=str(state_dir / given.text("path")),
            uuid=bytes.fromhex(context.entropy.token(16)),
            size_bytes=given.size_bytes("size_bytes"),
            format=given.flag("format"),
            capacity_bytes=given.size_bytes("capacity_bytes"),
            takeover=given.text("takeover") if "takeover" in options else "",
            remembered=str(state_dir / "tiers" / f"{percent_encode(name)}.uuid"),
            owner=context.holder,
            since_ms=context.clock.wall_ms(),
            read_only=context.read_only,
        ),
        clock=context.clock,
        deadline_s=given.seconds("deadline_s", 30.0),
        workers=workers,
        adopt=given.flag(ADOPT),
        fence=context.fence,
    )
