"""A Mooncake cluster that has a life: hosts with folders, a Master that forgets, others' pressure.

The imitation of the unit tests with what only time and disasters bring out of the real one: files
stay behind when their objects are removed and come back with their host, memory goes with it, a
Master knows of a death only after `client_ttl`. Whoever acts is known: each loss has a doer.
"""

import heapq
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from tests.support.mooncake.imitation import NOT_FOUND, Imitation, Object, Paces, Segment

CLIENT_TTL_S = 10.0
REGISTER_S = 1.4
"""A host finds a new Master after so long."""
DISCARD_S = 30.0
"""What was begun to be put and not ended is discarded after so long."""
SEGMENT_BYTES = 64 * 1024
ROOM_LEFT = 0.1
"""Above this share of use the Master evicts what is not pinned."""


@dataclass(frozen=True, slots=True, eq=False)
class Act:
    """What a sidecar does at the Master."""

    actor: str
    call: str
    """Of its tier, for which it is done; empty for what it does by itself."""
    began_s: float
    """When that call began; for a parking segment, which goes on by itself, a moment ago."""
    trace_s: float | None = None
    """When the pass began that made the call."""


@dataclass(slots=True, eq=False)
class Host:
    """One host with a memory segment and a folder on its disk."""

    number: int
    client: str = ""
    starts: int = 0
    alive: bool = True
    disk_there: bool = True
    offloads: bool = True
    lag_s: float = 0.0
    """Added to each offload."""
    folder: dict[str, bytes] = field(default_factory=dict)
    registered: bool = True
    """Whether the Master was told of the folder since this start."""

    @property
    def name(self) -> str:
        """Of its segment, the same after each start."""
        return f"host{self.number}:12345"

    @property
    def endpoint(self) -> str:
        return f"host{self.number}:{20_000 + self.starts}"

    @property
    def readers_at(self) -> str:
        """Where it gives its files to readers."""
        return f"host{self.number}:{30_000 + self.starts}"


