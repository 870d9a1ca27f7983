"""Looking keeps nothing alive: what the sidecar looked at is evicted like what nobody looked at.

Three sets of others' objects lie in the memory of one real Master, put in turn: one is looked at by
the tier again and again, one is never asked for, and one is read through Mooncake, which takes
leases and so shows that the comparison can tell. Then new objects need the memory, while looking
and reading go on, and after each few the names that are left are counted. The Master's counts of
look-ups that take a lease are told before and after.

`python -m tests.bench.bench_mooncake_leases 3600 1` looks for an hour, once a second.
"""

import asyncio
import hashlib
import json
import subprocess
import sys
import tempfile
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
from anyio import to_thread

from tests.bench.report import row
from tests.support.mooncake.harness import connection_options
from tests.support.mooncake.lab import Cluster, cluster
from weightctl.adapters.conformance.suite.material import context
from weightctl.adapters.mooncake.connection import shared
from weightctl.adapters.mooncake.lab.cluster import why_not
from weightctl.adapters.mooncake.options import MooncakeOptions
from weightctl.adapters.mooncake.tier import MooncakeTier
from weightctl.controller.core.observation import Members, MemberState
from weightctl.controller.runtime.settings import ResyncOptions

LOOKING_S, PAUSE_S = 20.0, 0.0
EACH = 40
SEGMENT_MIB = 64
VALUE_BYTES = 256 << 10
STEP, STEPS = 16, 40
"""Objects that are put at a time, and how often: 2.5 times the memory."""
LEASE_MS = 10_000
SETS = ("seen", "unseen", "read")
TAKING = (
    "get_replica_list",
    "get_replica_list_by_regex",
    "batch_get_replica_list",
    "exist_key",
    "batch_exist_key",
)
"""What the Master counts of look-ups that take leases."""

# For each line [name, keys]: does that to the keys; answers how often it succeeded.
_OTHERS = """
import json, os, sys
from mooncake.store import MooncakeDistributedStore
store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 32 << 20, "tcp", "", sys.argv[1]) == 0
value = os.urandom(int(sys.argv[2]))
print(0, flush=True)
for line in sys.stdin:
    name, keys = json.loads(line)
    if name == "put":
        print(sum(store.put(key, value) == 0 for key in keys), flush=True)
    else:
        print(sum(len(store.get(key)) > 0 for key in keys), flush=True)
"""


class Others:
    """Those who use the same Mooncake, in a process of their own."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def __call__(self, name: str, keys: list[str]) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, keys]) + "\n")
        self._process.stdin.flush()
        return self.answer()

    def answer(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())


@contextmanager
def others(real: Cluster) -> Iterator[Others]:
    """The process, until the block ends."""
    with subprocess.Popen(
        [sys.executable, "-c", _OTHERS, real.master, str(VALUE_BYTES)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        made = Others(process)
        made.answer()
        try:
            yield made
        finally:
            process.kill()


def named(kind: str) -> list[str]:
    """The keys of one set."""
    return [f"{kind}-{number:04d}" for number in range(EACH)]


def table() -> Members:
    """The objects that are looked at."""
    return Members(
        group_id="weight:others",
        keys=named("seen"),
        sizes_bytes=array("Q", [VALUE_BYTES]) * EACH,
        sha256=hashlib.sha256().digest() * EACH,
        data_types=b"\0" * EACH,
    )


def taken(real: Cluster) -> int:
    """Look-ups that take a lease, as the Master counts them."""
    lines = (line.split() for line in real.get("/metrics").splitlines() if line[:1] != "#")
    counts = {words[0]: float(words[-1]) for words in lines if words}
    return int(sum(counts.get(f"master_{name}_requests_total", 0) for name in TAKING))


def left(real: Cluster) -> dict[str, int]:
    """How many of each set the Master still names; naming all asks for none."""
    keys = real.get("/get_all_keys").split()
    return {kind: sum(key.startswith(f"{kind}-") for key in keys) for kind in SETS}


async def watched(real: Cluster, folder: Path, seconds: float, pause_s: float) -> None:
    """Look for so long, then let new objects need the memory; prints the rows."""
    tier = MooncakeTier(
        "memory",
        MooncakeOptions(kind="mooncake-memory", connection=connection_options(real)),
        shared(connection_options(real), context(folder / "looking")),
    )
    looks, ended = 0, anyio.Event()

    async def look() -> None:
        nonlocal looks
        while not ended.is_set():
            seen = await tier.observe(table())
            looks += seen.states.count(MemberState.UNKNOWN) == 0
            await anyio.sleep(pause_s)

    with others(real) as act:
        async with tier:
            for trio in zip(*map(named, SETS), strict=True):
                assert act("put", list(trio)) == len(trio)
            first = await tier.observe(table())
            assert first.states.count(MemberState.COMPLETE) == EACH, first.problem
            before = taken(real)
            async with anyio.create_task_group() as group:
                group.start_soon(look)
                await anyio.sleep(seconds)
                counts, told = [before, taken(real)], looks
                await to_thread.run_sync(pressed, real, act)
                counts.append(taken(real))
                ended.set()
    hours = told * ResyncOptions().published_s / 3600
    row(
        f"Mooncake: look-ups that took a lease, as the Master counts, in {told:,} looks at"
        f" {EACH} members within {seconds:.0f} s (what the loop does in {hours:,.0f} hours)",
        f"{counts[1] - counts[0]}",
        f"when others read them {STEPS} times: {counts[2] - counts[1]}",
        "",
        "0",
    )


def pressed(real: Cluster, act: Others) -> None:
    """The rows of how each set went as the memory was needed."""
    gone: dict[str, int] = {}
    half: dict[str, int] = {}
    for step in range(1, STEPS + 1):
        act("read", named("read"))
        act("put", [f"new-{step:04d}-{number:04d}" for number in range(STEP)])
        for kind, count in left(real).items():
            if count <= EACH // 2:
                half.setdefault(kind, step)
            if count == 0:
                gone.setdefault(kind, step)
    mib = STEP * VALUE_BYTES / 2**20
    size = f"{SEGMENT_MIB} MiB of memory"

    def after(steps: dict[str, int], kind: str) -> str:
        return f"{steps[kind] * mib:.0f} MiB" if kind in steps else "never"

    last = left(real)
    row(
        f"Mooncake: of {EACH} objects that were looked at all the time, left after"
        f" {STEPS * mib:.0f} MiB of new ones in {size}",
        f"{last['seen']} (half gone after {after(half, 'seen')}, all after {after(gone, 'seen')})",
        f"never asked for: {last['unseen']} (half gone after {after(half, 'unseen')}, all after"
        f" {after(gone, 'unseen')}); read by others: {last['read']}",
        "",
        "evicted as if nobody looked",
    )


def main() -> None:
    if problem := why_not():
        print(f"skipped: {problem}")
        return
    words = [float(word) for word in sys.argv[1:]]
    seconds, pause_s = words or (LOOKING_S, PAUSE_S)
    with tempfile.TemporaryDirectory(prefix="weightctl-bench-") as name:
        folder = Path(name)
        ttl = f"--default_kv_lease_ttl={LEASE_MS}"
        with cluster(folder, ttl, hosts=1, segment_mib=SEGMENT_MIB, offload=False) as real:
            asyncio.run(watched(real, folder, seconds, pause_s))


if __name__ == "__main__":
    main()
