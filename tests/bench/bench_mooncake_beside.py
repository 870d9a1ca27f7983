"""What a sidecar costs those who use the same Mooncake, and what it costs while idle.

One `weightctl run` over many revisions. A cache of others (puts that exceed the memory, gets) runs
in short slices, without the sidecar, twice with it, and without it again: it and its clients are
stopped by SIGSTOP meanwhile, so that whatever else the machine does falls on both. Told are the
calls of all rounds, the ratio with the range in which it lies with 95 %, and CPU, which the
machine's load changes less: the Master's for each call, and all of the sidecar's. Afterwards every
managed member is looked for.

`python -m tests.bench.bench_mooncake_beside 1800` watches the memory for half an hour.
"""

import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio

from tests.bench.report import row
from tests.support.cli import Cli
from tests.support.models import random_tensors, write_model
from tests.support.mooncake.lab import LEASE_TTL_S, Cluster, cluster
from tests.support.mooncake.sidecar import sidecar
from weightctl.adapters.mooncake.lab.cluster import why_not
from weightctl.controller.core.identity import Identity

REVISIONS = 1000
IMPORTERS = 32
ROUNDS = 600
SLICE_S = 0.05
SEGMENT_MIB = 64
HOSTS = 2
DRAWS = 2000
IDLE_S = 60.0
SETTLE_TRIES, QUIET_S = 60, 0.05
VALUE_BYTES = 16 << 10
"""Small enough that many are evicted in each slice; larger ones go in bursts of the memory's size,
and then two slices are no pair."""
_SCHEDULED = 2  # of a process's clocks, see clock_getcpuclockid(3): the time that it has run
CONFIG = """
[mooncake]
admin = "{admin}"
master = "{master}"
lease_ttl_s = {lease_ttl_s}
claim_s = 0.1
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


def resident_bytes(pid: int) -> int:
    """Memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def settle(pid: int) -> None:
    """Wait until a process has done what there was to do at its start."""
    for _ in range(SETTLE_TRIES):
        spent_s = cpu_s([pid])
        time.sleep(1.0)
        if cpu_s([pid]) - spent_s < QUIET_S:
            return


def idle(seconds: float, names: dict[str, int], before: dict[str, str]) -> None:
    """Rows of what processes use while nothing is to be done, beside what they used before.

    Of the window's two halves the second one tells what goes on growing.
    """
    spent_s = {name: cpu_s([pid]) for name, pid in names.items()}
    resident = {name: [resident_bytes(pid)] for name, pid in names.items()}
    for _ in range(2):
        time.sleep(seconds / 2)
        for name, pid in names.items():
            resident[name].append(resident_bytes(pid))
    for name, pid in names.items():
        first, middle, last = resident[name]
        row(
            f"Mooncake: {name}, idle with {REVISIONS:,} revisions for {seconds:.0f} s",
            f"{last / 1e6:.1f} MB ({(middle - first) / 1e3:+.0f} kB, then"
            f" {(last - middle) / 1e3:+.0f} kB: {(last - middle) * 7200 / seconds / 1e6:+.1f} MB"
            f" an hour), {(cpu_s([pid]) - spent_s[name]) / seconds * 100:.2f} % of a core",
            before[name],
        )


def family(pid: int) -> list[int]:
    """A process and those that it has started."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += family(int(child))
    return found


def cpu_s(pids: Sequence[int]) -> float:
    """Seconds of CPU of processes, also of their threads that have ended; exact, unlike ticks."""
    return sum(time.clock_gettime(~pid << 3 | _SCHEDULED) for pid in pids)


@contextlib.contextmanager
def stopped(pids: Sequence[int]) -> Iterator[None]:
    """The processes do nothing for the length of the block."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@dataclass(slots=True)
class Slices:
    """What the slices with, or without, the sidecar have come to."""

    calls: int = 0
    master_s: float = 0.0
    ours_s: float = 0.0

    @property
    def master_us(self) -> float:
        """Microseconds of the Master's CPU for each call."""
        return self.master_s / self.calls * 1e6


