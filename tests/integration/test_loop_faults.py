"""The loop when tiers, clocks and processes do not behave."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

from tests.support.cutting import Cut, Cutter
from tests.support.loop_rig import IDENTITY, identity, members_of, place, rig, sim_tiers
from tests.support.sim_tier import SimTier, World
from weightctl.controller.core.observation import MemberState
from weightctl.controller.core.plan import Reason, Verdict
from weightctl.controller.core.policy import Policy
from weightctl.controller.core.records import Availability, Operation, Residency
from weightctl.controller.errors import InvariantViolationError
from weightctl.controller.runtime.observer import ObserverOptions
from weightctl.controller.runtime.runner import Again, Failed
from weightctl.controller.runtime.settings import ExecutorOptions, RuntimeSettings

READY, DEGRADED = Availability.READY, Availability.DEGRADED
HOT, COLD, ABSENT = Residency.HOT, Residency.COLD, Residency.ABSENT
NONE, EVICTING = Operation.NONE, Operation.EVICTING
QUICK = RuntimeSettings(
    observer=ObserverOptions(deadline_s=0.2), executor=ExecutorOptions(deadline_s=1.0)
)


def unknown_in(tier: SimTier, kind: str) -> None:
    setattr(tier.faults, kind, True)


@pytest.mark.parametrize("kind", ["silent", "short"])
async def test_an_unanswering_cold_tier_is_never_taken_for_empty(tmp_path: Path, kind: str) -> None:
    world = World()
    mem, disk, far = sim_tiers(world)
    async with rig(tmp_path, (mem, disk, far)) as r:
        data = await r.publish()
        place(disk, IDENTITY, data)
        await r.converge()
        unknown_in(disk, kind)
        await r.settle()
        assert await r.summary() == (READY, COLD, NONE), "no answer changes nothing"
        await r.delete()
        await r.settle()
        assert (await r.record()).availability is Availability.DELETING
        assert len(disk.contents()) == len(data)
        conditions = {condition.type.value: condition for condition in r.board.of(IDENTITY)}
        assert conditions["Blocked"].reason == Reason.TIER_UNKNOWN
        setattr(disk.faults, kind, False)
        await r.converge()
        assert (await r.record()).availability is Availability.DELETED


async def test_a_hanging_tier_costs_its_deadline_once_and_holds_nobody_else(tmp_path: Path) -> None:
    mem, disk, far = sim_tiers()
    async with rig(tmp_path, (mem, disk, far), settings=QUICK) as r:
        data = await r.publish()
        place(mem, IDENTITY, data)
        await r.converge()
        far.faults.hang = True
        await r.start(COLD)

        async def one_step() -> None:
            task = asyncio.create_task(r.step())
            for _ in range(100):
                if task.done():
                    break
                await r.clock.advance(0.05)
            await task

        before_s = r.clock.monotonic_s()
        await one_step()
        first_s = r.clock.monotonic_s() - before_s
        assert 0.2 <= first_s < 1.0
        before_s = r.clock.monotonic_s()
        await one_step()
        assert r.clock.monotonic_s() - before_s <= 0.05, "a silent tier is not asked each time"
        assert "no answer within" in r.observer.problems()["far"]
        far.faults.hang = False
        r.clock.jump(2)
        await r.converge()
        assert await r.summary() == (READY, COLD, NONE)
        assert r.observer.problems()["far"] == ""


@pytest.mark.parametrize("fault", ["lose_answers", "cut_batches", "refuse_batches"])
@pytest.mark.parametrize("verb", ["evict", "delete"])
async def test_lost_partial_and_refused_answers_are_observed_again(
    tmp_path: Path, fault: str, verb: str
) -> None:
    world = World()
    mem, disk, far = sim_tiers(world)
    async with rig(tmp_path, (mem, disk, far)) as r:
        data = await r.publish(payloads=5)
        place(mem, IDENTITY, data)
        await (r.start(COLD) if verb == "evict" else r.delete())
        for tier in (mem, disk, far):
            setattr(tier.faults, fault, 2)
        await r.converge()
        if verb == "evict":
            assert await r.summary() == (READY, COLD, NONE)
            assert all(disk.find(key) is not None for key in data)
        assert mem.contents() == {}


async def test_a_tier_that_promises_to_be_back_in_days_is_asked_again_soon(tmp_path: Path) -> None:
    mem, disk, far = sim_tiers()
    async with rig(tmp_path, (mem, disk, far), settings=QUICK) as r:
        place(mem, IDENTITY, await r.publish())
        await r.converge()
        await r.start(COLD)
        for tier in (disk, far):
            tier.faults.refuse_batches, tier.faults.back_in_s = 1, 1e6
        following = await r.step()
        assert isinstance(following, Failed)
        assert following.at_least_s == QUICK.wait_max_s
        await r.converge()
        assert await r.summary() == (READY, COLD, NONE)


async def test_after_an_epoch_change_nothing_is_destroyed_until_it_has_settled(
    tmp_path: Path,
) -> None:
    world = World()
    mem, disk, far = sim_tiers(world)
    policy = Policy(settle_s=10.0)
    async with rig(tmp_path, (mem, disk, far), policy=policy) as r:
        data = await r.publish()
        for tier in (mem, disk):
            place(tier, IDENTITY, data)
        await r.converge()
        disk.epoch += 1
        await r.start(COLD)
        following = await r.step()
        await r.step()
        assert not [event for event in world.history if event.verb == "drop"]
        plan = (await r.reconciler.ask(IDENTITY)).plan
        assert any(wait.reason is Reason.UNSETTLED for wait in plan.waits)
        assert r.store.tier_epochs.get("disk") == "1", "durable only once it is trusted"
        assert isinstance(following, Again)
        await r.converge()
        drops = [event for event in world.history if event.verb == "drop"]
        assert len(drops) == len(data)
        assert r.store.tier_epochs.get("disk") == "2"


async def test_an_epoch_change_is_noticed_across_a_restart(tmp_path: Path) -> None:
    world = World()
    tiers = mem, disk, _ = sim_tiers(world)
    async with rig(tmp_path, tiers) as r:
        data = await r.publish()
        for tier in (mem, disk):
            place(tier, IDENTITY, data)
        await r.converge()
        await r.start(COLD)
        clock = r.clock
    mem.epoch += 1
    async with rig(tmp_path, tiers, clock=clock) as r:
        await r.step()
        await r.step()
        assert not [event for event in world.history if event.verb == "drop"]
        await r.converge()
        assert await r.summary() == (READY, COLD, NONE)


async def test_a_mass_change_of_verdicts_settles_before_anything_is_destroyed(
    tmp_path: Path,
) -> None:
    world = World()
    mem, disk, far = sim_tiers(world)
    async with rig(tmp_path, (mem, disk, far)) as r:
        data = await r.publish(payloads=9)
        for tier in (mem, disk):
            place(tier, IDENTITY, data)
        await r.converge()
        held = dict(far.replicas)
        place(far, IDENTITY, data)  # a look through a fault: everything is suddenly there
        await r.start(COLD)
        for _ in range(3):
            await r.step()
        assert not [event for event in world.history if event.verb == "drop"]
        far.replicas = held
        await r.converge()
        assert await r.summary() == (READY, COLD, NONE)


async def test_evidence_of_another_instance_does_not_justify_a_drop(tmp_path: Path) -> None:
    world = World()
    mem, disk, far = sim_tiers(world)
    async with rig(tmp_path, (mem, disk, far)) as r:
        data = await r.publish(payloads=1)
        for tier in (mem, disk):
            place(tier, IDENTITY, data)
        await r.converge()
        await r.start(COLD)
        await r.step()  # verifies
        assert r.observer.evidence.merge("disk", disk_group(data), bytes([3, 3]), "1", 3600) == (
            bytes([MemberState.VERIFIED] * 2)
        )
        for member in members_of(IDENTITY, data):  # replaced behind our back, one copy wrong
            disk.replicas.clear()
            disk.put(member, data[member.key])
        for member in members_of(IDENTITY, data):
            if disk.find(member.key) is None:
                disk.put(member, b"\0" * member.size_bytes)
        await r.step()
        assert not [event for event in world.history if event.verb == "drop"]
        await r.converge()
        for key, content in data.items():
            copies = [copy for t in (disk, far) if (copy := t.find(key)) is not None]
            assert any(bytes(copy.content) == content for copy in copies)


def disk_group(data: dict[str, bytes]) -> str:
    return members_of(IDENTITY, data)[0].group_id


async def test_evidence_ages_by_the_monotonic_clock_and_wall_jumps_change_nothing(
    tmp_path: Path,
) -> None:
    mem, disk, far = sim_tiers()
    async with rig(tmp_path, (mem, disk, far), policy=Policy(evidence_max_age_s=100)) as r:
        data = await r.publish(payloads=1)
        for tier in (mem, disk):
            place(tier, IDENTITY, data)
        await r.converge()
        await r.start(COLD)
        await r.step()
        for jump_s in (3600, -7200):
            r.clock.jump_wall(jump_s)
            states = r.observer.evidence.merge("disk", disk_group(data), bytes([3, 3]), "1", 100)
            assert states == bytes([MemberState.VERIFIED] * 2)
        r.clock.jump(101)
        states = r.observer.evidence.merge("disk", disk_group(data), bytes([3, 3]), "1", 100)
        assert states == bytes([MemberState.COMPLETE] * 2)


@pytest.mark.parametrize("jump_s", [3600, -3600])
@pytest.mark.parametrize("verb", ["evict", "rehydrate", "delete"])
async def test_an_hour_of_clock_jump_in_the_middle_changes_no_result(
    tmp_path: Path, jump_s: int, verb: str
) -> None:
    mem, disk, far = sim_tiers()
    async with rig(tmp_path, (mem, disk, far)) as r:
        data = await r.publish()
        place(disk if verb == "rehydrate" else mem, IDENTITY, data)
        await r.converge()
        updated_ms = (await r.record()).updated_at_ms
        match verb:
            case "evict":
                await r.start(COLD)
            case "rehydrate":
                await r.start(HOT)
            case _:
                await r.delete()
        await r.step()
        r.clock.jump_wall(jump_s)
        await r.converge()
        record = await r.record()
        assert record.updated_at_ms >= updated_ms
        assert record.operation is NONE
        wanted = {"evict": COLD, "rehydrate": HOT, "delete": ABSENT}
        assert record.residency is wanted[verb]


async def test_a_wait_of_known_end_is_read_again_within_a_minute_when_the_wall_jumps_back(
    tmp_path: Path,
) -> None:
    mem, disk, far = sim_tiers()
    async with rig(tmp_path, (mem, disk, far)) as r:
        data = await r.publish()
        place(mem, IDENTITY, data)
        mem.faults.busy_until_ms = r.clock.wall_ms() + 5000
        await r.delete()
        r.clock.jump_wall(-3600)
        following = await r.step()
        assert following == Again(after_s=60.0, progressed=False)


async def test_a_stale_fence_abandons_the_pass_without_a_further_write(tmp_path: Path) -> None:
    world = World()
    mem, disk, far = sim_tiers(world)

    async with rig(tmp_path, (mem, disk, far)) as r:
        data = await r.publish()
        for tier in (mem, disk):
            place(tier, IDENTITY, data)
        await r.converge()
        await r.start(COLD)
        await r.step()
        real = r.store.evidence.record

        async def overtaken(*args: Any) -> None:
            await real(*args)
            record = await r.record()
            await r.store.update_progress(
                operation_id=record.operation_id,
                processed_members=0,
                total_members=4,
                cursor="",
                availability=DEGRADED,
                residency=Residency.MIXED,
            )

        r.store.evidence.record = overtaken  # type: ignore[method-assign,assignment]
        before = list(world.history)
        generation = (await r.record()).metadata_generation
        assert await r.step() == Failed(generation=generation)
        assert world.history == before
        r.store.evidence.record = real  # type: ignore[method-assign]
        await r.converge()
        assert await r.summary() == (READY, COLD, NONE)


async def test_a_lease_that_appears_just_before_the_drop_stops_it(tmp_path: Path) -> None:
    world = World()
    mem, disk, far = sim_tiers(world)
    async with rig(tmp_path, (mem, disk, far)) as r:
        data = await r.publish()
        for tier in (mem, disk):
            place(tier, IDENTITY, data)
        await r.converge()
        await r.start(COLD)
        await r.step()
        real, calls = r.store.leases, [0]

        class Lease:
            expires_at_ms = r.clock.wall_ms() + 20_000

        def leases(**_: object) -> tuple[object, ...]:
            calls[0] += 1
            return (Lease(),) if calls[0] > 1 else ()

        r.store.leases = leases  # type: ignore[assignment,method-assign]
        following = await r.step()
        assert isinstance(following, Again)
        assert following.after_s == pytest.approx(20.0)
        assert not [event for event in world.history if event.verb == "drop"]
        r.store.leases = real  # type: ignore[method-assign]
        await r.converge()


async def test_a_restart_in_the_middle_of_each_operation_goes_on(tmp_path: Path) -> None:
    settings = RuntimeSettings(executor=ExecutorOptions(batch_members_max=2, batches_at_once=1))
    policy = Policy(pass_members_max=2)
    world = World()
    tiers = mem, disk, far = sim_tiers(world)
    clock = None
    wanted = [(COLD, COLD), (HOT, HOT), (None, ABSENT)]
    async with rig(tmp_path, tiers) as r:
        data = await r.publish(payloads=7)
        place(mem, IDENTITY, data)
        await r.converge()
        clock = r.clock
    for target, residency in wanted:
        async with rig(tmp_path, tiers, clock=clock, settings=settings, policy=policy) as r:
            await (r.start(target) if target is not None else r.delete())
            await r.step()
            await r.step()
        for _ in range(6):  # every process dies after a pass or two
            async with rig(tmp_path, tiers, clock=clock, settings=settings, policy=policy) as r:
                await r.step()
                clock.jump(1)
        async with rig(tmp_path, tiers, clock=clock, settings=settings, policy=policy) as r:
            await r.converge()
            record = await r.record()
            assert (record.residency, record.operation) == (residency, NONE)
    assert [tier.contents() for tier in (mem, disk, far)] == [{}, {}, {}]
    terms = [event.fence.term for event in world.history]
    assert terms == sorted(terms)
    assert len(set(terms)) > 5


@pytest.mark.one_loop
async def test_fifty_thousand_members_in_one_group_converge_in_bounded_passes(
    tmp_path: Path,
) -> None:
    mem, disk, far = sim_tiers()
    async with rig(tmp_path, (mem, disk, far)) as r:
        data = await r.publish(payloads=50_000, size_bytes=32)
        place(mem, IDENTITY, data)
        await r.start(COLD)
        passes = await r.converge(passes=150)
        assert await r.summary() == (READY, COLD, NONE)
        assert mem.contents() == {}
        assert passes < 60
        operation = r.reports[-1].record
        assert operation.residency is COLD


async def test_zero_length_members_are_members(tmp_path: Path) -> None:
    mem, disk, far = sim_tiers()
    async with rig(tmp_path, (mem, disk, far)) as r:
        of = identity(5)
        data = await r.publish(of, payloads=2, empty=1)
        assert b"" in data.values()
        place(mem, of, data)
        await r.start(COLD, of)
        await r.converge(of)
        assert (await r.summary(of))[1] is COLD


async def test_a_dry_run_writes_nothing_and_equals_what_the_loop_then_does(tmp_path: Path) -> None:
    mem, disk, far = sim_tiers()
    async with rig(tmp_path / "state", (mem, disk, far)) as r:
        data = await r.publish()
        place(mem, IDENTITY, data)
        await r.start(COLD)

        def everything() -> list[object]:
            files = sorted((tmp_path / "state").rglob("*"))
            database = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files]
            return [database, *(tier.contents() for tier in (mem, disk, far))]

        before = await to_thread.run_sync(everything)
        dry = (await r.reconciler.ask(IDENTITY)).plan
        assert await to_thread.run_sync(everything) == before
        assert dry.verdict is Verdict.WORK
        await r.step()
        assert r.reports[-1].plan == dry


async def test_an_invariant_that_breaks_leaves_the_pass(tmp_path: Path) -> None:
    mem, disk, far = sim_tiers()

    async def broken(*_: object, **__: object) -> None:
        raise InvariantViolationError("broken on purpose")

    async with rig(tmp_path, (mem, disk, far)) as r:
        data = await r.publish()
        place(mem, IDENTITY, data)
        mem.observe = broken  # type: ignore[method-assign,assignment]
        with pytest.raises(InvariantViolationError):
            await r.step()


async def test_a_bug_of_a_tier_is_unknown_and_said(tmp_path: Path) -> None:
    mem, disk, far = sim_tiers()

    async def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    async with rig(tmp_path, (mem, disk, far)) as r:
        data = await r.publish()
        place(mem, IDENTITY, data)
        await r.converge()
        disk.observe = broken  # type: ignore[method-assign,assignment]
        await r.start(COLD)
        await r.settle()
        assert "untranslated ZeroDivisionError" in r.observer.problems()["disk"]
        assert await r.summary() == (READY, HOT, EVICTING)


async def test_no_point_of_a_converged_pass_writes(tmp_path: Path) -> None:
    cutter = Cutter()
    mem, disk, far = sim_tiers()
    async with rig(tmp_path, (mem, disk, far), wrap=lambda store: Cut(store, cutter)) as r:
        data = await r.publish()
        place(mem, IDENTITY, data)
        await r.converge()
        sequence = r.store.last_sequence
        for _ in range(5):
            await r.step()
        assert r.store.last_sequence == sequence
