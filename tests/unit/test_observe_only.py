"""A tier that only shows what others make: nothing is planned into it, and nothing imported."""

from dataclasses import replace

import pytest

from tests.support.sim_tier import SimTier
from tests.support.situations import situation
from weightctl.controller.core.plan import Situation, StepKind, Verdict
from weightctl.controller.core.planner import plan
from weightctl.controller.core.policy import Policy
from weightctl.controller.core.records import Operation
from weightctl.controller.core.tiers import TierProfile
from weightctl.controller.errors import ConfigError
from weightctl.controller.runtime.guard import copies_short
from weightctl.controller.weightstore.placement import check


def shown(profile: TierProfile) -> TierProfile:
    return replace(profile, capabilities=replace(profile.capabilities, observe_only=True))


def seen(tiers: dict[str, str], operation: Operation, policy: Policy | None = None) -> Situation:
    """A situation in which `far` is a tier that only shows."""
    made = situation(tiers, operation=operation, policy=policy or Policy())
    views = tuple(
        replace(view, profile=shown(view.profile)) if view.profile.name == "far" else view
        for view in made.views
    )
    return replace(made, views=views)


def test_an_eviction_waits_for_a_tier_that_takes_a_copy() -> None:
    made = plan(seen({"mem": "cc", "far": "--"}, Operation.EVICTING))
    assert [wait.reason for wait in made.waits] == ["NoTier"]
    assert made.verdict is Verdict.BLOCKED


def test_a_copy_goes_to_the_tier_that_takes_one() -> None:
    made = plan(seen({"mem": "cc", "disk": "--", "far": "--"}, Operation.EVICTING))
    assert {step.target for step in made.steps if step.kind is StepKind.STORE} == {"disk"}


def test_a_copy_that_others_made_counts() -> None:
    made = plan(seen({"mem": "cc", "far": "vv"}, Operation.EVICTING))
    assert [step.kind for step in made.steps] == [StepKind.DROP]


def test_the_guard_starts_no_repair_for_copies_that_nobody_could_make() -> None:
    policy = Policy(cold_copies=2)
    assert not copies_short(seen({"mem": "cc", "disk": "cc", "far": "--"}, Operation.NONE, policy))
    assert copies_short(seen({"mem": "cc", "disk": "-c", "far": "--"}, Operation.NONE, policy))


@pytest.mark.parametrize("names, told", [(None, "far .sim. shows"), (["mem", "far"], "far")])
def test_an_import_is_refused_before_anything_is_read(names: list[str] | None, told: str) -> None:
    tiers = [SimTier("mem", hot=True), SimTier("far", hot=False)]
    check(tiers, names)
    tiers[1].profile = shown(tiers[1].profile)
    with pytest.raises(ConfigError, match=told) as refused:
        check(tiers, names)
    assert "can make none" in refused.value.why
    check(tiers, ["mem"])
