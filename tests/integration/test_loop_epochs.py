"""A tier that forgets between what a pass saw of it and the look before the pass acts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.loop_rig import IDENTITY, place, rig
from tests.support.sim_tier import SimTier, World
from weightctl.controller.core.observation import Members, TierObservation
from weightctl.controller.core.records import Availability, Operation, Residency


class Forgetful(SimTier):
    """When armed, changes its epoch at the next look of a pass that is about to act.

    Such a look asks for the details of every member that it names; what the tier holds is the same.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.armed = False

    async def observe(self, members: Members, *, detail: Sequence[int] = ()) -> TierObservation:
        if self.armed and len(detail) == len(members):
            self.armed = False
            self.epoch += 1
        return await super().observe(members, detail=detail)


def losses(world: World) -> list[str]:
    """The verbs that took a replica away."""
    return [event.verb for event in world.history if event.verb in {"drop", "quarantine"}]


@pytest.mark.parametrize("forgetful", ["mem", "disk"])
async def test_evict_drops_nothing_when_an_epoch_ends_before_it_acts(
    tmp_path: Path, forgetful: str
) -> None:
    """Neither from a tier that forgot, nor on the word of a copy read back before it did."""
    world = World()
    tiers = {name: Forgetful(name, hot=name == "mem", world=world) for name in ("mem", "disk")}
    async with rig(tmp_path, tuple(tiers.values())) as r:
        data = await r.publish()
        for tier in tiers.values():
            place(tier, IDENTITY, data)
        await r.converge()
        await r.start(Residency.COLD)
        await r.step()  # reads the cold copies back
        tiers[forgetful].armed = True
        await r.step()
        assert not tiers[forgetful].armed, "the pass has looked again before it would drop"
        assert losses(world) == []
        await r.converge()
        assert len(losses(world)) == len(data)
        assert await r.summary() == (Availability.READY, Residency.COLD, Operation.NONE)


async def test_delete_drops_nothing_when_an_epoch_ends_before_it_acts(tmp_path: Path) -> None:
    world = World()
    disk = Forgetful("disk", hot=False, world=world)
    async with rig(tmp_path, (disk,)) as r:
        place(disk, IDENTITY, await r.publish())
        await r.converge()
        await r.delete()
        disk.armed = True
        await r.step()
        assert not disk.armed
        assert losses(world) == []
        await r.converge()
        assert disk.contents() == {}
        assert (await r.record()).availability is Availability.DELETED


async def test_quarantine_takes_nothing_when_an_epoch_ends_before_it_acts(tmp_path: Path) -> None:
    world = World()
    disk = Forgetful("disk", hot=False, world=world)
    mem = SimTier("mem", hot=True, world=world)
    async with rig(tmp_path, (mem, disk)) as r:
        data = await r.publish()
        for tier in (mem, disk):
            place(tier, IDENTITY, data)
        await r.converge()
        wrong = disk.find(next(iter(data)))
        assert wrong is not None
        wrong.content[0] ^= 1
        await r.start(Residency.COLD)
        await r.step()  # reads the cold copies back and finds one wrong
        disk.armed = True
        await r.step()
        assert not disk.armed
        assert losses(world) == []
        await r.converge()
        assert await r.summary() == (Availability.READY, Residency.COLD, Operation.NONE)
