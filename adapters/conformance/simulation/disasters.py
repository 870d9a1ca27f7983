"""What the world does to a simulation: deaths, losses, damage, clogged tiers, clocks, leftovers."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING

from weightctl.adapters.conformance.reference import Stored
from weightctl.adapters.conformance.simulation.script import Action
from weightctl.adapters.conformance.simulation.subjects import subject_of
from weightctl.controller.core.policy import Window

if TYPE_CHECKING:
    from weightctl.adapters.conformance.simulation.world import World


async def kill(world: "World", action: Action) -> None:
    if world.leader is not None:
        world.leader.kill()


async def power(world: "World", action: Action) -> None:
    """The machine restarts: the process and everything in memory is gone."""
    await kill(world, action)
    for name, spec in world.specs.items():
        if not spec.nature.persistent:
            world.media[name].forget(world.loop.time(), epoch=True)


async def partition(world: "World", action: Action) -> None:
    """The leader loses its disk and does not notice; another one takes over."""
    (await world.some_leader()).depose(action.amount * 30)


def _tier(world: "World", action: Action) -> str:
    return list(world.specs)[action.of % len(world.specs)]


async def clog(world: "World", action: Action) -> None:
    tier = _tier(world, action)
    event = world.clogged.setdefault(tier, asyncio.Event())
    await asyncio.sleep(action.amount * 30)
    event.set()
    world.clogged.pop(tier, None)


async def jam(world: "World", action: Action) -> None:
    """All tiers are clogged one by one, and released one by one in the order of that number."""
    events = {}
    for tier in world.specs:
        events[tier] = world.clogged.setdefault(tier, asyncio.Event())
        await asyncio.sleep(action.amount * 2)
    orders = list(permutations(events.items()))
    for tier, event in orders[action.of % len(orders)]:
        await asyncio.sleep(action.amount * 5)
        event.set()
        if world.clogged.get(tier) is event:
            del world.clogged[tier]


async def away(world: "World", action: Action) -> None:
    medium = world.media[_tier(world, action)]
    medium.away = True
    await asyncio.sleep(action.amount * 30)
    medium.away = False


async def wipe(world: "World", action: Action) -> None:
    world.media[_tier(world, action)].forget(world.loop.time(), epoch=True)


async def forget(world: "World", action: Action) -> None:
    world.media[_tier(world, action)].forget(world.loop.time(), epoch=False)


async def lose(world: "World", action: Action) -> None:
    medium = world.media[_tier(world, action)]
    every = medium.every()
    if every:
        name, stored = every[int(action.amount * len(every)) % len(every)]
        medium.lose(name, stored, world.loop.time())


async def rot(world: "World", action: Action) -> None:
    medium = world.media[_tier(world, action)]
    every = medium.every()
    if every:
        name, stored = every[int(action.amount * len(every)) % len(every)]
        medium.rot(name, stored, world.loop.time())


async def cut(world: "World", action: Action) -> None:
    """Copies lose their tails and stay what they are otherwise: that share of them, or all."""
    medium = world.media[_tier(world, action)]
    every = medium.every()
    for name, stored in every[: 1 + int(action.amount * len(every))]:
        medium.cut(name, stored, world.loop.time())


async def swap(world: "World", action: Action) -> None:
    """Somebody puts another copy in the place of one; every other one has wrong bytes."""
    medium = world.media[_tier(world, action)]
    every = [(name, stored) for name, stored in medium.every() if not stored.hidden]
    if not every:
        return
    name, stored = every[int(action.amount * len(every)) % len(every)]
    medium.lose(name, stored, world.loop.time())
    medium.made += 1
    other = Stored(f"r{medium.made}", bytearray(stored.content), stored.sha256)
    medium.put(name, other)
    if medium.made % 2:
        medium.rot(name, other, world.loop.time())


async def appear(world: "World", action: Action) -> None:
    """Somebody else brings a good copy of every member in, as a request that was long under way."""
    medium, subject = world.media[_tier(world, action)], subject_of(world, action)
    world.touched_s[medium.tier, subject.group_id] = world.loop.time()
    for key, member in subject.members.items():
        if medium.seen(member) is None:
            medium.made += 1
            content = bytearray(subject.data[key])
            stored = Stored(f"r{medium.made}", content, member.sha256)
            medium.put((subject.group_id, key), stored)


async def reborn(world: "World", action: Action) -> None:
    """A tier comes back as a new one that still holds everything."""
    world.media[_tier(world, action)].epoch += "+"


async def litter(world: "World", action: Action) -> None:
    """A leftover of a revision that nobody has asked for: quarantined long ago."""
    subject = subject_of(world, action)
    medium = world.media[_tier(world, action)]
    key = list(subject.members)[int(action.amount * len(subject.members)) % len(subject.members)]
    stored = Stored(f"litter-{world.loop.steps}", bytearray(b"x"), bytes(32), hidden=True)
    world.touched_s[medium.tier, subject.group_id] = world.loop.time()
    medium.put((subject.group_id, key), stored)


async def jump(world: "World", action: Action) -> None:
    for process in world.processes:
        process.clock.jump_wall((action.amount - 0.5) * 200)


async def stop(world: "World", action: Action) -> None:
    for process in world.processes:
        process.clock.stop_wall()
    await asyncio.sleep(action.amount * 20)
    for process in world.processes:
        process.clock.start_wall()


async def skip(world: "World", action: Action) -> None:
    world.loop.skip(action.amount * 20)


async def pause(world: "World", action: Action) -> None:
    """The operator pauses the loop for a while, or shuts the window (amount from 0.5 to 1)."""
    leader = await world.some_leader()
    changed = replace(world.policy, paused=True)
    if 0.5 <= action.amount < 1:
        minute = leader.clock.wall_ms() // 60_000 % 1440
        later = Window(start_minute=(minute + 1) % 1440, end_minute=(minute + 2) % 1440)
        changed = replace(world.policy, windows=(later,))
    leader.set_policy(changed)
    try:
        await asyncio.sleep(action.amount * 20)
    finally:
        leader.set_policy(world.policy)


DISASTERS: dict[str, Callable[["World", Action], Awaitable[None]]] = {
    "kill": kill,
    "power": power,
    "partition": partition,
    "clog": clog,
    "jam": jam,
    "away": away,
    "wipe": wipe,
    "forget": forget,
    "lose": lose,
    "rot": rot,
    "cut": cut,
    "swap": swap,
    "reborn": reborn,
    "appear": appear,
    "litter": litter,
    "jump": jump,
    "stop": stop,
    "skip": skip,
    "pause": pause,
}
