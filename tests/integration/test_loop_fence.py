"""A batch that waited for its place acts for the record of now, or not at all."""

import asyncio
from pathlib import Path

from tests.support.loop_rig import IDENTITY, Rig, place, rig, sim_tiers
from tests.support.sim_tier import World
from weightctl.controller.core.records import Residency
from weightctl.controller.runtime.admission import Ticket, TierLimits, WorkClass
from weightctl.controller.runtime.settings import RuntimeSettings

ONE_AT_A_TIME = RuntimeSettings(tiers={"mem": TierLimits(concurrency=1)})
OTHER = Ticket(work_class=WorkClass.EVICT, owner="another", tiers=("mem",), size_bytes=1)


async def _passes_until_one_waits(r: Rig) -> asyncio.Task[object]:
    """A pass whose batch waits for its place; the ones before it are over."""
    for _ in range(20):
        task: asyncio.Task[object] = asyncio.create_task(r.step())
        while not task.done() and not r.dispatch.admission.waiting_count:
            await asyncio.wait([task], timeout=0)
        if not task.done():
            return task
        r.clock.jump(1.0)
    raise AssertionError("no batch waited")


async def test_a_batch_whose_operation_ended_while_it_waited_is_never_sent(tmp_path: Path) -> None:
    world = World()
    tiers = sim_tiers(world)
    async with rig(tmp_path, tiers, settings=ONE_AT_A_TIME) as r:
        data = await r.publish()
        for tier in tiers[:2]:
            place(tier, IDENTITY, data)
        await r.converge()
        operation_id = await r.start(Residency.COLD)
        async with r.dispatch.admission.place(OTHER):
            waits = await _passes_until_one_waits(r)
            await r.store.finish_operation(
                operation_id=operation_id, observed_residency=Residency.COLD
            )
            await r.delete()
            sent = len(world.history)
            now = (await r.record()).operation_id
        await asyncio.wait([waits])
        assert {event.fence.operation_id for event in world.history[sent:]} <= {now}
        kept = {key for _, key in tiers[0].contents()}
        assert kept == set(data), "the eviction is over: it drops nothing"
