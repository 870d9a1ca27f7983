"""Cases of the simulated loop with the profile of the tier.  Layer: conformance.

They judge what is declared, not the tier's code: a simulated tier that does what the profile says
and nothing better stands in its place, and every oracle listens.  The same profile gives the same
histories everywhere, so a process goes through them once.
"""

from dataclasses import replace
from functools import cache

import pytest
from anyio import to_thread

from weightctl.adapters.conformance.grades import Grade
from weightctl.adapters.conformance.simulation.profiles import Played, play
from weightctl.adapters.conformance.suite.cases import TierCases
from weightctl.controller.core.tiers import TierProfile
from weightctl.controller.ports import Tier

SEEDS = range(8)


class ContractOfHistories(TierCases):
    """weightctl keeps every rule with a tier of this profile, whatever goes wrong."""

    grade = Grade.SILVER

    async def test_no_history_with_its_profile_breaks_a_rule(self, tier: Tier) -> None:
        played = await to_thread.run_sync(_played, replace(tier.profile, name=""))
        if played.broken:
            pytest.fail(played.broken, pytrace=False)
        assert played.incidents, "nothing went wrong"


@cache
def _played(profile: TierProfile) -> Played:
    return play(profile, SEEDS)
