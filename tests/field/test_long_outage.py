"""Every tier away for three days: little is asked, kept and said meanwhile; then it goes on.

A Master that does not serve is all of its tiers at once. Passes come as the queue lets them come,
by its longest backoff at the latest; time is virtual, store, observer and reconciler are real.
"""

import gc
import logging
from pathlib import Path

import pytest

from tests.support.loop_rig import Rig, identity, place, rig, sim_tiers
from tests.support.virtual_time import VirtualClock
from weightctl.adapters.mooncake.client.reads import Reads
from weightctl.adapters.mooncake.master.admin import LEASE_FREE, Health
from weightctl.adapters.mooncake.standing import Standing
from weightctl.controller.core.identity import Identity
from weightctl.controller.core.records import Availability, Operation, Residency
from weightctl.controller.runtime.runner import Again, Failed
from weightctl.controller.runtime.settings import RuntimeSettings

DAY_S = 86_400.0
DAYS = 3
REVISIONS = 2
EVICTED = (Availability.READY, Residency.COLD, Operation.NONE)


async def wait_a_day(r: Rig, revisions: list[Identity]) -> int:
    """Passes over all revisions for a day, each as late as it may be; how many there were."""
    slowest_s = RuntimeSettings().queue.backoff.max_s
    until_s, passes = r.clock.monotonic_s() + DAY_S, 0
    while r.clock.monotonic_s() < until_s:
        waits_s = []
        for of in revisions:
            match await r.step(of):
                case Again(after_s=after_s):
                    waits_s.append(after_s)
                case Failed(at_least_s=at_least_s):
                    waits_s.append(max(at_least_s, slowest_s))
                case _:
                    waits_s.append(DAY_S)
            passes += 1
        assert min(waits_s) >= 1.0, "nobody turns on the spot"
        r.clock.jump(min(waits_s))
    return passes


async def test_three_days_without_any_tier_leave_nothing_behind_and_end_by_themselves(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tiers = sim_tiers()
    revisions = [identity(number) for number in range(REVISIONS)]
    async with rig(tmp_path, tiers) as r:
        for of in revisions:
            data = await r.publish(of)
            for tier in tiers[:2]:
                place(tier, of, data)
            await r.converge(of)
            await r.start(Residency.COLD, of)
        for tier in tiers:
            tier.faults.silent = True
        caplog.set_level(logging.INFO)
        held, said = [], []
        for _ in range(DAYS):
            await wait_a_day(r, revisions)
            r.reports.clear()
            said.append(len(caplog.records))
            caplog.clear()
            gc.collect()
            held.append(len(gc.get_objects()))
        assert said[1] == said[2] == 0, "an outage is told when it begins, and not again and again"
        assert abs(held[2] - held[1]) < held[1] / 100, "nothing piles up"
        for of in revisions:
            assert (await r.record(of)).operation is Operation.EVICTING
        for tier in tiers:
            tier.faults.silent = False
        began_s = r.clock.monotonic_s()
        for of in revisions:
            await r.converge(of)
            assert await r.summary(of) == EVICTED
        assert r.clock.monotonic_s() - began_s < DAY_S / 24, "what was away is soon believed again"


def test_health_says_since_when_nobody_serves_also_after_days() -> None:
    clock = VirtualClock()
    standing = Standing(clock)
    asked, reads = dict.fromkeys(LEASE_FREE, 0), Reads(clock, 10.0, 1024)
    standing.serves(Health(address="a:1", role="leader", view=""))
    for _ in range(DAYS * 24 * 60):
        standing.is_away("a:1: refused")
        clock.jump(60.0)
    report = standing.report(asked, reads)
    seconds = int(DAYS * DAY_S)
    assert report.state.startswith(f"no Master has served for {seconds} s; a:1 served last")
    assert (report.numbers["outages"], report.numbers["outage_seconds"]) == (1, seconds)
    standing.serves(Health(address="a:1", role="leader", view=""))
    assert standing.report(asked, reads).state == "leader a:1 serves"
