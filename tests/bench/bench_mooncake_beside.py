"""What a sidecar costs those who use the same Mooncake, and what it costs while idle.

One `weightctl run` over many revisions. A cache of others (puts that exceed the memory, gets) runs
in short slices, in turn with the sidecar running and stopped by SIGSTOP, so that the machine's
other load falls on both. Afterwards every managed member is looked for. The proof that looking
keeps nothing alive: the cache's own keys are looked at all the time while they are evicted.
"""

import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator
from pathlib import Path

import anyio
from anyio import to_thread

from tests.bench.report import row
from tests.support.cli import Cli
from tests.support.models import random_tensors, write_model
from tests.support.mooncake_harness import connection_options
from tests.support.mooncake_lab import LEASE_TTL_S, Cluster, cluster
from tests.support.mooncake_sidecar import sidecar
from weightctl.adapters.conformance.suite.material import context
from weightctl.adapters.mooncake.connection import shared
from weightctl.adapters.mooncake.lab import why_not
from weightctl.adapters.mooncake.options import MooncakeOptions
from weightctl.adapters.mooncake.tier import MooncakeTier
from weightctl.controller.core.identity import Identity
from weightctl.controller.core.observation import Members, MemberState

REVISIONS = 1000
IMPORTERS = 32
SLICES = 40
SLICE_S = 1.0
IDLE_S = 30.0
LOOKED_AT = 40
VALUE_BYTES = 256 << 10
CONFIG = """
[mooncake]
admin = "{admin}"
master = "{master}"
lease_ttl_s = {lease_ttl_s}
[[tier]]
name = "mooncake-memory"
kind = "mooncake-memory"
[[tier]]
name = "mooncake-local-disk"
kind = "mooncake-local-disk"
capacity_bytes = "1GiB"
"""
# For each line: puts and gets for so many seconds; answers how many of each were done.
_CACHE = """
import json, os, sys, time
from mooncake.store import MooncakeDistributedStore
store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 32 << 20, "tcp", "", sys.argv[1]) == 0
value, number = os.urandom(int(sys.argv[2])), 0
print(json.dumps([0, 0]), flush=True)
for line in sys.stdin:
    end, taken, got = time.monotonic() + float(line), 0, 0
    while time.monotonic() < end:
        taken += store.put(f"kv-{number:08d}", value) == 0
        got += len(store.get(f"kv-{max(number - 5, 0):08d}")) > 0
        number += 1
    print(json.dumps([taken, got]), flush=True)
"""


class Cache:
    """Others' traffic, from a process of its own."""

    def __init__(self, real: Cluster) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CACHE, real.master, str(VALUE_BYTES)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._answer()

    def _answer(self) -> int:
        assert self._process.stdout is not None
        return sum(json.loads(self._process.stdout.readline()))

    def run(self, seconds: float) -> int:
        """Calls that succeeded."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


async def fill(real: Cluster, folder: Path) -> list[str]:
    """Import small models; the keys of all their members."""
    model = write_model(folder / "small.safetensors", random_tensors(rows=16))
    keys: list[str] = []
    async with sidecar(real, folder) as beside:
        slots = anyio.Semaphore(IMPORTERS)

        async def put(number: int) -> None:
            async with slots:
                identity = Identity(
                    namespace="bench",
                    resource_id=f"model-{number}",
                    revision="main",
                    weight_generation=1,
                )
                await beside.weights.put(identity, model)
                record = (await beside.store.get(identity=identity)).metadata
                group = record.manifest.payload_group_id
                keys.extend((await beside.store.directory.members(group)).keys)

        async with anyio.create_task_group() as group:
            for number in range(REVISIONS):
                group.start_soon(put, number)
    return keys


def used(pid: int) -> tuple[float, int]:
    """(seconds of CPU, resident bytes) of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return ticks / os.sysconf("SC_CLK_TCK"), resident * os.sysconf("SC_PAGE_SIZE")


