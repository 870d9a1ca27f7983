"""Servers that stand still, die and come back while a controller works on many revisions.

Each round hurts the file system in one way and waits until the users of the other tiers have done
everything twice; then it heals it and waits until the users of the file system have done so, too.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import anyio

from tests.faults.moosefs.lab import CHUNKSERVER, CLIENT, MASTER, Lab
from tests.faults.moosefs.torture import times
from tests.faults.moosefs.world import FAR, NEAR, World, world
from tests.support.agility import agile
from tests.support.dfs_tiers import away

HURT_S = 2.2
"""Longer than the deadlines of the tier, so that workers are left behind."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One way to be away and to come back; both block."""

    name: str
    hurt: Callable[[Lab], None]
    heal: Callable[[Lab], None]


def _stands_still(server: str) -> Fault:
    return Fault(
        f"{server} stands still", lambda lab: lab.freeze(server), lambda lab: lab.thaw(server)
    )


def _is_killed(server: str) -> Fault:
    return Fault(f"{server} is killed", lambda lab: lab.kill(server), lambda lab: lab.run(server))


def _unmount(lab: Lab) -> None:
    lab.kill(CLIENT)
    lab.send("unmount", CLIENT)


FAULTS = (
    _stands_still(CHUNKSERVER),
    _stands_still(MASTER),
    _stands_still(CLIENT),
    _is_killed(CHUNKSERVER),
    _is_killed(MASTER),
    Fault("mnt is gone", _unmount, lambda lab: lab.send("mount", CLIENT)),
)


async def suffer(lab: Lab, w: World, fault: Fault) -> str:
    """One round of one fault, under load; how long it was away and was noticed afterwards."""
    hurt_s = time.monotonic()
    await away(fault.hurt, lab)
    try:
        async with agile(1 / 50):
            await anyio.sleep(HURT_S)
            await w.come_further(NEAR, 2)
    finally:
        await away(fault.heal, lab)
    healed_s = time.monotonic()
    await w.come_further(FAR)
    return f"{healed_s - hurt_s:5.1f} s + {time.monotonic() - healed_s:5.1f} s"


async def test_the_loop_and_the_other_tiers_do_not_notice_and_all_converges_on_return(
    lab: Lab, tmp_path: Path
) -> None:
    chance = random.Random(20)
    async with world(tmp_path, lab.mount / tmp_path.name, near=2, far=3) as w:
        await w.come_further(FAR)
        rounds = [fault for _ in range(times(1)) for fault in chance.sample(FAULTS, len(FAULTS))]
        for number, fault in enumerate(rounds, 1):
            took = await suffer(lab, w, fault)
            told = f"{number:4} {fault.name:24} {took}  cycles {w.cycles()}  {dict(w.errors())}"
            print(told)  # noqa: T201 - what a long run counts
        await w.rest()
