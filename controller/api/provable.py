"""Whether what an operation has to read back can be read back at all.  Layer: api; writes nothing.

A tier may show a replica of which it can never say that it is right, as long as another one is
there (`ports.Doubting`).  An operation that needs it would hold the revision without an end, so it
is not started.  Invariant: a tier that gives no answer refuses nothing.
"""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING, cast

from weightctl.controller.core.aggregate import readable_mask
from weightctl.controller.core.observation import MemberState
from weightctl.controller.core.refusals import not_ready
from weightctl.controller.errors import WeightctlError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weightctl.controller.core.plan import Situation, TierView
    from weightctl.controller.errors import WeightError
    from weightctl.controller.ports import Doubting, Tier

_WAY_OUT = (
    "it can be loaded as it is; configure a cold tier of another medium, or delete it and import it"
    " again under a new weight generation"
)
_UNREAD = bytes(state == MemberState.COMPLETE for state in range(256))


async def dead_end(situation: Situation, tiers: Sequence[Tier], verb: str) -> WeightError | None:
    """The refusal of an evict or a repair that could not end; None where nothing speaks against it.

    Both end without such a replica where a cold tier of another medium can have the copy.
    """
    views = {view.profile.name: view for view in situation.views}
    for tier in tiers:
        view = views.get(tier.profile.name)
        if view is None or view.profile.hot or not hasattr(tier, "unprovable"):
            continue
        if _is_elsewhere(view, situation.views):
            continue
        found = await _asked(cast("Doubting", tier), situation, view)
        for key in found:
            more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            return not_ready(
                situation.record.identity,
                f"{verb} could not end: {view.profile.name} cannot prove its copy of {key}{more}:"
                f" {found[key]}",
                _WAY_OUT,
            )
    return None


def _is_elsewhere(doubted: TierView, views: Sequence[TierView]) -> bool:
    """Whether a cold tier of another medium can take what is needed."""
    return any(
        not view.profile.hot
        and not view.profile.capabilities.observe_only
        and view.profile.medium != doubted.profile.medium
        for view in views
        if view is not doubted
    )


async def _asked(tier: Doubting, situation: Situation, view: TierView) -> Mapping[str, str]:
    """What the tier says of the replicas that would be read back: those beside a hot one."""
    hot = 0
    for other in situation.views:
        if other.profile.hot:
            hot |= int.from_bytes(readable_mask(other.states), "little")
    flags = hot & int.from_bytes(view.states.translate(_UNREAD), "little")
    members = situation.members
    indexes = compress(range(len(members)), flags.to_bytes(len(members), "little"))
    asked = [members.member(index) for index in indexes]
    try:
        return await tier.unprovable(asked) if asked else {}
    except WeightctlError:
        return {}
