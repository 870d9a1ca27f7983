"""What tiers hold that nobody owns.  Layer: api; writes nothing anywhere.

A group in a tier is owned by a revision that is not deleted, or by rows of the directory.  What is
neither is told, by tier, with the reason; nothing is removed on the strength of this report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from weightctl.controller.api import views
from weightctl.controller.errors import WeightctlError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weightctl.controller.api import documents as doc
    from weightctl.controller.api.planning import Planning
    from weightctl.controller.ports import InventoryItem, Tier

NEXT = {
    "NotListed": "what it holds is not known: see `weightctl doctor`, then list again",
    "OwnerDeleted": "its revision stays deleted; weightctl removes nothing that it does not own:"
    " remove these objects with the medium's own tools",
    "NoOwner": "take them into management with `weightctl adopt`, or remove them with the medium's"
    " own tools; weightctl removes nothing that it does not own",
}
"""By reason, what a person can do."""
LISTING_DEADLINE_S = 300.0
"""A tier that has not listed everything by then is told as not listed."""


async def orphan_list(planning: Planning) -> doc.OrphanList:
    """List every tier wholly, one after the other, and compare it with the records."""
    items = [row for tier in planning.tiers for row in await _of_tier(planning, tier)]
    return {"apiVersion": views.API_VERSION, "kind": "OrphanList", "items": items}


async def _of_tier(planning: Planning, tier: Tier) -> list[doc.OrphanFields]:
    name = tier.profile.name
    try:
        with anyio.fail_after(LISTING_DEADLINE_S):
            listed = await tier.inventory()
    except TimeoutError:
        return [_told(name, "", f"NotListed: no list within {LISTING_DEADLINE_S:g} s")]
    except WeightctlError as error:
        return [_told(name, "", "NotListed: " + (error.why or error.what))]
    return await _unowned(planning, name, listed)


async def _unowned(
    planning: Planning, tier: str, listed: Mapping[str, Sequence[InventoryItem]]
) -> list[doc.OrphanFields]:
    """Owners are asked for after the listing: what was begun meanwhile has one by then."""
    owned, deleted = await planning.records.groups()
    return [
        _told(
            tier,
            group_id,
            "OwnerDeleted: its revision is a tombstone"
            if group_id in deleted
            else "NoOwner: no record and no row of the directory",
            items,
        )
        for group_id, items in sorted(listed.items())
        if items and group_id not in owned
    ]


def _told(
    tier: str, group_id: str, why: str, items: Sequence[InventoryItem] = ()
) -> doc.OrphanFields:
    return views.orphan(tier, group_id, why, items, todo=NEXT[why.split(":", maxsplit=1)[0]])
