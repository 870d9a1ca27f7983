"""What is taken is given back on every path: places at tiers, deadlines, leases of readers.

And what was not answered is told as such: a number, a condition, and never as done.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.field.playing import play, told
from tests.support.loop_rig import IDENTITY, Rig, place, rig, sim_tiers
from tests.support.running import eventually, running
from tests.support.sim_tier import World
from tests.support.virtual_time import VirtualClock
from weightctl.controller.core.plan import Reason
from weightctl.controller.core.policy import Policy
from weightctl.controller.core.records import Availability, Operation, Residency
from weightctl.controller.errors import InvariantViolationError, TransientError
from weightctl.controller.ports import Done, Outcome
from weightctl.controller.runtime.conditions import ConditionType
from weightctl.controller.runtime.outcomes import complete
from weightctl.controller.runtime.settings import ExecutorOptions, RuntimeSettings

QUICK = RuntimeSettings(executor=ExecutorOptions(deadline_s=1.0, slowest_bytes_per_s=1e9))
READY, NONE = Availability.READY, Operation.NONE


async def hangs(*_: Any, **__: Any) -> Sequence[Outcome]:
    await anyio.sleep_forever()
    raise AssertionError


async def raises(*_: Any, **__: Any) -> Sequence[Outcome]:
    raise TransientError("the batch", "it broke")


async def has_a_bug(*_: Any, **__: Any) -> Sequence[Outcome]:
    raise ZeroDivisionError


async def breaks_an_invariant(*_: Any, **__: Any) -> Sequence[Outcome]:
    raise InvariantViolationError("broken on purpose")


async def says_nothing(*_: Any, **__: Any) -> Sequence[Outcome]:
    return []


async def says_too_much(batch: Sequence[Any], *_: Any, **__: Any) -> Sequence[Outcome]:
    return [Done(instance_id="x", moved_bytes=1)] * (len(batch) + 1)


ENDINGS = (hangs, raises, has_a_bug, breaks_an_invariant, says_nothing, says_too_much)


@pytest.mark.parametrize("cancelled", [False, True])
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("verb", ["store", "verify", "drop"])
async def test_a_place_at_a_tier_is_given_back_however_a_batch_ends(
    tmp_path: Path,
    verb: str,
    ending: Callable[..., Awaitable[Sequence[Outcome]]],
    cancelled: bool,
) -> None:
    mem, disk, far = sim_tiers()
    async with rig(tmp_path, (mem, disk, far), settings=QUICK) as r:
        data = await r.publish()
        place(mem, IDENTITY, data)
        if verb != "store":
            place(disk, IDENTITY, data)
        await r.converge()
        await r.start(Residency.COLD)
        if verb == "drop":
            await r.step()
        setattr(mem if verb == "drop" else disk, verb, ending)
        done = asyncio.create_task(r.step())
        while not done.done():  # what it reads is real, however long that takes
            await asyncio.sleep(0.001)
            await r.clock.advance(0.2)
            if cancelled:
                done.cancel()
        await asyncio.gather(done, return_exceptions=True)
        for tier in ("mem", "disk", "far"):
            assert r.dispatch.admission.in_flight(tier) == (0, 0)
        assert r.dispatch.admission.waiting_count == 0
        assert len(r.timer) == 0, "no deadline is left armed"


@pytest.mark.parametrize(
    "answers, wanted",
    [
        ([], ["Unknown"] * 3),
        ([Done()], ["Done", "Unknown", "Unknown"]),
        ([Done()] * 3, ["Done"] * 3),
        ([Done()] * 4, ["Unknown"] * 3),
    ],
)
def test_the_answers_are_those_of_the_asked_items(
    answers: list[Outcome], wanted: list[str]
) -> None:
    assert [type(outcome).__name__ for outcome in complete(answers, 3)] == wanted


async def test_work_that_is_never_acknowledged_is_a_number_and_a_condition(tmp_path: Path) -> None:
    settings = replace(QUICK, stuck_after_s=60.0)
    async with running(tmp_path, VirtualClock(), settings) as r:
        for cold in r.tiers[1:]:  # one that takes what it is given would be asked in its place
            cold.store = hangs  # type: ignore[method-assign]
        await r.publish(IDENTITY, 0)
        await r.start(Residency.COLD)

        async def noticed() -> bool:
            metrics = await r.controller.refresh_metrics()
            return metrics.conditions.value("Stuck") == 1

        await eventually(noticed)
        metrics = await r.controller.refresh_metrics()
        assert metrics.outcomes.value("Unknown") >= 3
        assert metrics.outcomes.value("Done") == 0
        assert metrics.conditions.value("Failing") == 1
        failing = {c.type: c for c in r.controller.conditions(IDENTITY)}[ConditionType.FAILING]
        assert failing.reason == "Unknown"
        assert "no answer within" in failing.message
        assert r.controller.health().stuck == 1


@pytest.mark.parametrize("refusal", ["full", "busy", "silent"])
async def test_what_was_refused_is_tried_again_without_being_asked(
    tmp_path: Path, refusal: str
) -> None:
    mem, disk, far = sim_tiers()
    async with rig(tmp_path, (mem, disk, far)) as r:
        data = await r.publish()
        place(disk, IDENTITY, data)
        await r.converge()
        await r.start(Residency.HOT)
        if refusal == "full":
            mem.capacity_bytes = 10
        elif refusal == "busy":
            mem.faults.refuse_batches = 10**6
        else:
            mem.faults.silent = True
        await play(r, 3600)
        assert (await r.record()).operation is Operation.REHYDRATING
        mem.capacity_bytes = 10**9
        mem.faults.refuse_batches, mem.faults.silent = 0, False
        before_s = r.clock.monotonic_s()
        await play(r, 3600)
        assert await r.summary() == (READY, Residency.HOT, NONE)
        assert r.clock.monotonic_s() - before_s < 300


async def test_conflicts_without_end_cost_reads_and_no_memory(tmp_path: Path) -> None:
    mem, disk, far = sim_tiers()
    async with rig(tmp_path, (mem, disk, far)) as r:
        data = await r.publish()
        place(mem, IDENTITY, data)
        await r.converge()
        await r.start(Residency.COLD)
        real = r.dispatch.check_fence

        async def overtaken(work: Any) -> None:
            """Somebody else changes the record before each act, a thousand times."""
            seen = Residency.MIXED if work.record.residency is Residency.HOT else Residency.HOT
            await r.store.update_progress(
                operation_id=work.record.operation_id,
                processed_members=0,
                total_members=4,
                cursor="",
                availability=READY,
                residency=seen,
            )
            await real(work)

        r.dispatch.check_fence = overtaken  # type: ignore[method-assign]
        for _ in range(200):
            await r.step()
        assert mem.world.history == [], "a pass that was overtaken does nothing more"
        assert r.dispatch.admission.waiting_count == 0
        assert len(r.timer) == 0
        assert len(r.timer._heap) < 200
        r.dispatch.check_fence = real  # type: ignore[method-assign]
        r.clock.jump(120)
        await r.converge()
        assert await r.summary() == (READY, Residency.COLD, NONE)


# --- a pause for maintenance ----------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["evict", "rehydrate", "repair", "delete"])
async def test_a_pause_holds_every_operation_where_it_is_and_its_end_lets_it_go_on(
    tmp_path: Path, verb: str
) -> None:
    world = World()
    mem, disk, far = sim_tiers(world)
    policy = Policy(pass_members_max=1, cold_copies=2 if verb == "repair" else 1)
    async with rig(tmp_path, (mem, disk, far), policy=policy) as r:
        data = await r.publish(payloads=5)
        place(disk if verb == "rehydrate" else mem, IDENTITY, data)
        await r.converge()
        await begin(r, verb)
        await r.step()
        await r.step()
        r.survey.policy = replace(policy, paused=True)
        done, written = list(world.history), r.store.last_sequence
        cost = await play(r, 3600)
        assert world.history == done
        assert r.store.last_sequence <= written + 1, "only what was seen meanwhile is recorded"
        assert cost.passes < 100
        assert told(r, ConditionType.BLOCKED).reason == Reason.PAUSED
        r.survey.policy = policy
        await r.converge()
        record = await r.record()
        assert record.operation is NONE
        assert record.availability is (Availability.DELETED if verb == "delete" else READY)


async def begin(r: Rig, verb: str) -> None:
    match verb:
        case "evict":
            await r.start(Residency.COLD)
        case "rehydrate":
            await r.start(Residency.HOT)
        case "repair":
            await r.repair(Residency.HOT)
        case _:
            await r.delete()
