"""When the faults are over everything converges within a bound, and then nothing is written."""

import asyncio
from typing import TYPE_CHECKING

from weightctl.adapters.conformance.simulation.quiet import stay_at_rest, unrest

if TYPE_CHECKING:
    from tests.sim.mooncake.world import MooncakeWorld

BOUND_S = 3600.0
LOOKED_AT = 3
"""Everything was looked at for drift after so many rounds."""


DEAD_ENDS = {
    "was not seen to come from what was put": "a copy of unknown origin",
    "it is an older file of that key and size, or damaged": "an older file beside memory",
    "no such replica within": "what no host offloads",
}
"""What the sidecar cannot get out of by itself, by what it says of it, which tells what to do."""


def _is_dead_end(world: "MooncakeWorld", why: str) -> bool:
    for told, name in DEAD_ENDS.items():
        if told in why:
            world.happened(f"told: {name}")
            return True
    return False


async def come_to_rest(world: "MooncakeWorld") -> None:
    """Wait for rest, which must come, and see that it lasts."""
    world.faulty = False
    world.over_s = world.loop.time()
    world.note("the faults are over")
    for process in world.processes:
        process.clock.start_wall()
        if process.deposed:
            process.kill()
    await asyncio.sleep(LOOKED_AT * world.settings.resync.published_s)
    until_s = world.over_s + BOUND_S
    while waiting := [why for why in unrest(world) if not _is_dead_end(world, why)]:
        if world.loop.time() > until_s:
            world.violate("convergence", "; ".join(waiting))
            return
        await asyncio.sleep(5.0)
    await stay_at_rest(world)
