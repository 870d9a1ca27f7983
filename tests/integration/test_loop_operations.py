"""Evict, rehydrate, repair and delete, end to end over a real store."""

from pathlib import Path

import pytest

from tests.support.loop_rig import IDENTITY, contents, members_of, place, rig, sim_tiers
from tests.support.sim_tier import World
from weightctl.controller.core.identity import manifest_key
from weightctl.controller.core.plan import Reason, Verdict
from weightctl.controller.core.policy import Policy
from weightctl.controller.core.records import Availability, Operation, Residency
from weightctl.controller.runtime.runner import Again, Finished

READY, DEGRADED = Availability.READY, Availability.DEGRADED
HOT, COLD, MIXED, ABSENT = Residency.HOT, Residency.COLD, Residency.MIXED, Residency.ABSENT
NONE = Operation.NONE


async def test_evict_copies_verifies_and_then_drops_and_keeps_the_evidence(tmp_path: Path) -> None:
    world = World()
    mem, disk, far = sim_tiers(world)
    async with rig(tmp_path, (mem, disk, far)) as r:
        data = await r.publish()
        place(mem, IDENTITY, data)
        operation_id = await r.start(COLD)
        await r.converge()
        assert await r.summary() == (READY, COLD, NONE)
        assert mem.contents() == {}
        verbs = [(event.verb, event.tier) for event in world.history]
        assert verbs == [("store", "disk")] * 4 + [("drop", "mem")] * 4
        rows = await r.store.evidence.rows(IDENTITY)
        assert {row.member_key for row in rows} == set(data)
        for row, member in zip(rows, members_of(IDENTITY, data), strict=True):
            copy = disk.find(row.member_key)
            assert copy is not None
            assert (row.dropped_tier, row.evidence_tier) == ("mem", "disk")
            assert row.evidence_instance == copy.instance_id
            assert row.evidence_sha256 == member.sha256
            assert row.operation_id == operation_id
        operation = await r.store.query_operation(operation_id=operation_id)
        assert (operation.processed_members, operation.total_members) == (4, 4)
        assert operation.message == "completed"


async def test_rehydrate_brings_everything_back_and_keeps_the_cold_copies(tmp_path: Path) -> None:
    mem, disk, far = sim_tiers()
    async with rig(tmp_path, (mem, disk, far)) as r:
        data = await r.publish()
        place(disk, IDENTITY, data)
        await r.converge()
        assert await r.summary() == (READY, COLD, NONE)
        await r.start(HOT)
        await r.converge()
        assert await r.summary() == (READY, HOT, NONE)
        for key, content in data.items():
            for tier in (mem, disk):
                copy = tier.find(key)
                assert copy is not None
                assert bytes(copy.content) == content


async def test_delete_removes_payloads_first_the_manifest_last_and_leaves_a_tombstone(
    tmp_path: Path,
) -> None:
    world = World()
    mem, disk, far = sim_tiers(world)
    async with rig(tmp_path, (mem, disk, far)) as r:
        data = await r.publish()
        for tier in (mem, disk):
            place(tier, IDENTITY, data)
        await r.delete()
        await r.converge()
        assert await r.summary() == (Availability.DELETED, ABSENT, NONE)
        assert [tier.contents() for tier in (mem, disk, far)] == [{}, {}, {}]
        dropped = [event.key for event in world.history]
        assert dropped[-2:] == [manifest_key(IDENTITY)] * 2
        assert manifest_key(IDENTITY) not in dropped[:-2]
        assert isinstance(await r.step(), Finished)


async def test_delete_sweeps_quarantined_partial_and_unknown_leftovers(tmp_path: Path) -> None:
    mem, disk, far = sim_tiers()
    async with rig(tmp_path, (mem, disk, far)) as r:
        data = await r.publish()
        place(disk, IDENTITY, data)
        member = members_of(IDENTITY, data)[1]
        disk.put(member, b"old").quarantined = True
        far.put(member, b"pa").quarantined = True
        await r.delete()
        await r.converge()
        assert [tier.contents() for tier in (mem, disk, far)] == [{}, {}, {}]
        assert (await r.record()).availability is Availability.DELETED


async def test_a_live_lease_holds_the_deletion_until_it_dies(tmp_path: Path) -> None:
    mem, disk, far = sim_tiers()
    async with rig(tmp_path, (mem, disk, far)) as r:
        data = await r.publish()
        place(mem, IDENTITY, data)
        await r.delete()
        before = mem.contents()

        def leased(**_: object) -> tuple[object, ...]:
            class Lease:
                expires_at_ms = 1_700_000_030_000

            return (Lease(),) if r.clock.wall_ms() < Lease.expires_at_ms else ()

        r.store.leases = leased  # type: ignore[assignment,method-assign]
        following = await r.step()
        assert following == Again(after_s=30.0, progressed=False)
        assert mem.contents() == before
        await r.converge()
        assert (await r.record()).availability is Availability.DELETED
        assert r.clock.wall_ms() >= 1_700_000_030_000


async def test_repair_adds_missing_copies_from_a_source_that_was_read_back(tmp_path: Path) -> None:
    mem, disk, far = sim_tiers()
    async with rig(tmp_path, (mem, disk, far), policy=Policy(cold_copies=2)) as r:
        data = await r.publish()
        place(disk, IDENTITY, data)
        await r.converge()
        await r.repair(COLD)
        await r.converge()
        assert await r.summary() == (READY, COLD, NONE)
        assert all(far.find(key) is not None for key in data)


