"""Observing 100,000 members through a real Master, beside the bare HTTP client in the same run.

CPU of this process is told beside the rate, because the rate falls with whatever else runs.
Needs the wheel (`make demo-mooncake` installs it); says so and ends when it is not there.
"""

import asyncio
import hashlib
import json
import statistics
import subprocess
import sys
import tempfile
from array import array
from http.client import HTTPConnection
from pathlib import Path
from time import perf_counter, process_time

from tests.bench.report import row
from tests.support.mooncake_harness import connection_options
from weightctl.adapters.conformance.suite.material import context
from weightctl.adapters.mooncake.connection import shared
from weightctl.adapters.mooncake.lab import Cluster, cluster, why_not
from weightctl.adapters.mooncake.options import MooncakeOptions
from weightctl.adapters.mooncake.tier import MooncakeTier
from weightctl.controller.core.observation import Members, MemberState

COUNT = 100_000
ROUNDS = 9
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


def bare(real: Cluster, keys: list[str]) -> int:
    """Ask for every key on one kept connection and read the answers; how many there were."""
    host, _, port = real.admin.partition(":")
    connection = HTTPConnection(host, int(port))
    found = 0
    for start in range(0, len(keys), 1000):
        connection.request("GET", "/batch_query_keys?keys=" + ",".join(keys[start : start + 1000]))
        found += len(json.loads(connection.getresponse().read())["data"])
    connection.close()
    return found


async def turns(real: Cluster, folder: Path, table: Members) -> dict[str, tuple[float, float]]:
    """(seconds, seconds of CPU) of the median round of each; they take turns."""
    options = connection_options(real)
    tier = MooncakeTier(
        "memory",
        MooncakeOptions(kind="mooncake-memory", connection=options),
        shared(options, context(folder)),
    )
    keys = list(table.keys)
    took: dict[str, list[tuple[float, float]]] = {"ours": [], "bare": []}
    async with tier:
        await tier.observe(table)
        for _ in range(ROUNDS):
            start, used = perf_counter(), process_time()
            seen = await tier.observe(table)
            took["ours"].append((perf_counter() - start, process_time() - used))
            assert seen.states.count(MemberState.COMPLETE) == COUNT, seen.problem
            start, used = perf_counter(), process_time()
            bare(real, keys)
            took["bare"].append((perf_counter() - start, process_time() - used))
    return {name: middle(times) for name, times in took.items()}


def middle(times: list[tuple[float, float]]) -> tuple[float, float]:
    """The median of each column."""
    walls, used = zip(*times, strict=True)
    return statistics.median(walls), statistics.median(used)


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
            took = asyncio.run(turns(real, folder, members()))
    (ours, used), (peer, peer_used) = took["ours"], took["bare"]
    row(
        f"Mooncake: observe {COUNT:,} members",
        f"{COUNT / ours / 1000:.0f} k keys/s, {used:.2f} s of CPU",
        f"bare HTTP client {COUNT / peer / 1000:.0f} k keys/s, {peer_used:.2f} s of CPU",
        f"{peer / ours:.2f}x",
        "200 k keys/s",
    )


if __name__ == "__main__":
    main()
