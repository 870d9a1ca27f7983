"""What happens to a simulated cluster; each begins and ends by actions of their own."""

from typing import TYPE_CHECKING, cast

from weightctl.adapters.conformance.simulation import actions, disasters
from weightctl.adapters.conformance.simulation.script import Action
from weightctl.adapters.conformance.simulation.subjects import subject_of

if TYPE_CHECKING:
    from tests.sim.mooncake.cluster import Host
    from tests.sim.mooncake.world import MooncakeWorld
    from weightctl.adapters.conformance.simulation.world import World


def _moon(world: "World") -> "MooncakeWorld":
    return cast("MooncakeWorld", world)


def _host(world: "MooncakeWorld", action: Action) -> "Host":
    return world.cluster.hosts[action.of % len(world.cluster.hosts)]


def _shaken(world: "MooncakeWorld") -> None:
    world.cluster.shaken_s = world.loop.time()


async def import_revision(world: "World", action: Action) -> None:
    """As any import, which asks for room first: it waits until the cluster is its own."""
    for tier in (await world.some_leader()).tiers:
        await tier.capacity()
    await actions.import_revision(world, action)


async def freeze(world: "World", action: Action) -> None:
    moon = _moon(world)
    moon.network.freeze()
    moon.happened("the Master hangs")


async def thaw(world: "World", action: Action) -> None:
    _moon(world).network.thaw()


async def master_stops(world: "World", action: Action) -> None:
    moon = _moon(world)
    moon.network.stop()
    moon.happened("the Master stops")


async def master_starts(world: "World", action: Action) -> None:
    """It has forgotten everything, or (amount above 0) has kept its log."""
    moon = _moon(world)
    _shaken(moon)
    moon.network.start(remembers=action.amount > 0)
    moon.happened("a Master remembers" if action.amount > 0 else "a Master has forgotten")


async def lossy(world: "World", action: Action) -> None:
    _moon(world).network.lossy = action.amount


async def host_dies(world: "World", action: Action) -> None:
    moon = _moon(world)
    _shaken(moon)
    moon.cluster.kill(_host(moon, action))
    moon.happened("a host dies")


async def host_returns(world: "World", action: Action) -> None:
    moon = _moon(world)
    host = _host(moon, action)
    _shaken(moon)
    if not host.alive:
        moon.cluster.come_back(host)
        moon.happened("a host returns" if host.registered else "a host returns too soon")
        for subject in moon.subjects.values():
            moon.touched_s["disk", subject.group_id] = moon.loop.time()


async def old_files(world: "World", action: Action) -> None:
    """Somebody else's files of managed names and sizes are left in a host's folder."""
    moon, host = _moon(world), _host(_moon(world), action)
    for key, content in subject_of(world, action).data.items():
        if key not in moon.cluster.objects:
            host.folder[key] = bytes(byte ^ 1 for byte in content)


async def disk_goes(world: "World", action: Action) -> None:
    moon = _moon(world)
    _shaken(moon)
    _host(moon, action).disk_there = False
    moon.happened("a disk is away")


async def disk_returns(world: "World", action: Action) -> None:
    moon = _moon(world)
    _host(moon, action).disk_there = True


async def offload_slow(world: "World", action: Action) -> None:
    moon = _moon(world)
    _host(moon, action).lag_s = action.amount * 40
    moon.happened("offload is slow")


async def offload_stops(world: "World", action: Action) -> None:
    moon = _moon(world)
    _host(moon, action).offloads = False
    moon.happened("offload never comes")


async def offload_goes_on(world: "World", action: Action) -> None:
    host = _host(_moon(world), action)
    host.offloads, host.lag_s = True, 0.0


async def stranger_puts(world: "World", action: Action) -> None:
    """A cache beside it puts until others have to go; one pinned object for the amount 0."""
    moon = _moon(world)
    cluster = moon.cluster
    for number in range(int(action.amount * 60) + 1):
        cluster.tick()
        key = f"kv/{action.of}/{moon.loop.time():.3f}/{number}"
        content = key.encode() * (40 if action.amount else 1)
        pinned = action.amount == 0
        if cluster.rpc_start("stranger", key, len(content), "", pinned=pinned, group=key) == 0:
            cluster.rpc_write("stranger", key, 0, content)
            cluster.rpc_end("stranger", key)
            cluster.strangers[key] = content
    moon.happened("strangers put")


