"""The way to a simulated Mooncake: Masters that hang, die and follow each other, lost answers.

A request that was sent to a Master which hangs is answered late, or carried out when nobody waits
for it any more, as the kernel keeps it; one to a Master that is down is refused. All calls of the
product's worker threads and worker processes come here.
"""

import asyncio
import json
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio

from tests.sim.mooncake.cluster import Act, Cluster
from weightctl.adapters.conformance.simulation.entropy import Chance

if TYPE_CHECKING:
    from tests.sim.mooncake.world import MooncakeWorld

ETCD = "etcd0:2379"
STANDBY = b'{"success":false,"error_code":-1011,"error_message":"service plane is not active"}'
_LEASE_FREE = ("/health", "/batch_query_keys", "/get_all_keys", "/get_segments_detail")


class LostError(ConnectionError):
    """No answer came."""


@dataclass(slots=True, eq=False)
class Master:
    """One Master process."""

    number: int
    up: bool = True
    frozen: asyncio.Event | None = None
    """Set when it goes on; None while it runs."""
    queue: list[Callable[[], None]] = field(default_factory=list)
    """What was sent to it while it hung."""

    @property
    def admin(self) -> str:
        return f"master{self.number}:9003"

    @property
    def rpc(self) -> str:
        return f"master{self.number}:50051"


class Network:
    """The Masters, and how requests reach them."""

    def __init__(self, world: "MooncakeWorld", cluster: Cluster, masters: int) -> None:
        self._world = world
        self._chance = Chance(f"network/{world.script.seed}")
        self.cluster = cluster
        self.masters = [Master(number) for number in range(masters)]
        self.leader: Master | None = self.masters[0]
        self.view = 1
        self.lossy = 0.0
        """Share of the requests whose answer is lost, or which are lost themselves."""

    @property
    def is_elected(self) -> bool:
        """Whether there are several Masters."""
        return len(self.masters) > 1

    # --- what happens to the Masters --------------------------------------------------------------

    def freeze(self) -> None:
        """The leader hangs."""
        if self.leader is not None and self.leader.frozen is None:
            self.leader.frozen = asyncio.Event()

    def thaw(self) -> None:
        """Whoever hung goes on, and does first what it was asked meanwhile."""
        for master in self.masters:
            if master.frozen is not None:
                master.frozen.set()
                master.frozen = None
                queued, master.queue = master.queue, []
                for run in queued if master.up else ():
                    run()

    def stop(self) -> None:
        """The leader dies."""
        if self.leader is not None:
            self.thaw()
            self.leader.up = False
            self.leader = None

    def start(self, *, remembers: bool) -> None:
        """A Master serves again: the other one, where there are two."""
        if self.leader is not None:
            return
        stopped = [master for master in self.masters if not master.up]
        ready = [master for master in self.masters if master.up]
        self.leader = (ready or stopped)[0]
        self.leader.up = True
        self.view += 1
        if not remembers:
            self.cluster.forget()
        for master in stopped:
            master.up = True

    # --- requests ---------------------------------------------------------------------------------

    async def rpc(self, act: Act, run: Callable[[], Any], deadline_s: float) -> Any:
        """One call to the leader.  Raises LostError, ConnectionRefusedError."""
        await self._way()
        return await self._exchange(self.leader, act, run, deadline_s)

    async def http(
        self, act: Act, address: str, path: str, body: bytes, deadline_s: float
    ) -> tuple[int, bytes]:
        """One HTTP request.  Raises OSError."""
        await self._way()
        if address == ETCD:
            return self._etcd(body)
        master = next((one for one in self.masters if one.admin == address), None)
        answer: tuple[int, bytes] = await self._exchange(
            master, act, lambda: self._answer(master, path, body), deadline_s
        )
        return answer

    async def connect(self, endpoint: str) -> None:
        """Whether somebody accepts a connection there.  Raises OSError."""
        await self._way()
        self.cluster.tick()
        if self.cluster.host_at(endpoint) is None:
            raise ConnectionRefusedError(f"{endpoint}: refused")

    async def file(self, endpoint: str, key: str) -> bytes:
        """What the host that gives its files to readers there has of a key.  Raises OSError."""
        await self.connect(endpoint)
        await self._way()
        host = self.cluster.host_at(endpoint)
        if host is None or not host.disk_there or key not in host.folder:
            raise FileNotFoundError(f"{endpoint}: no such file")
        self._world.happened("a copy is read from its host")
        return host.folder[key]

    async def _way(self) -> None:
        await asyncio.sleep(0.0005 + self._chance.random() * self._world.script.setting.latency_s)

    async def _exchange(
        self, master: Master | None, act: Act, run: Callable[[], Any], deadline_s: float
    ) -> Any:
        if master is None or not master.up:
            raise ConnectionRefusedError("refused")
        lost = self._chance.random() < self.lossy
        if lost and self._chance.random() < 0.5:
            await asyncio.sleep(self._chance.random() * deadline_s)
            raise LostError("reset before it was read")
        if master.frozen is not None:
            return await self._late(master, act, run, deadline_s)
        answer = self._carried_out(act, run)
        if lost:
            self._world.happened("answer lost after the effect")
            await asyncio.sleep(self._chance.random() * deadline_s)
            raise LostError("reset after it was read")
        return answer

    async def _late(
        self, master: Master, act: Act, run: Callable[[], Any], deadline_s: float
    ) -> Any:
        """It hangs: wait, but no longer than the caller does; it is carried out all the same."""
        answers: list[Any] = []
        event = master.frozen
        assert event is not None
        master.queue.append(lambda: answers.append(self._carried_out(act, run)))
        with anyio.move_on_after(deadline_s):
            await event.wait()
            if answers:
                self._world.happened("answer late")
                return answers[0]
            raise LostError("the Master died")
        self._world.happened("answer not in time")
        raise TimeoutError("no answer in time")

    def _carried_out(self, act: Act, run: Callable[[], Any]) -> Any:
        self.cluster.tick()
        self.cluster.act = act
        try:
            return run()
        finally:
            self.cluster.act = None

    def _answer(self, master: Master | None, path: str, body: bytes) -> tuple[int, bytes]:
        if path == "/health":
            serves = master is self.leader
            told = {
                "role": "leader" if serves else "standby",
                "service_ready": serves,
                "view_version": self.view if self.is_elected else None,
                "leader_address": self.leader.rpc if self.leader and self.is_elected else None,
            }
            return 200, json.dumps(told).encode()
        if master is not self.leader:
            return 503, STANDBY
        if path.partition("?")[0] not in _LEASE_FREE and not path.startswith("/api/v1/drain_jobs"):
            self._world.violate("observe-lease", f"{path} was asked")
        return self.cluster.http(path, body)

    def _etcd(self, body: bytes) -> tuple[int, bytes]:
        del body
        if self.leader is None:
            return 200, b"{}"
        key = b64encode(b"mooncake-store/mooncake/master_view").decode()
        value = b64encode(self.leader.rpc.encode()).decode()
        return 200, json.dumps({"kvs": [{"key": key, "value": value}]}).encode()
