"""The nof tier: replicas on an NVMe namespace, or a plain file, with a layout of its own.

Layer: a tier.  `layout`, `records`, `allocator` and `pieces` are pure; `medium` moves bytes;
`header` and `index` are what lies on the device; `device` is its one writer, in `index_engine`'s
worker; `data_engine` moves replicas in other workers; `tier` is what the loop sees.  Invariant: no
call of the loop's process touches the medium.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weightctl.controller.ports import Tier, TierContext


def factory(name: str, options: Mapping[str, object], context: TierContext) -> Tier:
    """Build a nof tier; `options.build` has its options.  Raises ConfigError."""
    # The workers import this package, too, and want no event loop.
    from weightctl.adapters.nof.options import build  # noqa: PLC0415

    return build(name, options, context)
