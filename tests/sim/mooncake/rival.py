"""Another store's sidecar beside the same cluster: it has to be refused and to touch nothing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import anyio

from tests.sim.mooncake.process import MooncakeProcess
from tests.sim.mooncake.seams import PROCESS
from weightctl.adapters.conformance.revisions import contents, identity, members_of
from weightctl.adapters.conformance.simulation.disk import Disk, open_store
from weightctl.adapters.conformance.simulation.script import Action
from weightctl.adapters.conformance.simulation.subjects import source_of
from weightctl.controller.ports import Done, Fence, NoOp, StoreItem
from weightctl.controller.runtime.controller import Controller
from weightctl.controller.store.store import WeightMetadataStore

if TYPE_CHECKING:
    from tests.sim.mooncake.world import MooncakeWorld
    from weightctl.adapters.conformance.simulation.world import World

NUMBER = 99
"""Of its process, and of its revision."""
PAUSE_S = 5.0


class Rival(MooncakeProcess):
    """A sidecar with a state directory of its own; its passes are not judged, its acts are."""

    is_judged = False

    def kill(self) -> None:
        """Nobody starts it again."""
        self.deposed = True
        super().kill()

    def __init__(self, world: "World") -> None:
        super().__init__(world, NUMBER)
        self.actor = "rival"
        self.config = replace(
            self.config,
            values={**self.config.values, "state_dir": f"{self.config.state_dir}/rival"},
        )
        self._disk = Disk()

    @asynccontextmanager
    async def open_store(self) -> AsyncIterator[WeightMetadataStore]:
        async with open_store(self._disk, clock=self.clock, entropy=self.entropy) as self.store:
            yield self.store
        self._disk.dispose()

    def controller_of(self, store: WeightMetadataStore, tiers: Any, **more: Any) -> Controller:
        self.tiers = list(tiers)
        self.controller = Controller(store, tiers, **more)
        return self.controller


async def rival(world: "World", action: Action) -> None:
    """It starts, and tries to store something of its own again and again, for `of` seconds."""
    world.tasks.start_soon(_live, world, world.loop.time() + action.of)


async def _live(world: "World", until_s: float) -> None:
    moon, other = cast("MooncakeWorld", world), Rival(world)
    PROCESS.set(other)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other.run)
        try:
            await other.started.wait()
            while world.loop.time() < until_s:
                await anyio.sleep(PAUSE_S)
                await _try(moon, other)
            moon.happened("another store is refused")
        finally:
            other.kill()


async def _try(moon: "MooncakeWorld", other: Rival) -> None:
    of = identity(NUMBER)
    data = contents(of, 1)
    fence = Fence(holder=other.store.holder, term=other.store.term, operation_id=0, generation=1)
    for tier in other.tiers:
        batch = [
            StoreItem(member=one, open_source=source_of(data[one.key]))
            for one in members_of(of, data)
        ]
        for outcome in await tier.store(batch, fence):
            if isinstance(outcome, Done | NoOp):
                moon.violate("foreign", f"another store was served by {tier.profile.name}")