class Cluster(Imitation):
    """The hosts, and what the serving Master knows of them."""

    def __init__(self, now: Callable[[], float], paces: Paces, hosts: int) -> None:
        self.hosts = [Host(number) for number in range(hosts)]
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.gone_clients: set[str] = set()
        self.removed: set[str] = set()
        self.strangers: dict[str, bytes] = {}
        """What others have put and not taken away, by key."""
        self.taken: Callable[[Act, str, str, bytes], None] = lambda *_: None
        """Told (whose act, key, kind, content) when a sidecar's act took a replica."""
        self.happened: Callable[[str], None] = lambda _: None
        self.act: Act | None = None
        """What is carried out now; None for what the world does."""
        self._unmounting: dict[str, Act | None] = {}
        self.shaken_s = float("-inf")
        """When the world last took something from readers."""
        self.stirred_s: dict[str, float] = {}
        """By key: when the cluster itself last made or took a replica of it."""
        self.heartbeat_s = 1.0
        self.forgot_s = float("-inf")
        """When the Master last forgot everything."""
        super().__init__(now, paces)

    def _mount_hosts(self) -> None:
        for host in self.hosts:
            self._start(host)

    # --- time -------------------------------------------------------------------------------------

    def later(self, after_s: float, what: Callable[[], None]) -> None:
        """Do something then, before whatever the Master is asked after it."""
        heapq.heappush(self._later, (self._now() + after_s, next(self._order), what))

    def tick(self) -> None:
        """Let all happen that is due."""
        act, self.act = self.act, None
        while self._later and self._later[0][0] <= self._now():
            heapq.heappop(self._later)[2]()
        super()._tick()
        self.act = act

    def _tick(self) -> None:
        self.tick()

    # --- hosts ------------------------------------------------------------------------------------

    def host_of(self, client: str) -> Host | None:
        """The living or dead host whose client that is."""
        return next((host for host in self.hosts if host.client == client), None)

    def host_at(self, endpoint: str) -> Host | None:
        """The host that is reached there now."""
        for host in self.hosts:
            if host.alive and endpoint in (host.endpoint, host.readers_at):
                return host
        return None

    def _start(self, host: Host) -> None:
        host.starts += 1
        host.alive = True
        host.client = f"host{host.number}-{host.starts}"
        self._enlist(Segment(host.name, host.client, SEGMENT_BYTES, host.endpoint))

    def _enlist(self, segment: Segment) -> None:
        """Mount it; one of that name that a client had before stays until that one is given up."""
        before = self.segments.pop(segment.name, None)
        if before is not None and before.client != segment.client:
            self.segments[f"{before.name} of {before.client}"] = before
        self.segments[segment.name] = segment

    def kill(self, host: Host) -> None:
        """It dies; the Master believes in it for a while."""
        if host.alive:
            host.alive = False
            client = host.client
            self.later(CLIENT_TTL_S, lambda: self._expire(client))

    def come_back(self, host: Host) -> None:
        """It starts on its folder, as another client."""
        if host.alive:
            return
        host.registered = host.client in self.gone_clients
        self._start(host)
        if host.registered:
            self.later(self.heartbeat_s, self._reports(host))

    def _expire(self, client: str) -> None:
        """The Master gives a client up, with all that it had."""
        self.gone_clients.add(client)
        self.shaken_s = self._now()
        for name, segment in list(self.segments.items()):
            if segment.client == client:
                del self.segments[name]
                self._forget_endpoint(segment.endpoint)
        for key, one in list(self.objects.items()):
            if one.disk == client:
                one.disk, one.old = "", b""
                self.stirred_s[key] = self._now()
                if one.complete and not one.memory:
                    del self.objects[key]

    def _reports(self, host: Host) -> Callable[[], None]:
        starts = host.starts

        def report() -> None:
            if host.alive and host.starts == starts and host.disk_there:
                self._register(host)

        return report

    def _register(self, host: Host) -> None:
        """The host tells of its files; each is taken for a copy of what has its key and size."""
        host.registered = True
        for key, content in host.folder.items():
            one = self.objects.get(key)
            self.stirred_s[key] = self._now()
            if one is None:
                self.objects[key] = Object(
                    host.client, bytearray(content), complete=True, disk=host.client
                )
                if key in self.removed:
                    self.happened("a removed key comes back")
            elif one.complete and not one.disk and len(one.content) == len(content):
                one.disk, one.offload_at = host.client, None
                if bytes(one.content) != content:
                    self.happened("an old file is taken for a copy")

    def kept(self, key: str, one: Object) -> bytes | None:
        """What the folder of the host that is listed has, when that host lives.

        A host whose disk is away answers as ever, and shows no difference while memory has it.
        """
        host = self.host_of(one.disk) if one.disk else None
        return None if host is None or not host.alive else host.folder.get(key)

    def file_of(self, key: str, one: Object) -> bytes | None:
        """What a reader gets from the disk; None when it cannot be read now."""
        host = self.host_of(one.disk) if one.disk else None
        return self.kept(key, one) if host is not None and host.disk_there else None

    def shows(self, key: str, kind: str) -> bool:
        """Whether the Master tells of a replica of that kind."""
        one = self.objects.get(key)
        if one is None or not one.complete:
            return False
        return bool(one.memory if kind == "mem" else one.disk)

    def readable(self, key: str) -> set[str]:
        """The kinds of which somebody who answers has the right or wrong bytes: mem, disk."""
        one = self.objects.get(key)
        if one is None or not one.complete:
            return set()
        kinds = {"mem"} if any(map(self._answers, one.memory)) else set()
        return kinds | ({"disk"} if self.kept(key, one) is not None else set())

    def _answers(self, endpoint: str) -> bool:
        lot = endpoint.startswith("10.")
        return lot or self.host_at(endpoint) is not None

    # --- the Master -------------------------------------------------------------------------------

    def forget(self) -> None:
        """The Master begins with nothing; who lives registers again."""
        self.tick()
        self.forgot_s = self.shaken_s = self._now()
        segments = list(self.segments.values())
        self.objects, self.segments, self.tasks, self.jobs = {}, {}, {}, {}
        for segment in segments:
            host = self.host_of(segment.client)
            if host is not None and host.alive:
                self.later(REGISTER_S, self._again(segment, host))
            elif host is None and segment.client not in self.gone_clients:
                self.later(REGISTER_S, self._again(segment, None))

    def _again(self, segment: Segment, host: Host | None) -> Callable[[], None]:
        def mount() -> None:
            if host is not None and host.client != segment.client:
                return
            if host is None and segment.client in self.gone_clients:
                return
            fresh = Segment(segment.name, segment.client, segment.size_bytes, segment.endpoint)
            self._enlist(fresh)
            if host is not None:
                self.later(self.heartbeat_s, self._reports(host))

        return mount

    def client_died(self, client: str) -> None:
        """A client without a host is gone; the Master notices later."""
        self.later(CLIENT_TTL_S, lambda: self._expire(client))

    def _offload(self, key: str, one: Object, now: float) -> None:
        endpoint = next(iter(one.memory))
        host = self.host_at(endpoint)
        if host is None or not host.offloads or not host.disk_there:
            one.offload_at = now + self.heartbeat_s if endpoint.startswith("host") else None
            return
        super()._offload(key, one, now)
        host.folder[key] = bytes(one.content)
        self.stirred_s[key] = now

    def _promote(self, key: str, one: Object) -> None:
        content = self.file_of(key, one)
        if content is not None and len(content) == len(one.content):
            one.content[:] = content
            self._place(one, "")
            self.stirred_s[key] = self._now()

    def _place(self, one: Object, preferred: str) -> bool:
        """Where nothing is preferred the segments take turns."""
        names = [name for name, segment in self.segments.items() if segment.status == "OK"]
        if not preferred and names:
            preferred = names[self._made % len(names)]
        return super()._place(one, preferred)

    def _on_disk(self, one: Object) -> dict[str, object]:
        host = self.host_of(one.disk)
        told = super()._on_disk(one)
        return {**told, "transport_endpoint": "" if host is None else host.readers_at}

    # --- what callers do --------------------------------------------------------------------------

    def rpc_start(
        self,
        client: str,
        key: str,
        size_bytes: int,
        preferred: str,
        *,
        pinned: bool = False,
        group: str = "",
    ) -> int:
        self._make_room(size_bytes)
        code = super().rpc_start(client, key, size_bytes, preferred, pinned=pinned, group=group)
        begun = self.objects.get(key)

        def discard() -> None:
            if begun is not None and not begun.complete and self.objects.get(key) is begun:
                del self.objects[key]

        if code == 0:
            self.later(DISCARD_S, discard)
        return code

    def rpc_write(self, client: str, key: str, offset: int, content: bytes) -> int:
        one = self.objects.get(key)
        if one is not None and not any(map(self._answers, one.memory)):
            return -800
        return super().rpc_write(client, key, offset, content)

    def rpc_end(self, client: str, key: str) -> int:
        code = super().rpc_end(client, key)
        one = self.objects.get(key)
        if code == 0 and one is not None and one.offload_at is not None:
            host = self.host_at(next(iter(one.memory), ""))
            one.offload_at += host.lag_s if host is not None else 0.0
        return code

    def rpc_read(self, key: str, offset: int, size_bytes: int) -> int | bytes:
        got = super().rpc_read(key, offset, size_bytes)
        return -800 if isinstance(got, bytes) and "mem" not in self.readable(key) else got

    def rpc_get(self, key: str) -> int | bytes:
        one = self.objects.get(key)
        if one is None or not one.complete:
            return NOT_FOUND
        self._touched(one)
        if one.memory:
            return bytes(one.content) if "mem" in self.readable(key) else -800
        content = self.file_of(key, one)
        return -900 if content is None else content

    def rpc_clear(self, client: str, keys: list[str], segment: str) -> list[str]:
        before = self._contents(keys)
        cleared = super().rpc_clear(client, keys, segment)
        self._taken({at: one for at, one in before.items() if at[0] in cleared and at[1] == "mem"})
        return cleared

    def rpc_remove(self, keys: list[str]) -> list[int]:
        before = self._contents(keys)
        codes = super().rpc_remove(keys)
        gone = {at: one for at, one in before.items() if at[0] not in self.objects}
        self.removed.update(key for key, _ in gone)
        self._taken(gone)
        return codes

    def rpc_mount(self, client: str, size_bytes: int) -> list[str]:
        self.happened("a parking segment is mounted")
        return super().rpc_mount(client, size_bytes)

    def rpc_unmount(self, ids: list[str], grace_s: int) -> int:
        code = super().rpc_unmount(ids, grace_s)
        for segment in self.segments.values():
            if f"id-{segment.name}" in ids:
                self._unmounting[segment.endpoint] = self.act
        return code

    def _forget_endpoint(self, endpoint: str) -> None:
        before = self._contents(k for k, one in self.objects.items() if endpoint in one.memory)
        super()._forget_endpoint(endpoint)
        outer, self.act = self.act, self._unmounting.pop(endpoint, self.act)
        self._taken({at: one for at, one in before.items() if at[1] == "mem"})
        self.act = outer

    def _contents(self, keys: Iterable[str]) -> dict[tuple[str, str], bytes]:
        """What the replicas of some keys hold, by key and kind."""
        found = {}
        for key in keys:
            one = self.objects.get(key)
            if one is not None and one.complete and one.memory:
                found[key, "mem"] = bytes(one.content)
            if one is not None and one.complete and one.disk:
                found[key, "disk"] = self.kept(key, one) or b""
        return found

    def _taken(self, contents: Mapping[tuple[str, str], bytes]) -> None:
        for (key, kind), content in contents.items():
            if self.act is not None:
                self.taken(self.act, key, kind, content)

    # --- others -----------------------------------------------------------------------------------

    def _make_room(self, size_bytes: int) -> None:
        """Evict what may go until there is room: the longest without a reader first."""
        total = sum(one.size_bytes for one in self.segments.values() if one.status == "OK")
        used = sum(self._used(one) for one in self.segments.values() if one.status == "OK")
        wanted = used + size_bytes - total * (1 - ROOM_LEFT)
        if wanted > 0:
            self.evict(wanted)

    def evict(self, wanted_bytes: float) -> None:
        """Take unpinned objects out of memory, for the world and nobody else."""
        held = [
            (one.lease_until, key)
            for key, one in self.objects.items()
            if one.complete and one.memory and not one.pinned and one.lease_until <= self._now()
        ]
        for _, key in sorted(held):
            if wanted_bytes <= 0:
                break
            one = self.objects[key]
            wanted_bytes -= len(one.content)
            one.memory.clear()
            if not one.disk:
                del self.objects[key]
                self.strangers.pop(key, None)
            self.stirred_s[key] = self.shaken_s = self._now()
            self.happened("others' pressure evicts")
