"""What is said is said of what was looked at; every kind of work moves; bounds hold unasked."""

import asyncio
import math
from dataclasses import fields, is_dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.loop_rig import IDENTITY, place, rig, sim_tiers
from tests.support.virtual_time import VirtualClock, settle
from weightctl.controller.core.policy import Policy
from weightctl.controller.core.records import Availability, Operation, Residency
from weightctl.controller.ports import Retry
from weightctl.controller.runtime.admission import (
    SHARES,
    Admission,
    Ticket,
    TierLimits,
    WorkClass,
)
from weightctl.controller.runtime.conditions import ConditionType
from weightctl.controller.runtime.limits import TokenBucket
from weightctl.controller.runtime.settings import RuntimeSettings
from weightctl.controller.weightstore.options import WeightStoreOptions

# --- the generation that was looked at ------------------------------------------------------------


async def test_every_condition_names_the_generation_that_was_looked_at(tmp_path: Path) -> None:
    mem, disk, far = sim_tiers()
    policy = Policy(pass_members_max=1)
    async with rig(tmp_path, (mem, disk, far), policy=policy) as r:
        data = await r.publish()
        place(mem, IDENTITY, data)
        await r.converge()
        await r.start(Residency.COLD)
        disk.faults.refuse_batches = 3
        far.faults.refuse_batches = 3
        said, generations = 0, set()
        while (await r.record()).operation is not Operation.NONE:
            looked_at = (await r.record()).metadata_generation
            await r.step()
            r.clock.jump(30)
            for condition in r.board.of(IDENTITY):
                assert condition.observed_generation == looked_at, condition
                generations.add(condition.observed_generation)
                said += 1
        assert said > 10
        assert len(generations) > 1, "it was looked at in more than one generation"
        await r.converge()
        assert r.board.of(IDENTITY) == (), "a converged revision needs no condition"


async def test_what_was_said_of_an_older_generation_is_told_to_be_old(tmp_path: Path) -> None:
    mem, disk, far = sim_tiers()
    async with rig(tmp_path, (mem, disk, far)) as r:
        data = await r.publish()
        place(mem, IDENTITY, data)
        await r.converge()
        mem.wipe(new_epoch=False)
        await r.step()
        before = {condition.observed_generation for condition in r.board.of(IDENTITY)}
        record = await r.record()
        assert record.availability is Availability.DEGRADED
        assert max(before) < record.metadata_generation, "not yet looked at as it is now"


async def test_a_revision_is_converged_only_by_a_look_at_its_present_record(
    tmp_path: Path,
) -> None:
    mem, disk, far = sim_tiers()
    async with rig(tmp_path, (mem, disk, far)) as r:
        data = await r.publish()
        for tier in (mem, disk):
            place(tier, IDENTITY, data)
        await r.converge()
        await r.start(Residency.COLD)
        await r.step()
        assert not r.reports[-1].converged
        await r.converge()
        last = r.reports[-1]
        assert last.converged
        assert last.record == await r.record()


# --- shares ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("busy, quiet", list(permutations(WorkClass, 2)))
async def test_every_class_moves_under_the_load_of_any_other(
    busy: WorkClass, quiet: WorkClass
) -> None:
    admission = Admission(("a",), {"a": TierLimits(concurrency=1)})
    entered: list[WorkClass] = []

    async def job(work_class: WorkClass, owner: str) -> None:
        ticket = Ticket(work_class=work_class, owner=owner, tiers=("a",), size_bytes=1)
        async with admission.place(ticket):
            entered.append(work_class)
            await asyncio.sleep(0)

    async with anyio.create_task_group() as group:
        for number in range(30):
            group.start_soon(job, busy, f"busy-{number}")
        await settle(2)
        group.start_soon(job, quiet, "quiet")
    assert entered.index(quiet) <= 2 + SHARES[busy] / SHARES[quiet], (
        "it need not wait for all the others"
    )


def test_every_class_has_a_share() -> None:
    assert set(SHARES) == set(WorkClass)
    assert min(SHARES.values()) > 0
    assert math.isclose(sum(SHARES.values()), 1.0)


async def test_readers_and_the_loop_share_a_limited_bandwidth_piece_by_piece() -> None:
    """Loads and imports take no place at a tier, they pay for its bandwidth like the loop does."""
    clock = VirtualClock()
    bucket = TokenBucket(clock, 1000.0)
    moved = dict.fromkeys(("loop", *(f"reader-{number}" for number in range(9))), 0)

    async def stream(name: str) -> None:
        while True:
            await bucket.charge(10)
            moved[name] += 10

    async with anyio.create_task_group() as group:
        for name in moved:
            group.start_soon(stream, name)
        await clock.advance(10.0)
        group.cancel_scope.cancel()
    assert moved["loop"] >= 0.9 * sum(moved.values()) / len(moved)


async def test_no_progress_is_health_and_not_only_a_line_in_a_log(tmp_path: Path) -> None:
    mem, disk, far = sim_tiers()
    async with rig(tmp_path, (mem, disk, far)) as r:
        place(mem, IDENTITY, await r.publish())
        await r.converge()

        async def starved(batch: Any, *_: Any, **__: Any) -> list[Retry]:
            return [Retry(detail="no slot")] * len(batch)

        disk.store = far.store = starved  # type: ignore[method-assign]
        await r.start(Residency.COLD)
        for _ in range(30):
            await r.step()
            r.clock.jump(60)
        assert r.board.count(ConditionType.STUCK) == 1
        assert r.board.count(ConditionType.FAILING) == 1


# --- bounds ---------------------------------------------------------------------------------------

UNBOUNDED = {"bandwidth_bytes_per_s"}
"""A rate bounds no room: without it a tier is as fast as it is."""


def numbers_of(value: Any) -> dict[str, Any]:
    """Every field of a dataclass that stands for a bound or a duration, nested ones too."""
    found: dict[str, Any] = {}
    for field in fields(value):
        inner = getattr(value, field.name)
        if is_dataclass(inner):
            found |= numbers_of(inner)
        elif inner is None or (isinstance(inner, int | float) and not isinstance(inner, bool)):
            found[field.name] = inner
    return found


@pytest.mark.parametrize(
    "defaults", [RuntimeSettings(), TierLimits(), Policy(), WeightStoreOptions()], ids=repr
)
def test_everything_is_bounded_when_nobody_sets_anything(defaults: Any) -> None:
    numbers = {k: v for k, v in numbers_of(defaults).items() if k not in UNBOUNDED}
    assert numbers
    for name, number in numbers.items():
        assert number is not None, f"{name} has no bound"
        assert math.isfinite(number), f"{name} has no bound"