async def test_a_flipped_bit_is_found_quarantined_and_repaired_from_another_tier(
    tmp_path: Path,
) -> None:
    world = World()
    mem, disk, far = sim_tiers(world)
    async with rig(tmp_path, (mem, disk, far)) as r:
        data = await r.publish()
        for tier in (mem, disk):
            place(tier, IDENTITY, data)
        victim = sorted(data)[1]
        copy = disk.find(victim)
        assert copy is not None
        copy.content[3] ^= 1
        await r.start(COLD)
        await r.converge()
        assert await r.summary() == (READY, COLD, NONE)
        fresh = disk.find(victim) or far.find(victim)
        assert fresh is not None
        assert bytes(fresh.content) == data[victim]
        assert copy.quarantined
        assert [event.key for event in world.history if event.verb == "quarantine"] == [victim]
        rows = await r.store.evidence.rows(IDENTITY)
        assert fresh.instance_id in {row.evidence_instance for row in rows}
        assert copy.instance_id not in {row.evidence_instance for row in rows}


async def test_a_wrong_source_found_while_storing_is_not_used_again(tmp_path: Path) -> None:
    mem, disk, far = sim_tiers()
    async with rig(tmp_path, (mem, disk, far)) as r:
        data = await r.publish()
        for tier in (disk, far):
            place(tier, IDENTITY, data)
        await r.converge()
        victim = min(data)
        copy = disk.find(victim)
        assert copy is not None
        copy.content[0] ^= 0x80
        await r.start(HOT)
        await r.converge()
        assert await r.summary() == (READY, HOT, NONE)
        back = mem.find(victim)
        assert back is not None
        assert bytes(back.content) == data[victim]


async def test_nothing_readable_is_lost_degraded_and_keeps_the_operation(tmp_path: Path) -> None:
    mem, disk, far = sim_tiers()
    async with rig(tmp_path, (mem, disk, far)) as r:
        await r.publish()
        await r.start(HOT)
        await r.settle()
        assert await r.summary() == (DEGRADED, ABSENT, Operation.REHYDRATING)
        conditions = {condition.type.value: condition for condition in r.board.of(IDENTITY)}
        assert conditions["Lost"].status
        assert conditions["Lost"].reason == Reason.NOTHING_READABLE
        assert conditions["Lost"].observed_generation == (await r.record()).metadata_generation


async def test_a_full_tier_is_said_by_the_plan_before_anything_moves(tmp_path: Path) -> None:
    world = World()
    mem, disk, far = sim_tiers(world, capacity_bytes=100)
    mem.capacity_bytes = 1 << 30
    async with rig(tmp_path, (mem, disk, far)) as r:
        data = await r.publish(size_bytes=500)
        place(mem, IDENTITY, data)
        await r.start(COLD)
        plan = (await r.reconciler.ask(IDENTITY)).plan
        assert plan.verdict is Verdict.BLOCKED
        wait = next(wait for wait in plan.waits if wait.reason is Reason.NO_CAPACITY)
        assert wait.needed_bytes > wait.free_bytes
        await r.settle()
        assert world.history == []
        assert await r.summary() == (READY, HOT, Operation.EVICTING)
        disk.capacity_bytes = 1 << 30
        await r.converge()
        assert await r.summary() == (READY, COLD, NONE)


async def test_drift_of_an_idle_revision_is_published_and_heals(tmp_path: Path) -> None:
    mem, disk, far = sim_tiers()
    async with rig(tmp_path, (mem, disk, far)) as r:
        data = await r.publish()
        place(mem, IDENTITY, data)
        await r.converge()
        mem.wipe()
        await r.converge()
        assert await r.summary() == (DEGRADED, ABSENT, NONE)
        place(disk, IDENTITY, data)
        await r.converge()
        assert await r.summary() == (READY, COLD, NONE)
        generation = (await r.record()).metadata_generation
        await r.converge()
        assert (await r.record()).metadata_generation == generation, "nothing changed, no write"


async def test_an_abandoned_import_is_aborted_and_cleaned(tmp_path: Path) -> None:
    mem, disk, far = sim_tiers()
    async with rig(tmp_path, (mem, disk, far)) as r:
        data = contents(IDENTITY, 2)
        await r.store.begin_import(
            identity=IDENTITY, expected_payload_count=2, expected_logical_bytes=128
        )
        await r.store.directory.register(IDENTITY, members_of(IDENTITY, data)[:2])
        place(mem, IDENTITY, data)
        following = await r.step()
        assert isinstance(following, Again)
        assert following.after_s == 60.0, "a known wait is read again at least each minute"
        for _ in range(10):
            r.clock.jump(299)
            r.store.touch_import(identity=IDENTITY)
            await r.step()
            assert (await r.record()).availability is Availability.IMPORTING
        r.clock.jump(301)
        await r.converge()
        assert (await r.record()).availability is Availability.DELETED
        assert mem.contents() == {}


@pytest.mark.parametrize("target", [COLD, HOT])
async def test_a_start_towards_the_present_residency_just_finishes(
    tmp_path: Path, target: Residency
) -> None:
    mem, disk, far = sim_tiers()
    async with rig(tmp_path, (mem, disk, far)) as r:
        data = await r.publish()
        place(disk if target is COLD else mem, IDENTITY, data)
        await r.converge()
        await r.start(target)
        await r.converge()
        assert await r.summary() == (READY, target, NONE)
