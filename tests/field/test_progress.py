"""Work that leads nowhere: it is told, it slows down, and it never looks like progress."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.field.playing import play, told
from tests.support.loop_rig import IDENTITY, identity, place, rig, sim_tiers
from tests.support.sim_tier import SimTier
from weightctl.controller.core.observation import Members, MemberState, TierObservation
from weightctl.controller.core.policy import Policy
from weightctl.controller.core.records import Availability, Operation, Residency
from weightctl.controller.ports import Busy, Conflict, Done, Outcome, Permanent
from weightctl.controller.runtime.conditions import ConditionType
from weightctl.controller.runtime.runner import Again
from weightctl.controller.runtime.settings import RuntimeSettings

HOUR_S = 3600.0
A_MINUTE = HOUR_S / 60 + 20
"""Passes in an hour of something that is tried once a minute, and the quicker first ones."""


def answer_drops(tier: SimTier, outcome: Outcome) -> None:
    """Let every drop have this answer, and nothing else."""

    async def drop(batch: Sequence[object], *_: object, **__: object) -> Sequence[Outcome]:
        return [outcome] * len(batch)

    tier.drop = drop  # type: ignore[method-assign]


def rename_at_each_look(tier: SimTier) -> None:
    """A tier that gives another instance id each time it reads back."""
    real, count = tier.verify, [0]

    async def verify(*args: Any, **kwargs: Any) -> Sequence[Outcome]:
        count[0] += 1
        return [
            replace(outcome, instance_id=f"{outcome.instance_id}-{count[0]}")
            if isinstance(outcome, Done)
            else outcome
            for outcome in await real(*args, **kwargs)
        ]

    tier.verify = verify  # type: ignore[method-assign]


def flap(tier: SimTier) -> None:
    """Each look at a group sees all of it, or nothing, in turn."""
    real, looks = tier.observe, Counter[str]()

    async def observe(members: Members, **kwargs: Any) -> TierObservation:
        seen = await real(members, **kwargs)
        looks[members.group_id] += 1
        if looks[members.group_id] % 2:
            states = bytes([MemberState.ABSENT]) * len(seen.states)
            return replace(seen, states=states, details={})
        return seen

    tier.observe = observe  # type: ignore[method-assign]


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Busy(), id="a replica is held for ever"),
        pytest.param(Conflict(detail="another"), id="it is always another one"),
        pytest.param(Done(instance_id="x"), id="done, and still there"),
        pytest.param(None, id="what was read back is never what is seen"),
    ],
)
async def test_attempts_that_free_nothing_are_called_stuck_and_slow_down(
    tmp_path: Path, fault: Outcome | None
) -> None:
    mem, disk, far = sim_tiers()
    async with rig(tmp_path, (mem, disk, far)) as r:
        data = await r.publish()
        for tier in (mem, disk):
            place(tier, IDENTITY, data)
        await r.converge()
        if fault is None:
            rename_at_each_look(disk)
        else:
            answer_drops(mem, fault)
        await r.start(Residency.COLD)
        cost = await play(r, HOUR_S)
        assert len(mem.contents()) == len(data), "nothing was freed"
        assert told(r, ConditionType.STUCK).status
        assert told(r, ConditionType.STUCK).reason == "NoProgress"
        assert cost.passes <= 4 * A_MINUTE
        assert cost.writes <= A_MINUTE


@pytest.mark.parametrize("wakes", [False, True])
@pytest.mark.parametrize("operation", [Operation.NONE, Operation.EVICTING, Operation.REHYDRATING])
async def test_a_tier_that_flaps_costs_a_pass_and_a_write_a_minute(
    tmp_path: Path, operation: Operation, wakes: bool
) -> None:
    mem, disk, far = sim_tiers()
    async with rig(tmp_path, (mem, disk, far), policy=Policy(mass_change_share=1.0)) as r:
        data = await r.publish()
        for tier in (mem, disk):
            place(tier, IDENTITY, data)
        await r.converge()
        if operation is Operation.EVICTING:
            answer_drops(mem, Busy())
            await r.start(Residency.COLD)
        elif operation is Operation.REHYDRATING:
            mem.wipe(new_epoch=False)
            await r.converge()
            await r.start(Residency.HOT)
        flap(disk if operation is Operation.EVICTING else mem)
        cost = await play(r, HOUR_S, wakes=wakes)
        assert cost.passes <= 2 * A_MINUTE
        assert cost.writes <= 2 * A_MINUTE


async def test_a_refusal_for_good_is_probed_once_in_a_long_interval(tmp_path: Path) -> None:
    mem, disk, far = sim_tiers()
    async with rig(tmp_path, (mem, disk, far), settings=RuntimeSettings(park_s=600.0)) as r:
        data = await r.publish()
        for tier in (mem, disk):
            place(tier, IDENTITY, data)
        await r.converge()
        answer_drops(mem, Permanent(detail="the disk is mounted read-only"))
        await r.start(Residency.COLD)
        cost = await play(r, 24 * HOUR_S)
        assert cost.passes <= 24 * 7 + 5
        failing = told(r, ConditionType.FAILING)
        assert (failing.status, failing.reason) == (True, "Permanent")
        assert "mounted read-only" in failing.message
        assert told(r, ConditionType.STUCK).status


async def test_a_new_wish_is_worked_on_at_once_whatever_the_last_one_ran_into(
    tmp_path: Path,
) -> None:
    mem, disk, far = sim_tiers()
    async with rig(tmp_path, (mem, disk, far), policy=Policy(mass_change_share=1.0)) as r:
        data = await r.publish()
        for tier in (mem, disk):
            place(tier, IDENTITY, data)
        await r.converge()
        steady = mem.observe
        flap(mem)
        await play(r, HOUR_S)
        await r.step()
        waiting = await r.step()
        assert isinstance(waiting, Again)
        assert waiting.after_s > 10, "what leads nowhere waits"
        mem.observe = steady  # type: ignore[method-assign]
        looked = mem.observed_count
        await r.start(Residency.COLD)
        await r.step()
        assert mem.observed_count > looked
        before_s = r.clock.monotonic_s()
        await play(r, HOUR_S)
        assert await r.summary() == (Availability.READY, Residency.COLD, Operation.NONE)
        assert r.clock.monotonic_s() - before_s < 60


async def test_evidence_that_ages_on_the_way_costs_one_short_rest(tmp_path: Path) -> None:
    mem, disk, far = sim_tiers()
    policy = Policy(evidence_max_age_s=50.0, pass_members_max=2)
    async with rig(tmp_path, (mem, disk, far), policy=policy) as r:
        data = await r.publish(payloads=11)
        for tier in (mem, disk):
            place(tier, IDENTITY, data)
        await r.converge()
        await r.start(Residency.COLD)
        for _ in range(4):
            await r.step()
        r.clock.jump(51.0)  # what was read back so far counts for nothing any more
        before = r.clock.monotonic_s()
        await play(r, 40.0)
        assert (await r.record()).operation is Operation.NONE
        assert r.clock.monotonic_s() - before < 1.0


async def test_copies_that_take_longer_to_read_than_their_evidence_counts_are_dropped_on_the_way(
    tmp_path: Path,
) -> None:
    """A large group on slow media: else its first copies are read again before the last were."""
    mem, disk, far = sim_tiers()
    policy = Policy(evidence_max_age_s=50.0, pass_members_max=2)
    async with rig(tmp_path, (mem, disk, far), policy=policy) as r:
        data = await r.publish(payloads=11)
        for tier in (mem, disk):
            place(tier, IDENTITY, data)
        await r.converge()
        await r.start(Residency.COLD)
        for _ in range(20):
            await r.step()
            r.clock.jump(15.0)  # so long a pass takes there
        assert await r.summary() == (Availability.READY, Residency.COLD, Operation.NONE)


async def test_revisions_that_fail_together_do_not_come_back_together(tmp_path: Path) -> None:
    mem, disk, far = sim_tiers()
    many = [identity(number) for number in range(40)]
    async with rig(tmp_path, (mem, disk, far), policy=Policy(mass_change_share=1.0)) as r:
        for of in many:
            place(mem, of, await r.publish(of, payloads=1))
            await r.converge(of)
        flap(mem)
        for _ in range(7):
            r.clock.jump(2.0)
            for of in many:
                await r.step(of)
        pauses = [r.reconciler._headway.pause_s(await r.record(of)) for of in many]
        waiting = sorted(pause for pause in pauses if pause)
        assert len(waiting) > len(many) / 2
        assert waiting[-1] - waiting[0] > waiting[-1] / 4, "they are spread"
