"""The running loop: wake-ups, waiting, drain, dead services, signals, metrics."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from tests.support.loop_rig import (
    IDENTITY,
    contents,
    identity,
    members_of,
    place,
)
from tests.support.running import eventually, running
from tests.support.virtual_time import VirtualClock
from weightctl.controller.core.plan import Verdict
from weightctl.controller.core.records import Availability, Operation, Residency
from weightctl.controller.errors import ErrorCode, InvariantViolationError, WeightError
from weightctl.controller.runtime.admission import TierLimits
from weightctl.controller.runtime.reconciler import PassReport
from weightctl.controller.runtime.settings import ResyncOptions, RuntimeSettings
from weightctl.controller.runtime.supervisor import ServiceFailedError, stop_on_signals

READY = Availability.READY


async def test_a_mutation_wakes_its_revision_without_being_told(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with running(tmp_path, clock) as r:
        await r.publish(IDENTITY, 0)
        await r.start(Residency.COLD)

        async def cold() -> bool:
            return await r.summary() == (READY, Residency.COLD, Operation.NONE)

        await eventually(cold)


async def test_waiting_reports_each_pass_and_ends_with_what_was_observed(tmp_path: Path) -> None:
    async with running(tmp_path, VirtualClock()) as r:
        await r.publish(IDENTITY, 0)
        await r.start(Residency.COLD)
        reports: list[PassReport] = []
        last = await r.controller.wait_converged(IDENTITY, reports.append)
        assert last.converged
        assert last is reports[-1]
        assert last.record.residency is Residency.COLD
        assert sum(report.tally.moved_bytes for report in reports) > 0
        record = (await r.store.get(identity=IDENTITY)).metadata
        await r.store.delete_revision(
            identity=IDENTITY, expected_metadata_generation=record.metadata_generation
        )
        last = await r.controller.wait_converged(IDENTITY)
        assert last.record.availability is Availability.DELETED


async def test_waiting_for_an_unknown_revision_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path, VirtualClock()) as r:
        with pytest.raises(WeightError) as refused:
            await r.controller.wait_converged(IDENTITY)
        assert refused.value.code is ErrorCode.NOT_FOUND


async def test_many_revisions_converge_side_by_side(tmp_path: Path) -> None:
    async with running(tmp_path, VirtualClock()) as r:
        for number in range(20):
            await r.publish(identity(number), 0)
            await r.start(Residency.COLD, identity(number))
        for number in range(20):
            await r.controller.wait_converged(identity(number))
        assert r.tiers[0].contents() == {}


async def test_a_lost_wake_up_is_made_up_for_by_the_resync(tmp_path: Path) -> None:
    clock = VirtualClock()
    settings = RuntimeSettings(resync=ResyncOptions(working_s=5.0))
    async with running(tmp_path, clock, settings) as r:
        await r.publish(IDENTITY, 0)
        await r.controller.wait_converged(IDENTITY)
        r.controller._unsubscribe()
        await r.start(Residency.COLD)
        await r.controller.wait_converged(IDENTITY)
        r.controller._unsubscribe = lambda: None


async def test_drift_is_found_by_the_round_and_an_unchanged_revision_is_not_planned(
    tmp_path: Path,
) -> None:
    settings = RuntimeSettings(resync=ResyncOptions(published_s=10.0))
    async with running(tmp_path, VirtualClock(), settings) as r:
        await r.publish(IDENTITY, 0)
        await r.publish(identity(1), 0)
        for of in (IDENTITY, identity(1)):
            await r.controller.wait_converged(of)
        passes = r.controller.metrics.passes
        before = passes.value("finished") + passes.value("again")
        await r.controller._resync.drift_round(1.0)
        assert passes.value("finished") + passes.value("again") == before
        for key in list(r.tiers[0].replicas):
            if key[0] == members_of(IDENTITY, contents(IDENTITY, 2))[0].group_id:
                del r.tiers[0].replicas[key]

        async def degraded() -> bool:
            return (await r.summary())[0] is Availability.DEGRADED

        await eventually(degraded)
        assert (await r.summary(identity(1)))[0] is READY


async def test_expired_leases_are_erased_without_being_asked(tmp_path: Path) -> None:
    async with running(tmp_path, VirtualClock()) as r:
        await r.publish(IDENTITY, 0)
        await r.controller.wait_converged(IDENTITY)
        record = (await r.store.get(identity=IDENTITY)).metadata
        await r.store.acquire_lease(
            identity=IDENTITY,
            expected_metadata_generation=record.metadata_generation,
            holder="reader",
            ttl_ms=1000,
        )

        async def gone() -> bool:
            return (await r.controller.refresh_metrics()).expired_leases.value() == 1

        await eventually(gone)
        assert not (await r.store.export_snapshot()).leases


async def test_stopping_finishes_the_passes_under_way(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with running(tmp_path, clock) as r:
        await r.publish(IDENTITY, 0)
        await r.start(Residency.COLD)
        r.controller.stop()
        await r.controller.run_until_stopped()
        assert not r.controller.health().ready
    async with running(tmp_path, clock) as again:
        place(again.tiers[0], IDENTITY, contents(IDENTITY, 2))
        await again.controller.wait_converged(IDENTITY)


async def test_a_pass_that_does_not_end_is_cut_off_at_the_drain_deadline(tmp_path: Path) -> None:
    clock = VirtualClock()
    settings = RuntimeSettings(drain_s=2.0)
    async with running(tmp_path, clock, settings) as r:
        await r.publish(IDENTITY, 0)
        await r.controller.wait_converged(IDENTITY)
        r.tiers[1].faults.hang = True
        started = asyncio.Event()
        inner = r.tiers[1].observe

        async def observe(*args: Any, **kwargs: Any) -> Any:
            started.set()
            return await inner(*args, **kwargs)

        r.tiers[1].observe = observe  # type: ignore[method-assign]
        r.controller.wake(IDENTITY)
        await started.wait()
        before_s = clock.monotonic_s()
        r.controller.stop()
        await r.controller.run_until_stopped()
        assert clock.monotonic_s() - before_s < 5.0


async def test_a_dead_service_is_restarted_and_meanwhile_not_ready(tmp_path: Path) -> None:
    async with running(tmp_path, VirtualClock()) as r:
        broken = [True]
        real = r.store.expire_leases

        async def expire(**kwargs: Any) -> Any:
            if broken[0]:
                raise OSError("broken")
            return await real(**kwargs)

        r.store.expire_leases = expire  # type: ignore[method-assign]

        async def unready() -> bool:
            return "leases" in r.controller.health().problems

        await eventually(unready)
        assert not r.controller.health().ready
        broken[0] = False

        async def ready() -> bool:
            return r.controller.health().ready

        await eventually(ready)
        assert r.controller._supervisor.restarts["leases"] >= 1


async def test_a_service_that_keeps_failing_ends_the_loop_loudly(tmp_path: Path) -> None:
    with pytest.raises(ServiceFailedError):  # noqa: PT012
        async with running(tmp_path, VirtualClock()) as r:

            async def expire(**_: Any) -> Any:
                raise OSError("broken for good")

            r.store.expire_leases = expire  # type: ignore[method-assign]
            await asyncio.sleep(60)


async def test_a_broken_invariant_ends_the_loop_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvariantViolationError):  # noqa: PT012
        async with running(tmp_path, VirtualClock()) as r:

            async def broken(*_: Any, **__: Any) -> Any:
                raise InvariantViolationError("broken on purpose")

            r.tiers[0].observe = broken  # type: ignore[method-assign]
            await r.publish(IDENTITY, 0)
            await asyncio.sleep(60)


async def test_one_poisoned_revision_does_not_stop_the_others(tmp_path: Path) -> None:
    async with running(tmp_path, VirtualClock()) as r:
        await r.publish(IDENTITY, 0)
        await r.publish(identity(1), 0)
        real = r.store.directory.members
        bad = members_of(IDENTITY, contents(IDENTITY, 2))[0].group_id

        async def members(group_id: str) -> Any:
            if group_id == bad:
                raise RuntimeError("poisoned")
            return await real(group_id)

        r.store.directory.members = members  # type: ignore[method-assign]
        await r.start(Residency.COLD, identity(1))
        await r.controller.wait_converged(identity(1))
        r.controller.wake(IDENTITY)

        async def said() -> bool:
            return any(
                condition.reason == "InternalError"
                for condition in r.controller.conditions(IDENTITY)
            )

        await eventually(said)
        assert r.controller.health().failing == 1


async def test_the_first_signal_drains_and_the_second_leaves(tmp_path: Path) -> None:
    told: list[str] = []
    async with anyio.create_task_group() as group:
        group.start_soon(stop_on_signals, lambda: told.append("stop"), lambda: told.append("leave"))
        await asyncio.sleep(0.05)
        for expected in (["stop"], ["stop", "leave"]):
            os.kill(os.getpid(), signal.SIGTERM)

            async def heard(expected: list[str] = expected) -> bool:
                return told == expected

            await eventually(heard)
        group.cancel_scope.cancel()


async def test_leaving_at_once_does_not_wait_for_the_drain(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with running(tmp_path, clock, RuntimeSettings(drain_s=1e6)) as r:
        await r.publish(IDENTITY, 0)
        r.tiers[0].faults.hang = True
        r.controller.wake(IDENTITY)
        await asyncio.sleep(0.01)
        r.controller.stop()
        r.controller.leave()
        await r.controller.run_until_stopped()


async def test_asking_writes_nothing_anywhere(tmp_path: Path) -> None:
    async with running(tmp_path, VirtualClock()) as r:
        await r.publish(IDENTITY, 0)
        await r.controller.wait_converged(IDENTITY)
        r.tiers[2].faults.silent = True

        def files() -> list[object]:
            paths = sorted(path for path in tmp_path.rglob("*") if path.is_file())
            return [(path.name, path.read_bytes()) for path in paths]

        before = await to_thread.run_sync(files), [tier.contents() for tier in r.tiers]
        plans = [plan async for _, plan in r.controller.plan_all()]
        explained = await r.controller.explain(IDENTITY)
        r.controller.health()
        await r.controller.refresh_metrics()
        assert (await to_thread.run_sync(files), [t.contents() for t in r.tiers]) == before
        assert len(plans) == 1
        assert plans[0].verdict in (Verdict.CONVERGED, Verdict.WAITING)
        assert explained.record.identity == IDENTITY


async def test_every_series_exists_with_zero_from_the_start(tmp_path: Path) -> None:
    async with running(tmp_path, VirtualClock()) as r:
        samples = r.controller.metrics.samples()
        assert {sample.name for sample in samples} >= {"weightctl_passes", "weightctl_queue_due"}
        tiers = {s.labels["tier"] for s in samples if "tier" in s.labels}
        assert tiers == {"mem", "disk", "far", "other"}
        await r.controller.refresh_metrics()
        assert len(r.controller.metrics.samples()) == len(samples)


async def test_limits_can_be_replaced_while_running(tmp_path: Path) -> None:
    async with running(tmp_path, VirtualClock()) as r:
        r.controller.set_limits({"disk": TierLimits(concurrency=1, bandwidth_bytes_per_s=1000.0)})
        await r.publish(IDENTITY, 0)
        await r.start(Residency.COLD)
        await r.controller.wait_converged(IDENTITY)
        assert r.controller._dispatch.buckets["disk"].rate_bytes_per_s == 1000.0