def paired(cache: Cache, ours: Sequence[int], master: int) -> None:
    """The rows of a cache's calls a second, with the sidecar and without, in turn."""
    put = 0
    while put < 2 * HOSTS * SEGMENT_MIB << 20:  # till the memory is full, and more
        put += cache.run(1.0) // 2 * VALUE_BYTES
    sums = {True: Slices(), False: Slices()}
    rounds = []
    for _ in range(ROUNDS):
        calls = {True: 0, False: 0}
        for stop in (True, False, False, True):
            before = cpu_s([master]), cpu_s(ours)
            with stopped(ours) if stop else contextlib.nullcontext():
                done = cache.run(SLICE_S)
            calls[stop] += done
            sums[stop].calls += done
            sums[stop].master_s += cpu_s([master]) - before[0]
            sums[stop].ours_s += cpu_s(ours) - before[1]
        rounds.append((calls[False], calls[True]))
    low, high = ratio_range(rounds)
    beside, alone = sums[False], sums[True]
    seconds = 2 * ROUNDS * SLICE_S
    turned = (beside.calls + alone.calls) // 2 * VALUE_BYTES / (HOSTS * SEGMENT_MIB << 20)
    row(
        f"Mooncake: a cache that fills the memory {turned:.0f} times beside it, {ROUNDS} rounds of"
        f" 4 x {SLICE_S:g} s",
        f"{beside.calls / seconds:.0f} calls/s",
        f"without it {alone.calls / seconds:.0f} calls/s",
        f"{beside.calls / alone.calls:.3f}x ({low:.3f} to {high:.3f})",
        "0.95x",
    )
    row(
        "Mooncake: CPU of the Master for each of these calls",
        f"{beside.master_us:.1f} us",
        f"without it {alone.master_us:.1f} us",
        f"{beside.master_us / alone.master_us:.3f}x",
        "1.05x",
    )
    row(
        "Mooncake: CPU of weightctl and its clients meanwhile",
        f"{beside.ours_s / seconds * 100:.2f} % of a core",
        "",
        "",
        "",
    )


def ratio_range(rounds: Sequence[tuple[int, int]]) -> tuple[float, float]:
    """Between what the ratio of the sums lies with 95 %: rounds drawn anew from them, often."""
    draw = random.Random(1)
    ratios = []
    for _ in range(DRAWS):
        beside, alone = zip(*draw.choices(rounds, k=len(rounds)), strict=True)
        ratios.append(sum(beside) / max(sum(alone), 1))
    ratios.sort()
    return ratios[DRAWS // 40], ratios[-1 - DRAWS // 40]


def main() -> None:
    if problem := why_not():
        print(f"skipped: {problem}")
        return
    with tempfile.TemporaryDirectory(prefix="weightctl-bench-") as name:
        folder = Path(name)
        with cluster(folder, "--client_ttl=60", segment_mib=SEGMENT_MIB, hosts=HOSTS) as real:
            assert real.process is not None
            master = real.process.pid
            empty = f"empty {resident_bytes(master) / 1e6:.1f} MB"
            keys = asyncio.run(fill(real, folder))
            section = CONFIG.format(admin=real.admin, master=real.master, lease_ttl_s=LEASE_TTL_S)
            cli = Cli(folder, (), extra=section)
            shutil.copytree(folder / "tiers", cli.state_dir / "tiers", dirs_exist_ok=True)
            with cli.running() as child:
                started = f"just started {resident_bytes(child.pid) / 1e6:.1f} MB"
                settle(child.pid)
                idle(
                    float(sys.argv[1]) if sys.argv[1:] else IDLE_S,
                    {"weightctl run": child.pid, "the Master": master},
                    {"weightctl run": started, "the Master": empty},
                )
                cache = Cache(real)
                try:
                    paired(cache, family(child.pid), master)
                finally:
                    cache.close()
            gone = [key for key in keys if not real.entry(key)["values"]]
            row("Mooncake: managed members not in memory afterwards", f"{len(gone)} of {len(keys)}")


if __name__ == "__main__":
    main()
