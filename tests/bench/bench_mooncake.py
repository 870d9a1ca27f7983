"""Observing 100,000 members through a real Master, beside a bare HTTP client and the floor.

The bare client asks the same on one connection and reads the answers with the standard library. The
floor are the same queries, written beforehand, on as many plain sockets as we use; the answers are
received and thrown away, so no observer is faster with that Master on that machine. All three take
turns in one process. CPU is told beside the rate, because the rate falls with whatever else runs.
Needs the wheel (`make demo-mooncake` installs it); says so and ends when it is not there.
"""

import asyncio
import hashlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from time import perf_counter, process_time

from anyio import to_thread

from tests.bench.report import row
from tests.support.mooncake.harness import connection_options
from weightctl.adapters.conformance.suite.material import context
from weightctl.adapters.mooncake.connection import shared
from weightctl.adapters.mooncake.lab.cluster import Cluster, cluster, why_not
from weightctl.adapters.mooncake.looking import LANES, QUERY_KEYS
from weightctl.adapters.mooncake.options import MooncakeOptions
from weightctl.adapters.mooncake.tier import MooncakeTier
from weightctl.controller.core.observation import Members, MemberState

COUNT = 100_000
ROUNDS = 15
PREFIX = "weights/my-namespace/my-model/revision-1/1/payload/"

_FILL = """
import sys
from mooncake.store import MooncakeDistributedStore
store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 64 << 20, "tcp", "", sys.argv[1]) == 0
count, prefix = int(sys.argv[2]), sys.argv[3]
for start in range(0, count, 1000):
    keys = [f"{prefix}{number:08d}" for number in range(start, start + 1000)]
    assert store.put_batch(keys, [b"x"] * 1000) == 0
"""


def members() -> Members:
    """As many members of one byte."""
    return Members(
        group_id="weight:bench",
        keys=[f"{PREFIX}{number:08d}" for number in range(COUNT)],
        sizes_bytes=array("Q", [1]) * COUNT,
        sha256=hashlib.sha256(b"x").digest() * COUNT,
        data_types=b"\1" * COUNT,
    )


@dataclass(slots=True)
class Turns:
    """What each round of one kind took, in seconds: on the wall, of our CPU, of the Master's."""

    real: Cluster
    took: list[tuple[float, float, float]] = field(default_factory=list)

    async def take(self, act: Callable[[], object]) -> None:
        """One more, in a thread."""
        started, ours, theirs = perf_counter(), process_time(), self._cpu_s()
        await to_thread.run_sync(act)
        self.add(perf_counter() - started, process_time() - ours, self._cpu_s() - theirs)

    async def observe(self, tier: MooncakeTier, table: Members) -> None:
        """One more observation, on the loop."""
        started, ours, theirs = perf_counter(), process_time(), self._cpu_s()
        seen = await tier.observe(table)
        self.add(perf_counter() - started, process_time() - ours, self._cpu_s() - theirs)
        assert seen.states.count(MemberState.COMPLETE) == COUNT, seen.problem

    def add(self, *seconds: float) -> None:
        wall_s, ours_s, theirs_s = seconds
        self.took.append((wall_s, ours_s, theirs_s))

    def _cpu_s(self) -> float:
        assert self.real.process is not None
        stat = Path(f"/proc/{self.real.process.pid}/stat").read_text()
        return sum(map(int, stat.rpartition(")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")

    @property
    def wall_s(self) -> float:
        return statistics.median(wall for wall, _, _ in self.took)

    def __str__(self) -> str:
        walls, ours, theirs = zip(*self.took, strict=True)
        return (
            f"{COUNT / self.wall_s / 1000:.0f} k keys/s (best {COUNT / min(walls) / 1000:.0f});"
            f" CPU {statistics.median(ours):.2f} s + {statistics.mean(theirs):.2f} s of the Master"
        )


def bare(real: Cluster, keys: list[str]) -> int:
    """Ask for every key on one kept connection and read the answers; how many there were."""
    host, _, port = real.admin.partition(":")
    connection = HTTPConnection(host, int(port))
    found = 0
    for start in range(0, len(keys), QUERY_KEYS):
        asked = ",".join(keys[start : start + QUERY_KEYS])
        connection.request("GET", f"/batch_query_keys?keys={asked}")
        found += len(json.loads(connection.getresponse().read())["data"])
    connection.close()
    return found


def requests(keys: list[str]) -> list[bytes]:
    """The queries as they are sent."""
    asked = (",".join(keys[start : start + QUERY_KEYS]) for start in range(0, COUNT, QUERY_KEYS))
    return [
        f"GET /batch_query_keys?keys={one} HTTP/1.1\r\nHost: m\r\n\r\n".encode() for one in asked
    ]


def floor(real: Cluster, queries: list[bytes]) -> None:
    """Send the queries on as many sockets as we use; receive the answers and look at nothing."""
    with ThreadPoolExecutor(LANES) as lanes:
        list(lanes.map(lambda lane: received(real, queries[lane::LANES]), range(LANES)))


def received(real: Cluster, queries: list[bytes]) -> None:
    """One lane of `floor`."""
    host, _, port = real.admin.partition(":")
    buffer = bytearray(1 << 20)
    with socket.create_connection((host, int(port))) as lane:
        for query in queries:
            lane.sendall(query)
            count = lane.recv_into(buffer)
            head, _, body = bytes(buffer[:count]).partition(b"\r\n\r\n")
            length = head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0]
            left = int(length) - len(body)
            while left > 0:
                left -= lane.recv_into(buffer)


async def turns(real: Cluster, folder: Path, table: Members) -> tuple[Turns, Turns, Turns]:
    """Ours, the bare client and the floor; they take turns."""
    options = connection_options(real)
    tier = MooncakeTier(
        "memory",
        MooncakeOptions(kind="mooncake-memory", connection=options),
        shared(options, context(folder)),
    )
    keys = list(table.keys)
    queries = requests(keys)
    ours, peer, least = Turns(real), Turns(real), Turns(real)
    async with tier:
        await tier.observe(table)
        for _ in range(ROUNDS):
            await ours.observe(tier, table)
            await peer.take(lambda: bare(real, keys))
            await least.take(lambda: floor(real, queries))
    return ours, peer, least


def main() -> None:
    problem = why_not()
    if problem:
        print(f"skipped: {problem}")
        return
    with tempfile.TemporaryDirectory(prefix="weightctl-bench-") as name:
        folder = Path(name)
        with cluster(folder, hosts=1, offload=False) as real:
            fill = [sys.executable, "-c", _FILL, real.master, str(COUNT), PREFIX]
            subprocess.run(fill, check=True, stderr=subprocess.DEVNULL)
            ours, peer, least = asyncio.run(turns(real, folder, members()))
    what = f"Mooncake: observe {COUNT:,} members, median of {ROUNDS}"
    aim = "200 k keys/s"
    row(what, str(ours), f"bare HTTP client {peer}", f"{peer.wall_s / ours.wall_s:.2f}x", aim)
    row(what, "the same", f"the floor {least}", f"{least.wall_s / ours.wall_s:.2f}x", aim)


if __name__ == "__main__":
    main()
