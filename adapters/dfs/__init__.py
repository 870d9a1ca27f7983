"""The dfs tier: replicas in a folder that several hosts share.  Layer: a tier.

`engine` runs in the worker processes and makes the file calls, `tier` is its face on the loop.  The
layout is that of the other file tiers (adapters/shared/layout.py).  This module imports the latter
only when it is used, so that a worker's start does not import an event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weightctl.controller.ports import Tier, TierContext


def factory(name: str, options: Mapping[str, object], context: TierContext, /) -> Tier:
    """Build the tier; its options are those of `options.DfsOptions`.  Raises ConfigError."""
    from weightctl.adapters.dfs.options import parse  # noqa: PLC0415 - see above
    from weightctl.adapters.dfs.tier import DfsTier  # noqa: PLC0415

    return DfsTier(name, parse(name, options, context), context)