async def fill(world: "World", action: Action) -> None:
    """Somebody pins all the memory that is left."""
    moon = _moon(world)
    cluster = moon.cluster
    cluster.tick()
    for size_bytes in (8000, 1000, 200, 20):
        for number in range(100):
            key = f"ballast/{action.of}/{moon.loop.time():.3f}/{size_bytes}/{number}"
            if cluster.rpc_start("stranger", key, size_bytes, "", pinned=True) != 0:
                break
            cluster.rpc_end("stranger", key)
            cluster.strangers[key] = b""
    moon.happened("the segments are full")


async def empty(world: "World", action: Action) -> None:
    cluster = _moon(world).cluster
    for key in [key for key in cluster.objects if key.startswith("ballast/")]:
        del cluster.objects[key]
        cluster.strangers.pop(key, None)


async def stranger_reads(world: "World", action: Action) -> None:
    """Somebody reads managed objects, which leases them, and brings them back into memory."""
    moon, subject = _moon(world), subject_of(world, action)
    moon.cluster.tick()
    moon.cluster.rpc_touch(list(subject.members))
    for key in subject.members:
        moon.cluster.stirred_s[key] = moon.loop.time()
    moon.happened("strangers read")


async def stranger_tricks(world: "World", action: Action) -> None:
    """Somebody puts a key with a member behind a comma: who asks for it is told of both."""
    moon = _moon(world)
    key = f"weightctl-owner/stranger,{_some_key(world, action)}"
    moon.cluster.tick()
    if moon.cluster.rpc_start("stranger", key, 1, "", group=key) == 0:
        moon.cluster.rpc_end("stranger", key)
        moon.cluster.strangers[key] = b""
        moon.happened("a stranger's key has a comma")


async def stranger_removes(world: "World", action: Action) -> None:
    moon, key = _moon(world), _some_key(world, action)
    moon.cluster.tick()
    if moon.cluster.rpc_remove([key]) == [0]:
        _shaken(moon)
        moon.happened("a stranger removes a member")


async def stranger_replaces(world: "World", action: Action) -> None:
    """Somebody removes a member and puts other bytes of its size under its key."""
    moon, key = _moon(world), _some_key(world, action)
    cluster = moon.cluster
    cluster.tick()
    one = cluster.objects.get(key)
    if one is None or cluster.rpc_remove([key]) != [0]:
        return
    _shaken(moon)
    other = bytes(byte ^ 1 for byte in one.content)
    if cluster.rpc_start("stranger", key, len(other), "", group=key) == 0:
        cluster.rpc_write("stranger", key, 0, other)
        cluster.rpc_end("stranger", key)
        moon.happened("a stranger replaces a member")


def _some_key(world: "World", action: Action) -> str:
    keys = list(subject_of(world, action).members)
    return keys[int(action.amount * len(keys)) % len(keys)]


async def kill(world: "World", action: Action) -> None:
    moon = _moon(world)
    if moon.leader is not None:
        moon.leader.kill()
        moon.happened("the sidecar is killed")


ACTIONS = {
    **{name: actions.ACTIONS[name] for name in actions.ACTIONS if name not in disasters.DISASTERS},
    **{name: disasters.DISASTERS[name] for name in ("jump", "stop", "skip", "pause")},
    "kill": kill,
    "stranger_puts": stranger_puts,
    "stranger_reads": stranger_reads,
    "stranger_tricks": stranger_tricks,
    "stranger_removes": stranger_removes,
    "stranger_replaces": stranger_replaces,
    "fill": fill,
    "empty": empty,
    "import": import_revision,
    "freeze": freeze,
    "thaw": thaw,
    "master_stops": master_stops,
    "master_starts": master_starts,
    "lossy": lossy,
    "calm": lossy,
    "host_dies": host_dies,
    "host_returns": host_returns,
    "old_files": old_files,
    "disk_goes": disk_goes,
    "disk_returns": disk_returns,
    "offload_slow": offload_slow,
    "offload_stops": offload_stops,
    "offload_goes_on": offload_goes_on,
}


async def end_faults(world: "MooncakeWorld") -> None:
    """All is well again, as far as somebody can make it so."""
    await empty(world, Action(at_s=0.0, name="empty"))
    world.network.lossy = 0.0
    world.network.thaw()
    world.network.start(remembers=True)
    for host in world.cluster.hosts:
        host.disk_there, host.offloads, host.lag_s = True, True, 0.0
        if not host.alive:
            world.cluster.come_back(host)
    _shaken(world)