def idle(names: dict[str, int]) -> None:
    """Rows of what processes use while nothing is to be done."""
    before = {name: used(pid)[0] for name, pid in names.items()}
    time.sleep(IDLE_S)
    for name, pid in names.items():
        cpu_s, resident = used(pid)
        row(
            f"Mooncake: {name}, idle with {REVISIONS} revisions",
            f"{resident / 1e6:.0f} MB, {(cpu_s - before[name]) / IDLE_S * 100:.2f} % of a core",
        )


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """The process does nothing for the length of the block."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def paired(cache: Cache, pid: int) -> None:
    """The row of a cache's calls a second, with the sidecar and without, in turn."""
    cache.run(5.0)  # the memory is full now
    calls = {True: 0, False: 0}
    for number in range(SLICES):
        for stop in (number % 2 == 0, number % 2 == 1):
            with stopped(pid) if stop else contextlib.nullcontext():
                calls[stop] += cache.run(SLICE_S)
    row(
        f"Mooncake: a cache under pressure beside it, {SLICES} pairs of {SLICE_S:g} s",
        f"{calls[False] / SLICES / SLICE_S:.0f} calls/s",
        f"without it {calls[True] / SLICES / SLICE_S:.0f} calls/s",
        f"{calls[False] / calls[True]:.3f}x",
        "0.95x",
    )


def others(keys: list[str]) -> Members:
    """The cache's objects under these keys."""
    return Members(
        group_id="weight:others",
        keys=keys,
        sizes_bytes=array("Q", [VALUE_BYTES]) * len(keys),
        sha256=hashlib.sha256().digest() * len(keys),
        data_types=b"\0" * len(keys),
    )


async def looked_at(real: Cluster, cache: Cache, folder: Path) -> None:
    """The row of a cache's keys that are evicted while they are looked at without a pause."""
    options = connection_options(real)
    tier = MooncakeTier(
        "memory",
        MooncakeOptions(kind="mooncake-memory", connection=options),
        shared(options, context(folder / "looking")),
    )
    async with tier:
        while not (await tier.observe(others([]))).epoch:  # its marker needs room, too
            await to_thread.run_sync(cache.run, 0.2)
        keys = [key for key in real.get("/get_all_keys").split() if key.startswith("kv-")]
        table = others(sorted(keys)[-LOOKED_AT:])  # the newest, which are in memory
        first = await tier.observe(table)
        looks, ended = 0, anyio.Event()

        async def look() -> None:
            nonlocal looks
            while not ended.is_set():
                await tier.observe(table)
                looks += 1

        async with anyio.create_task_group() as group:
            group.start_soon(look)
            await to_thread.run_sync(cache.run, 10.0)
            ended.set()
        last = await tier.observe(table)
    held = first.states.count(MemberState.COMPLETE)
    left = last.states.count(MemberState.COMPLETE)
    row(
        "Mooncake: others' keys in memory, looked at without a pause for 10 s under pressure",
        f"{left} of {held} left after {looks} looks",
        "",
        "",
        "evicted as if nobody looked",
    )


def main() -> None:
    if problem := why_not():
        print(f"skipped: {problem}")
        return
    with tempfile.TemporaryDirectory(prefix="weightctl-bench-") as name:
        folder = Path(name)
        with cluster(folder, "--client_ttl=60", segment_mib=64) as real:
            keys = asyncio.run(fill(real, folder))
            section = CONFIG.format(admin=real.admin, master=real.master, lease_ttl_s=LEASE_TTL_S)
            cli = Cli(folder, (), extra=section)
            shutil.copytree(folder / "tiers", cli.state_dir / "tiers", dirs_exist_ok=True)
            with cli.running() as child:
                assert real.process is not None
                idle({"weightctl run": child.pid, "the Master": real.process.pid})
                cache = Cache(real)
                try:
                    paired(cache, child.pid)
                    asyncio.run(looked_at(real, cache, folder))
                finally:
                    cache.close()
            gone = [key for key in keys if not real.entry(key)["values"]]
            row("Mooncake: managed members not in memory afterwards", f"{len(gone)} of {len(keys)}")


if __name__ == "__main__":
    main()
