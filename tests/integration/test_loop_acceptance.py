"""Rows 74 to 78, 84 to 87 and 97 of the contract's acceptance table, on the loop."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.loop_rig import IDENTITY, Rig, contents, identity, members_of, place, rig
from tests.support.sim_tier import SimTier
from tests.support.virtual_time import SeededEntropy, VirtualClock
from weightctl.controller.core.identity import Identity, manifest_key
from weightctl.controller.core.records import COMPLETED, Availability, Operation, Residency
from weightctl.controller.runtime.controller import Controller
from weightctl.controller.runtime.drift import DriftWatch
from weightctl.controller.runtime.resync import Resync
from weightctl.controller.runtime.settings import ResyncOptions
from weightctl.controller.runtime.workqueue import WorkQueue

READY, DEGRADED = Availability.READY, Availability.DEGRADED
HOT, COLD, MIXED, ABSENT = Residency.HOT, Residency.COLD, Residency.MIXED, Residency.ABSENT
NONE, EVICTING = Operation.NONE, Operation.EVICTING


@asynccontextmanager
async def one_payload(
    folder: Path, *, hot: bool, cold: bool, tiers: tuple[SimTier, ...]
) -> AsyncIterator[Rig]:
    """A revision of one payload and its manifest, placed and observed."""
    async with rig(folder, tiers) as r:
        data = await r.publish(payloads=1)
        for tier in tiers:
            if hot if tier.profile.hot else cold:
                place(tier, IDENTITY, data)
        await r.converge()
        yield r


def memory() -> SimTier:
    return SimTier("mem", hot=True)


def disk() -> SimTier:
    return SimTier("disk", hot=False)


@pytest.mark.acceptance(74)
async def test_eviction_without_a_cold_place_stays_pending(tmp_path: Path) -> None:
    async with one_payload(tmp_path, hot=True, cold=False, tiers=(memory(),)) as r:
        operation_id = await r.start(COLD)
        await r.settle(passes=3)
        assert await r.summary() == (READY, HOT, EVICTING)
        operation = await r.store.query_operation(operation_id=operation_id)
        assert (operation.processed_members, operation.total_members) == (0, 2)


@pytest.mark.acceptance(75)
async def test_eviction_with_cold_copies_of_both_members_completes(tmp_path: Path) -> None:
    async with one_payload(tmp_path, hot=True, cold=True, tiers=(memory(), disk())) as r:
        operation_id = await r.start(COLD)
        await r.converge()
        assert await r.summary() == (READY, COLD, NONE)
        operation = await r.store.query_operation(operation_id=operation_id)
        assert (operation.processed_members, operation.total_members) == (2, 2)
        assert operation.message == COMPLETED


@pytest.mark.acceptance(76)
async def test_rehydration_promotes_both_members_and_completes(tmp_path: Path) -> None:
    tiers = memory(), disk()
    async with one_payload(tmp_path, hot=False, cold=True, tiers=tiers) as r:
        assert await r.summary() == (READY, COLD, NONE)
        operation_id = await r.start(HOT)
        assert (await r.record()).operation is Operation.REHYDRATING
        await r.step()
        stored = [event for event in tiers[0].world.history if event.verb == "store"]
        assert len(stored) == 2
        await r.converge()
        assert await r.summary() == (READY, HOT, NONE)
        operation = await r.store.query_operation(operation_id=operation_id)
        assert operation.message == COMPLETED


@pytest.mark.acceptance(77)
async def test_a_loss_under_an_operation_degrades_and_keeps_it(tmp_path: Path) -> None:
    tiers = (memory(),)
    async with one_payload(tmp_path, hot=True, cold=False, tiers=tiers) as r:
        operation_id = await r.start(COLD)
        generation = (await r.record()).metadata_generation
        tiers[0].wipe()
        await r.step()
        record = await r.record()
        assert (record.availability, record.residency) == (DEGRADED, ABSENT)
        assert record.operation_id == operation_id
        assert record.metadata_generation == generation + 1
        operation = await r.store.query_operation(operation_id=operation_id)
        assert operation.fenced_metadata_generation == generation + 1
        assert operation.message != COMPLETED
        await r.step()
        assert await r.record() == record


@pytest.mark.acceptance(78)
async def test_deletion_removes_payload_and_manifest_and_leaves_a_tombstone(
    tmp_path: Path,
) -> None:
    tiers = memory(), disk()
    async with one_payload(tmp_path, hot=True, cold=True, tiers=tiers) as r:
        await r.delete()
        await r.converge()
        assert await r.summary() == (Availability.DELETED, ABSENT, NONE)
        assert [tier.contents() for tier in tiers] == [{}, {}]


@pytest.mark.acceptance(84)
async def test_a_round_reaps_an_expired_lease_and_aborts_an_old_import(tmp_path: Path) -> None:
    async with one_payload(tmp_path, hot=True, cold=False, tiers=(memory(),)) as r:
        record = await r.record()
        await r.store.acquire_lease(
            identity=IDENTITY,
            expected_metadata_generation=record.metadata_generation,
            holder="reader",
            ttl_ms=1000,
        )
        await begin(r, identity(1))
        r.clock.jump(301)
        assert len(await r.store.expire_leases()) == 1
        assert await r.store.expire_leases() == ()
        await r.step(identity(1))
        assert (await r.record(identity(1))).availability is Availability.DELETING
        await r.step(identity(1))
        assert (await r.record(identity(1))).availability is Availability.DELETED


async def begin(r: Rig, of: Identity) -> None:
    await r.store.begin_import(identity=of, expected_payload_count=1, expected_logical_bytes=64)
    await r.store.directory.register(of, members_of(of, contents(of, 1)))


@pytest.mark.acceptance(85)
async def test_a_round_of_one_pass_aborts_one_of_two_abandoned_imports(tmp_path: Path) -> None:
    async with rig(tmp_path, (memory(),)) as r:
        for number in (1, 2):
            await begin(r, identity(number))
        r.clock.jump(301)
        queue: WorkQueue[Identity] = WorkQueue(r.clock, SeededEntropy(), r.timer)
        resync = Resync(
            r.store,
            queue,
            DriftWatch(r.observer),
            clock=r.clock,
            entropy=SeededEntropy(),
            options=ResyncOptions(),
        )
        await resync._enqueue_unfinished(0.0)
        key = queue.take()
        await r.reconciler.reconcile(key)
        queue.done(key)
        states = [(await r.record(identity(number))).availability for number in (1, 2)]
        assert sorted(states) == [Availability.IMPORTING, Availability.DELETING]


@pytest.mark.acceptance(86)
async def test_loss_of_a_payload_and_loss_of_a_manifest_both_degrade(tmp_path: Path) -> None:
    tier = memory()
    first, second = identity(1), identity(2)
    async with rig(tmp_path, (tier,)) as r:
        for of in (first, second):
            place(tier, of, await r.publish(of, payloads=1))
            await r.converge(of)
        payload = next(key for key in contents(first, 1) if key != manifest_key(first))
        for group, key in list(tier.replicas):
            if key in (payload, manifest_key(second)):
                del tier.replicas[group, key]
        for of in (first, second):
            await r.converge(of)
            assert await r.summary(of) == (DEGRADED, MIXED, NONE)
        controller = Controller(r.store, (tier,), clock=r.clock, entropy=SeededEntropy())
        metrics = await controller.refresh_metrics()
        assert metrics.availability.value("DEGRADED") == 2


@pytest.mark.acceptance(87)
async def test_metrics_count_leases_operations_and_the_age_of_the_oldest(tmp_path: Path) -> None:
    clock, tier = VirtualClock(), memory()
    async with rig(tmp_path, (tier,), clock=clock) as r:
        for number in (1, 2):
            place(tier, identity(number), await r.publish(identity(number), payloads=1))
        record = await r.record(identity(1))
        await r.store.acquire_lease(
            identity=identity(1),
            expected_metadata_generation=record.metadata_generation,
            holder="reader",
            ttl_ms=60_000,
        )
        await r.start(COLD, identity(2))
        clock.jump(0.1)
        controller = Controller(r.store, (tier,), clock=clock, entropy=SeededEntropy())
        metrics = await controller.refresh_metrics()
        assert metrics.active_leases.value() == 1
        assert metrics.pending_operations.value() == 1
        assert metrics.oldest_operation.value() >= 0.1


@pytest.mark.acceptance(97)
async def test_an_aborted_import_is_cleaned_and_its_tombstone_can_be_deleted_again(
    tmp_path: Path,
) -> None:
    tier = memory()
    async with rig(tmp_path, (tier,)) as r:
        await begin(r, IDENTITY)
        place(tier, IDENTITY, contents(IDENTITY, 1))
        aborted = await r.store.abort_import(identity=IDENTITY, expected_metadata_generation=1)
        assert aborted.availability is Availability.DELETING
        await r.converge()
        record = await r.record()
        assert record.availability is Availability.DELETED
        assert tier.contents() == {}
        again = await r.store.delete_revision(
            identity=IDENTITY, expected_metadata_generation=record.metadata_generation
        )
        assert again == record
