"""Members of which nothing readable is left.  Layer: core (pure).

No operation brings such a member back, so none that could never end is started on a revision that
has one.  Invariant: a tier that gave no answer, or is still writing, may have it.
"""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING

from weightctl.controller.core import aggregate as agg
from weightctl.controller.core.masks import Masks

if TYPE_CHECKING:
    from weightctl.controller.core.plan import Situation

_MAY_BE_READABLE = agg.HOT | agg.COLD | agg.HOT_PENDING | agg.COLD_PENDING | agg.UNANSWERED
_SHOWN = 3


def lost_mask(situation: Situation, masks: Masks) -> int:
    """Their mask; 0 where no tier was asked."""
    return masks.everyone & ~masks.flagged(_MAY_BE_READABLE) if situation.views else 0


def lost_keys(situation: Situation) -> tuple[str, ...]:
    """Their keys, in key order; empty where no tier was asked."""
    masks = Masks(situation)
    flags = lost_mask(situation, masks).to_bytes(masks.size, "little")
    return tuple(compress(situation.members.keys, flags))


def gone_keys(situation: Situation) -> tuple[str, ...]:
    """Those of them of which no tier has anything at all, not even wrong bytes."""
    if not situation.views:
        return ()
    masks = Masks(situation)
    there = masks.flagged(_MAY_BE_READABLE | agg.CORRUPT)
    flags = (masks.everyone & ~there).to_bytes(masks.size, "little")
    return tuple(compress(situation.members.keys, flags))


def named(keys: tuple[str, ...]) -> str:
    """The first few of them for people, and how many more there are."""
    more = len(keys) - _SHOWN
    return ", ".join(keys[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
