"""Repairs that the loop starts by itself: only where the policy says so, only what adds copies."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.loop_rig import IDENTITY
from tests.support.running import Running, eventually, running
from tests.support.virtual_time import VirtualClock
from weightctl.controller.core.policy import Policy
from weightctl.controller.core.records import Availability, Operation, Residency

READY, HOT = Availability.READY, Residency.HOT
MEM, DISK, FAR = range(3)
GUARDED = Policy(import_abandon_ms=10**12, cold_copies=2, auto_repair=True, settle_s=0.5)
UNGUARDED = Policy(import_abandon_ms=10**12, cold_copies=2, settle_s=0.5)


def lose(r: Running, *tiers: int, members: int = 1) -> None:
    """Replicas vanish, as by somebody else's hand."""
    for tier in tiers:
        for key in sorted(r.tiers[tier].replicas)[:members]:
            del r.tiers[tier].replicas[key]


async def noticed(r: Running) -> None:
    """Several passes have seen it, and whatever they lead to has had its time."""
    for _ in range(5):
        await r.controller.wait_converged(IDENTITY)


async def test_a_lost_cold_copy_is_brought_back_from_what_is_left(tmp_path: Path) -> None:
    async with running(tmp_path, VirtualClock()) as r:
        r.controller.set_policy(GUARDED)
        await r.publish(IDENTITY, MEM, DISK, FAR)
        await r.controller.wait_converged(IDENTITY)
        lose(r, DISK)
        r.controller.wake(IDENTITY)

        async def whole() -> bool:
            return len(r.tiers[DISK].replicas) == 3 and (await r.summary())[2] is Operation.NONE

        await eventually(whole)
        assert await r.summary() == (READY, HOT, Operation.NONE)


def _unguarded(r: Running) -> None:
    r.controller.set_policy(UNGUARDED)
    lose(r, DISK)


def _memory_only(r: Running) -> None:
    lose(r, MEM)


def _nothing_left(r: Running) -> None:
    lose(r, MEM, DISK, FAR)


def _no_answer(r: Running) -> None:
    lose(r, DISK)
    r.tiers[FAR].faults.silent = True


@pytest.mark.parametrize("loss", [_unguarded, _memory_only, _nothing_left])
async def test_no_repair_is_started(tmp_path: Path, loss: Callable[[Running], None]) -> None:
    async with running(tmp_path, VirtualClock()) as r:
        r.controller.set_policy(GUARDED)
        await r.publish(IDENTITY, MEM, DISK, FAR)
        await r.controller.wait_converged(IDENTITY)
        held = [len(tier.replicas) for tier in r.tiers]
        loss(r)
        await noticed(r)
        assert r.store._engine.state.operations == {}
        assert [len(tier.replicas) for tier in r.tiers] != held


async def test_no_repair_is_started_on_what_a_tier_did_not_answer(tmp_path: Path) -> None:
    async with running(tmp_path, VirtualClock()) as r:
        r.controller.set_policy(GUARDED)
        await r.publish(IDENTITY, MEM, DISK, FAR)
        await r.controller.wait_converged(IDENTITY)
        _no_answer(r)
        for _ in range(3):
            r.controller.wake(IDENTITY)
            await r.controller.plan(IDENTITY)
        assert r.store._engine.state.operations == {}
        r.tiers[FAR].faults.silent = False
        r.controller.wake(IDENTITY)

        async def whole() -> bool:
            return len(r.tiers[DISK].replicas) == 3 and (await r.summary())[2] is Operation.NONE

        await eventually(whole)
