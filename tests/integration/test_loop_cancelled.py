"""A pass that is cut off at any call of the store or a tier is repaired by the next passes.

For each operation every n is tried: the n-th point of the whole operation cancels the pass that
reaches it.  Odd points are followed by a restart of the process, even ones by the next pass.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.cutting import Cut, Cutter
from tests.support.loop_rig import IDENTITY, Rig, place, rig, sim_tiers
from tests.support.sim_tier import SimTier, World
from weightctl.controller.core.identity import manifest_key
from weightctl.controller.core.policy import Policy
from weightctl.controller.core.records import Availability, Operation, Residency
from weightctl.controller.runtime.runner import Again, Finished

READY, NONE = Availability.READY, Operation.NONE
Start = Callable[[Rig], Awaitable[Any]]


async def evict(r: Rig) -> None:
    await r.start(Residency.COLD)


async def rehydrate(r: Rig) -> None:
    await r.start(Residency.HOT)


async def repair(r: Rig) -> None:
    await r.repair(Residency.COLD)


async def delete(r: Rig) -> None:
    await r.delete()


OPERATIONS = {
    "evict": (evict, (0,), (READY, Residency.COLD, NONE)),
    "rehydrate": (rehydrate, (1,), (READY, Residency.HOT, NONE)),
    "repair": (repair, (1,), (READY, Residency.COLD, NONE)),
    "delete": (delete, (0, 1), (Availability.DELETED, Residency.ABSENT, NONE)),
}


async def run_cut(r: Rig, cutter: Cutter) -> bool:
    """Converge; whether a pass was cut off on the way."""
    for _ in range(100):
        cutter.task = asyncio.create_task(r.step())
        try:
            following = await cutter.task
        except asyncio.CancelledError:
            return True
        if isinstance(following, Finished):
            return False
        r.clock.jump(following.after_s if isinstance(following, Again) else 1.0)
    raise AssertionError("no end")


def check(data: dict[str, bytes], tiers: tuple[SimTier, ...], world: World, name: str) -> None:
    if name == "delete":
        assert [tier.contents() for tier in tiers] == [{}, {}, {}]
        keys = [event.key for event in world.history]
        first_manifest = keys.index(manifest_key(IDENTITY))
        assert set(keys[first_manifest:]) == {manifest_key(IDENTITY)}, "the manifest goes last"
        return
    for key, content in data.items():
        copies = [copy for tier in tiers if (copy := tier.find(key)) is not None]
        assert copies, f"the last copy of {key} is gone"
        assert all(bytes(copy.content) == content for copy in copies)
    generations = [event.fence.generation for event in world.history]
    assert generations == sorted(generations), "no primitive under an older fence follows"


@pytest.mark.parametrize("name", OPERATIONS)
async def test_a_pass_cut_off_anywhere_converges_afterwards(tmp_path: Path, name: str) -> None:
    start, placed, expected = OPERATIONS[name]
    policy = Policy(cold_copies=2 if name == "repair" else 1)
    for number in itertools.count(1):
        folder = tmp_path / str(number)
        world, cutter = World(), Cutter()
        tiers = sim_tiers(world)
        cut_tiers: tuple[Any, ...] = tuple(Cut(tier, cutter) for tier in tiers)

        def wrap(store: Any, cutter: Cutter = cutter) -> Cut:
            return Cut(store, cutter)

        async with rig(folder, cut_tiers, policy=policy, wrap=wrap) as r:
            data = await r.publish(payloads=1)
            for index in placed:
                place(tiers[index], IDENTITY, data)
            await r.converge()
            await start(r)
            cutter.count, cutter.at = 0, number
            was_cut = await run_cut(r, cutter)
            cutter.at = 0
            if was_cut and number % 2 == 0:
                await r.converge()
                assert await r.summary() == expected
            clock = r.clock
        if was_cut and number % 2:
            async with rig(folder, tiers, policy=policy, clock=clock) as r:
                await r.converge()
                assert await r.summary() == expected
        check(data, tiers, world, name)
        if not was_cut:
            assert number > 20, "the enumeration has seen few points"
            return
