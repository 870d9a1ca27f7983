"""Evicting and rehydrating a real model through a real Master, beside the bare calls by hand.

By hand: the same objects under other keys in the same cluster, put by one client, whose every cold
copy is read back before its memory is cleared, which is what an eviction has to do too; then looks
over HTTP until the Master shows it. The two take turns in one process, either one first, and begin
at the same time within a beat: the hosts promote when they beat, once a second.
"""

import asyncio
import hashlib
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any

import anyio
from anyio import to_thread

from tests.bench.report import row
from tests.support.mooncake.lab import Cluster, cluster, until
from tests.support.mooncake.sidecar import Sidecar, sidecar
from tests.support.rig import IDENTITY
from weightctl.adapters.mooncake.lab.cluster import HEARTBEAT_S, LEASE_TTL_S, why_not
from weightctl.controller.cli.demo.model import find_model
from weightctl.controller.core.records import Availability, Operation, Residency

ROUNDS = 16
ASK_S = 0.02
READY, HOT, COLD = Availability.READY, Residency.HOT, Residency.COLD

# Answers lines of JSON: a client without a segment that puts, reads, clears and touches.
_BY_HAND = """
import hashlib, json, sys, time
from urllib.request import urlopen
from mooncake.store import MooncakeDistributedStore
master, admin, hosts = sys.argv[1], sys.argv[2], sys.argv[3].split(",")
store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 128 << 20, "tcp", "", master) == 0
def look(keys):
    url = f"http://{admin}/batch_query_keys?keys={','.join(keys)}"
    return json.loads(urlopen(url).read())["data"]
def put(sizes):
    digests.clear()
    for key, size in sizes.items():
        content = hashlib.shake_128(key.encode()).digest(size)
        digests[key] = hashlib.sha256(content).digest()
        assert store.put(key, content) == 0
    while not all(one["local_disk_values"] for one in look(list(digests)).values()):
        time.sleep(0.05)
def evict():
    left = list(digests)
    for key in left:
        assert hashlib.sha256(store.get(key)).digest() == digests[key]
    while left:
        for host in hosts:
            store.batch_replica_clear(left, host)
        left = [key for key, one in look(left).items() if one["values"]]
        time.sleep(0.05)
def rehydrate():
    left = list(digests)
    while left:
        store.batch_get_replica_desc(left)
        for _ in range(20):
            time.sleep(0.05)
            left = [key for key, one in look(left).items() if not one["values"]]
            if not left:
                break
digests = {}
print("ready", flush=True)
for line in sys.stdin:
    name, *args = json.loads(line)
    globals()[name](*args)
    print("done", flush=True)
"""


class ByHand:
    """The bare client in a process of its own."""

    def __init__(self, real: Cluster) -> None:
        hosts = ",".join(host.name for host in real.hosts)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BY_HAND, real.master, real.admin, hosts],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._answer()

    def _answer(self) -> None:
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise RuntimeError("the bare client has ended")

    def __call__(self, name: str, *args: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, *args]) + "\n")
        self._process.stdin.flush()
        self._answer()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


async def timed(act: Callable[[], Awaitable[Any]]) -> float:
    """Seconds."""
    start = perf_counter()
    await act()
    return perf_counter() - start


async def ended(beside: Sidecar, target: Residency) -> None:
    """Wait, as somebody who asks now and then; the loop is not woken."""
    while True:
        record = await beside.record()
        if (record.residency, record.operation) == (target, Operation.NONE):
            return
        await anyio.sleep(ASK_S)


async def pause(phase_s: float) -> None:
    """Wait until no lease is left, and for the next moment that lies so far within a beat."""
    await anyio.sleep(2 * LEASE_TTL_S)
    await anyio.sleep((phase_s - monotonic()) % HEARTBEAT_S)


async def turns(beside: Sidecar, hand: ByHand) -> dict[str, list[tuple[float, float]]]:
    """(ours, by hand) in seconds of every round."""
    took: dict[str, list[tuple[float, float]]] = {"evict": [], "rehydrate": []}
    targets = {"evict": COLD, "rehydrate": HOT}

    async def ours(name: str) -> None:
        await beside.start(targets[name])
        await ended(beside, targets[name])

    async def peer(name: str) -> None:
        await to_thread.run_sync(hand, name)

    for number in range(ROUNDS):
        phase_s = number / ROUNDS * HEARTBEAT_S
        for name, times in took.items():
            pair: dict[bool, float] = {}
            for mine in (number % 2 == 0, number % 2 == 1):
                await pause(phase_s)
                pair[mine] = await timed(partial(ours if mine else peer, name))
            times.append((pair[True], pair[False]))
    return took


async def run(real: Cluster, folder: Path) -> tuple[int, dict[str, list[tuple[float, float]]]]:
    """Bytes of the model, and the times."""
    async with sidecar(real, folder) as beside:
        await beside.weights.put(IDENTITY, find_model(None))
        await beside.becomes(READY, HOT)
        members = await beside.members()
        hand = await to_thread.run_sync(ByHand, real)
        try:
            sizes = dict(zip(map(by_hand, members.keys), members.sizes_bytes, strict=True))
            await to_thread.run_sync(hand, "put", sizes)
            return sum(members.sizes_bytes), await turns(beside, hand)
        finally:
            await to_thread.run_sync(hand.close)


def by_hand(key: str) -> str:
    """The key under which the bare client puts what is as large."""
    return f"by-hand-{hashlib.sha256(key.encode()).hexdigest()[:16]}"


def main() -> None:
    if problem := why_not():
        print(f"skipped: {problem}")
        return
    with tempfile.TemporaryDirectory(prefix="weightctl-bench-") as name:
        folder = Path(name)
        # Else a host that happens to hold more than 64 objects needs a beat more.
        many = "--promotion_max_per_heartbeat=256"
        with cluster(folder, "--client_ttl=60", many, segment_mib=512) as real:
            until("it serves", lambda: bool(real.get("/health")))
            size_bytes, took = asyncio.run(run(real, folder))
    for what, pairs in took.items():
        ours, peer = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratios = sorted(mine / theirs for mine, theirs in pairs)
        quarter = len(ratios) // 4
        row(
            f"Mooncake: {what} a model of {size_bytes / 1e6:.0f} MB, median of {ROUNDS} pairs",
            f"{ours:.2f} s",
            f"by hand {peer:.2f} s",
            f"{statistics.median(ratios):.2f}x (half between {ratios[quarter]:.2f} and"
            f" {ratios[-1 - quarter]:.2f}; of the sums"
            f" {sum(mine for mine, _ in pairs) / sum(theirs for _, theirs in pairs):.2f}x)",
            "1.2x",
        )


if __name__ == "__main__":
    main()
