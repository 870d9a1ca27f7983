"""How the tiers' media are set up, as the tiers themselves can tell.  Layer: api.

Asked for by `doctor` only: it takes longer than a look.  Nothing is changed by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import anyio

from weightctl.controller.api.planning import tier_list
from weightctl.controller.errors import WeightctlError
from weightctl.controller.ports import Check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weightctl.controller.api import documents as doc
    from weightctl.controller.api import requests
    from weightctl.controller.core.policy import Policy
    from weightctl.controller.ports import Checking, Tier

_DEADLINE_S = 30.0


async def tiers(asked: requests.Tiers, found: Sequence[Tier], policy: Policy) -> doc.TierList:
    """The tier list, and where that is asked for what the tiers tell of their media."""
    listed = await tier_list(found)
    if asked.examine:
        checks = [one for tier in found for one in await _checks(tier, policy)]
        listed["checks"] = [
            {"name": one.name, "ok": one.ok, "detail": one.detail, "todo": one.todo}
            for one in dict.fromkeys(checks)
        ]
    return listed


async def _checks(tier: Tier, policy: Policy) -> Sequence[Check]:
    name = f"medium of {tier.profile.name}"
    if not callable(getattr(tier, "checks", None)):
        return []
    try:
        with anyio.fail_after(_DEADLINE_S):
            return await cast("Checking", tier).checks(evidence_max_age_s=policy.evidence_max_age_s)
    except TimeoutError:
        why = f"it was not examined within {_DEADLINE_S:g} s"
        return [Check(name=name, ok=False, detail=why, todo="see whether its medium answers")]
    except WeightctlError as error:
        return [Check(name=name, ok=False, detail=f"{error.what}: {error.why}", todo=error.todo)]
