"""A tier that held replicas and is not configured any more is not taken for empty."""

from pathlib import Path

import pytest

from tests.field.playing import play, told
from tests.support.loop_rig import IDENTITY, place, rig, sim_tiers
from weightctl.controller.api import views
from weightctl.controller.api.app import StoreRecords
from weightctl.controller.api.planning import Planning
from weightctl.controller.core.plan import Plan, Reason, Verdict
from weightctl.controller.core.policy import Policy
from weightctl.controller.core.records import Availability, Operation, Residency
from weightctl.controller.runtime.conditions import ConditionType

DELETED, DELETING = Availability.DELETED, Availability.DELETING


async def test_a_deletion_waits_for_a_tier_that_was_used_and_is_not_configured(
    tmp_path: Path,
) -> None:
    mem, disk, far = sim_tiers()
    async with rig(tmp_path, (mem, disk, far)) as r:
        data = await r.publish()
        for tier in (mem, disk, far):
            place(tier, IDENTITY, data)
        await r.converge()
        clock = r.clock
    async with rig(tmp_path, (mem, disk), clock=clock) as r:
        await r.delete()
        await play(r, 3600)
        assert (await r.record()).availability is DELETING
        blocked = told(r, ConditionType.BLOCKED)
        assert (blocked.status, blocked.reason) == (True, Reason.TIER_UNKNOWN)
        assert "far: it was used and is not configured" in blocked.message
        asked = Planning(
            records=StoreRecords(r.store), tiers=(mem, disk), policy=Policy(), clock=clock
        )
        plan = await asked.plan(await asked.records.subject(IDENTITY))
        assert plan["verdict"] == Verdict.WAITING
        assert [wait["reason"] for wait in plan["waits"]] == [Reason.TIER_UNKNOWN]
    async with rig(tmp_path, (mem, disk, far), clock=clock) as r:
        await r.converge()
        assert (await r.record()).availability is DELETED
    assert [tier.contents() for tier in (mem, disk, far)] == [{}, {}, {}]


async def test_a_tier_that_is_said_to_be_gone_holds_no_deletion(tmp_path: Path) -> None:
    mem, disk, far = sim_tiers()
    async with rig(tmp_path, (mem, disk, far)) as r:
        place(mem, IDENTITY, await r.publish())
        await r.converge()
        clock = r.clock
    policy = Policy(retired_tiers=("far",))
    async with rig(tmp_path, (mem, disk), clock=clock, policy=policy) as r:
        await r.delete()
        await r.converge()
        assert (await r.record()).availability is DELETED


async def test_other_operations_do_without_the_tier_that_is_not_configured(
    tmp_path: Path,
) -> None:
    mem, disk, far = sim_tiers()
    async with rig(tmp_path, (mem, disk, far)) as r:
        place(mem, IDENTITY, await r.publish())
        await r.converge()
        clock = r.clock
    async with rig(tmp_path, (mem, disk), clock=clock) as r:
        await r.start(Residency.COLD)
        await r.converge()
        assert await r.summary() == (Availability.READY, Residency.COLD, Operation.NONE)


@pytest.mark.parametrize("count, warned", [(100_000, False), (100_001, True), (0, False)])
def test_a_plan_warns_of_more_members_than_the_budget(count: int, warned: bool) -> None:
    value = Plan(
        verdict=Verdict.CONVERGED,
        total_members=count,
        bytes_by_pair={},
        needed_bytes={},
        free_bytes={},
    )
    warnings = views.warnings(value, Policy())
    assert bool(warnings) is warned
    document = views.plan(IDENTITY, "keep", [value], warnings=warnings)
    assert document["warnings"] == warnings
    assert all(f"{count} members" in warning for warning in warnings)
