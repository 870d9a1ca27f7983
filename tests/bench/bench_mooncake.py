"""Observing 100,000 members through a real Master, beside the bare HTTP client in the same run.

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
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from time import perf_counter

from tests.bench.report import row
from tests.support.mooncake_harness import connection_options
from weightctl.adapters.conformance.suite.material import context
from weightctl.adapters.mooncake.connection import shared
from weightctl.adapters.mooncake.lab import Cluster, cluster, why_not
from weightctl.adapters.mooncake.options import MooncakeOptions
from weightctl.adapters.mooncake.tier import MooncakeTier
from weightctl.controller.core.observation import Members, MemberState

COUNT = 100_000
ROUNDS = 5
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


def median(call: Callable[[], object]) -> float:
    """Seconds of the median round."""
    times = []
    for _ in range(ROUNDS):
        start = perf_counter()
        call()
        times.append(perf_counter() - start)
    return statistics.median(times)


async def observing(real: Cluster, folder: Path, table: Members) -> float:
    """Seconds of the median observation by the tier."""
    options = connection_options(real, deadline_s=5.0)
    tier = MooncakeTier(
        "memory",
        MooncakeOptions(kind="mooncake-memory", connection=options),
        shared(options, context(folder)),
    )
    times = []
    async with tier:
        for _ in range(ROUNDS + 1):
            start = perf_counter()
            seen = await tier.observe(table)
            times.append(perf_counter() - start)
            assert seen.states.count(MemberState.COMPLETE) == COUNT, seen.problem
    return statistics.median(times[1:])


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
            table = members()
            ours = asyncio.run(observing(real, folder, table))
            peer = median(lambda: bare(real, list(table.keys)))
    row(
        f"Mooncake: observe {COUNT:,} members",
        f"{COUNT / ours / 1000:.0f} k keys/s",
        f"bare HTTP client {COUNT / peer / 1000:.0f} k keys/s",
        f"{peer / ours:.2f}x",
        "200 k keys/s",
    )


if __name__ == "__main__":
    main()
