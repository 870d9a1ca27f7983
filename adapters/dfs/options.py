"""Options of the dfs tier.  Layer: a tier; pure.

Invariant: at least two workers, so that a transfer never holds up every observation.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from weightctl.adapters.shared.options import TierOptions
from weightctl.adapters.shared.ownership import ADOPT
from weightctl.controller.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weightctl.controller.ports import TierContext

OPTIONS = ("path", "capacity_bytes", "deadline_s", "workers", "grace_s", ADOPT)
GRACE_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DfsOptions:
    """What a person may set.

    grace_s: how long a partial file of another host must be still before it counts as dead;
    adopt: on entering the root becomes this store's, whosever it was.
    """

    path: str
    capacity_bytes: int | None = None
    deadline_s: float = 30.0
    workers: int = 3
    grace_s: float = GRACE_S
    adopt: bool = False


def parse(name: str, options: Mapping[str, object], context: TierContext) -> DfsOptions:
    """Check the options of the tier `name`.  Raises ConfigError."""
    given = TierOptions(name, options, OPTIONS)
    workers = given.count("workers", 3)
    if workers == 1:
        raise ConfigError(
            f"tier {name!r}: option 'workers' cannot be used",
            "with one worker a transfer would hold up every observation",
            "give 2 or more",
        )
    return DfsOptions(
        path=str(Path(context.state_dir) / given.text("path")),
        capacity_bytes=given.size_bytes("capacity_bytes"),
        deadline_s=given.seconds("deadline_s", 30.0),
        workers=workers,
        grace_s=given.seconds("grace_s", GRACE_S),
        adopt=given.flag(ADOPT),
    )
