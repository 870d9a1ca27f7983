"""Random histories: operations, leases, faults and restarts in any order, judged after each step.

One seed is one history.  After every pass the invariants that can be seen from outside are checked:
no published member without a readable copy that had one, nothing dropped under a lease or from a
record of an older generation, the manifest last, generations that only grow, DELETED only when
nothing is there.  In the end the faults stop, and everything must converge and stay quiet.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.loop_rig import Rig, identity, place, rig
from tests.support.sim_tier import Event, SimTier, World
from tests.support.virtual_time import VirtualClock
from weightctl.controller.core.identity import Identity, manifest_key, payload_group_id
from weightctl.controller.core.policy import Policy
from weightctl.controller.core.records import Availability, Operation, Residency
from weightctl.controller.errors import WeightError
from weightctl.controller.runtime.observer import ObserverOptions
from weightctl.controller.runtime.runner import Again
from weightctl.controller.runtime.settings import ExecutorOptions, RuntimeSettings

SEEDS = 20
STEPS = 200
REVISIONS = 3
POLICY = Policy(settle_s=5.0, pass_members_max=3, import_abandon_ms=10**12)
SETTINGS = RuntimeSettings(
    observer=ObserverOptions(deadline_s=1.0),
    executor=ExecutorOptions(batch_members_max=2, batches_at_once=2),
)
PUBLISHED = (Availability.READY, Availability.DEGRADED)


class Simulation:
    """One history over one state directory; the tiers and the clock outlive the processes."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.world = World()
        self.tiers = (
            SimTier("mem", hot=True, world=self.world),
            SimTier("disk", hot=False, world=self.world),
            SimTier("far", hot=False, world=self.world),
        )
        self.clock = VirtualClock()
        self.data: dict[Identity, dict[str, bytes]] = {}
        self.judged = 0
        self.generations: dict[Identity, int] = {}
        self.leases: list[int] = []

    # --- what happens -----------------------------------------------------------------------------

    async def populate(self, r: Rig) -> None:
        for number in range(REVISIONS):
            of = identity(number)
            self.data[of] = await r.publish(of, payloads=3)
            place(self.tiers[self.chance.choice((0, 1))], of, self.data[of])

    async def act(self, r: Rig) -> None:
        """One thing that a user, a medium or time does."""
        of = self.chance.choice(list(self.data))
        passes = [self.step] * 12
        action = self.chance.choice(
            (self.operate, self.operate, self.lease, self.fault, self.flip, self.wait, *passes)
        )
        try:
            await action(r, of)
        except WeightError:
            return  # refused by the contract; nothing happened

    async def operate(self, r: Rig, of: Identity) -> None:
        match self.chance.randrange(8):
            case 0 if self.chance.random() < 0.1:
                await r.delete(of)
            case 1 | 2:
                await r.repair(self.chance.choice((Residency.HOT, Residency.COLD)), of)
            case 3 | 4:
                await r.start(Residency.HOT, of)
            case _:
                await r.start(Residency.COLD, of)

    async def lease(self, r: Rig, of: Identity) -> None:
        if self.leases and self.chance.random() < 0.5:
            await r.store.release_lease(lease_id=self.leases.pop())
            return
        lease = await r.store.acquire_lease(
            identity=of,
            expected_metadata_generation=(await r.record(of)).metadata_generation,
            holder="reader",
            ttl_ms=self.chance.choice((1000, 60_000)),
        )
        self.leases.append(lease.lease_id)

    async def fault(self, r: Rig, of: Identity) -> None:
        faults = self.chance.choice(self.tiers).faults
        match self.chance.randrange(5):
            case 0:
                faults.silent = not faults.silent and self.chance.random() < 0.4
            case 1:
                faults.short = not faults.short and self.chance.random() < 0.4
            case 2:
                faults.lose_answers += 1
            case 3:
                faults.cut_batches += 1
            case _:
                faults.refuse_batches += 1

    async def flip(self, r: Rig, of: Identity) -> None:
        """Change an epoch, or spoil a replica of which another right one exists.

        What rots after it was read back is found by a later reading; evidence cannot know of it.
        """
        tier = self.chance.choice(self.tiers)
        if self.chance.random() < 0.3:
            tier.epoch += 1
            return
        key = self.chance.choice(sorted(self.data[of]))
        copy = tier.find(key)
        if copy is not None and len(self.right(of, key)) > 1 and not self.proven(r, of, tier, key):
            copy.content[0] ^= 1

    def proven(self, r: Rig, of: Identity, tier: SimTier, key: str) -> bool:
        index = sorted(self.data[of]).index(key)
        copy = tier.find(key)
        epoch, instance = str(tier.epoch), copy.instance_id if copy else ""
        group = payload_group_id(of)
        read_s = r.observer.evidence.read_s(tier.profile.name, group, index, epoch, instance)
        return read_s > float("-inf")

    async def wait(self, r: Rig, of: Identity) -> None:
        self.clock.jump(self.chance.choice((0.5, 6.0, 70.0)))
        if self.chance.random() < 0.2:
            self.clock.jump_wall(self.chance.choice((3600, -3600)))

    async def step(self, r: Rig, of: Identity) -> None:
        leased = bool(r.store.leases(identity=of))
        held = {key: len(self.right(of, key)) for key in self.data[of]}
        following = await r.step(of)
        await self.judge(r, of, leased=leased, held=held)
        if isinstance(following, Again):
            self.clock.jump(min(following.after_s, 5.0))

    # --- what must hold ---------------------------------------------------------------------------

    def right(self, of: Identity, key: str) -> list[str]:
        """Tiers with a right, visible copy."""
        return [
            tier.profile.name
            for tier in self.tiers
            if (copy := tier.find(key)) is not None and bytes(copy.content) == self.data[of][key]
        ]

    async def judge(self, r: Rig, of: Identity, *, leased: bool, held: dict[str, int]) -> None:
        record = await r.record(of)
        assert record.metadata_generation >= self.generations.get(of, 0), "generations go back"
        self.generations[of] = record.metadata_generation
        events = self.world.history[self.judged :]
        self.judged = len(self.world.history)
        removed = [event for event in events if event.verb in ("drop", "quarantine")]
        if leased:
            assert not removed, f"removed under a lease: {removed}"
        if record.availability in PUBLISHED:
            for key, count in held.items():
                assert not count or self.right(of, key), f"the last copy of {key} is gone"
        elif record.availability is Availability.DELETED:
            assert not any(self.copies(of)), "DELETED, and something is still there"
        self.judge_order(of, removed)

    def judge_order(self, of: Identity, removed: list[Event]) -> None:
        manifest = manifest_key(of)
        for event in removed:
            assert event.key in self.data[of], "a pass touches its own revision only"
            if event.verb == "drop" and event.key == manifest and event.fence.operation_id == 0:
                payloads = [key for key in self.data[of] if key != manifest]
                assert not any(tier.find(key) for tier in self.tiers for key in payloads)

    def copies(self, of: Identity) -> list[str]:
        return [key for tier in self.tiers for key in self.data[of] if tier.find(key) is not None]

    async def end(self, r: Rig) -> None:
        """Faults stop: everything converges, and then nothing is written any more."""
        for tier in self.tiers:
            tier.faults = type(tier.faults)()
        self.clock.jump(100_000)
        await r.store.expire_leases()
        for of in self.data:
            await self.finish(r, of)
        quiet = (r.store.last_sequence, len(self.world.history))
        for of in self.data:
            await r.settle(of, passes=2)
        assert (r.store.last_sequence, len(self.world.history)) == quiet, "not quiet in the end"

    async def finish(self, r: Rig, of: Identity) -> None:
        await r.settle(of, passes=60)
        record = await r.record(of)
        lost = [key for key in self.data[of] if not self.right(of, key)]
        if record.availability is Availability.DELETED:
            return
        assert not lost, f"{of}: {lost} lost, and nobody deleted them"
        repairing = record.operation is Operation.REPAIRING
        assert record.operation is Operation.NONE or repairing, r.board.of(of)
        assert record.availability is Availability.READY


@asynccontextmanager
async def process(folder: Path, sim: Simulation) -> AsyncIterator[Rig]:
    async with rig(folder, sim.tiers, clock=sim.clock, policy=POLICY, settings=SETTINGS) as made:
        yield made


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_a_random_history_keeps_the_invariants_and_converges(
    tmp_path: Path, seed: int
) -> None:
    running_on_uvloop = type(asyncio.get_running_loop()).__module__ == "uvloop"
    sim = Simulation(seed + 1000 * running_on_uvloop)  # twice as many histories
    async with process(tmp_path, sim) as r:
        await sim.populate(r)
    left = STEPS
    while left > 0:
        async with process(tmp_path, sim) as r:  # each process does some of it, then restarts
            life = sim.chance.randrange(20, 80)
            for _ in range(min(left, life)):
                await sim.act(r)
            left -= life
    async with process(tmp_path, sim) as r:
        await sim.end(r)
