"""Worker processes and the dfs tier, beside the same work in the loop's own process.

The floor of a call is a hop to a thread; of a read, `preadv` of the cached file; of a store, the
local_disk tier, which does the same file calls in threads, in the same folder.  All on a tmpfs, so
that it is the workers that are measured and not a disk.  Best of some rounds each.
"""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from time import perf_counter

import anyio
from anyio import to_thread

from tests.bench.report import row
from tests.support.dfs_tiers import FENCE, dropping, item, member
from tests.support.worker_engine import Engine
from weightctl.adapters import dfs, local_disk
from weightctl.adapters.shared.workers import EngineSpec, WorkerLimits, WorkerPool
from weightctl.controller.clock import SystemClock, SystemEntropy
from weightctl.controller.ports import PIECE_BYTES, Done, Tier, TierContext

CALLS = 2000
CALLERS = 32
SIZE = 32 * PIECE_BYTES
ROUNDS = 5
STARTS = 10


async def best(call: Callable[[], Awaitable[object]], rounds: int = ROUNDS) -> float:
    """Seconds of the fastest round."""
    fastest = float("inf")
    for _ in range(rounds):
        start = perf_counter()
        await call()
        fastest = min(fastest, perf_counter() - start)
    return fastest


def _pool() -> WorkerPool:
    engine = EngineSpec(factory="tests.support.worker_engine:Engine")
    return WorkerPool("bench", engine, clock=SystemClock(), limits=WorkerLimits())


async def calls() -> None:
    """Requests a second, one after the other and from many callers."""

    async def hops() -> None:
        for _ in range(CALLS):
            await to_thread.run_sync(int)

    async with _pool() as pool:

        async def one_by_one() -> None:
            for _ in range(CALLS):
                await pool.call(Engine.echo, 1)

        async def many() -> None:
            async def caller() -> None:
                for _ in range(CALLS // CALLERS):
                    await pool.call(Engine.echo, 1)

            await asyncio.gather(*(caller() for _ in range(CALLERS)))

        ours, floor, shared = await best(one_by_one), await best(hops), await best(many)
    _row_of_calls("worker calls, one by one", ours, floor)
    _row_of_calls(f"worker calls, {CALLERS} callers", shared, floor)


def _row_of_calls(name: str, ours: float, floor: float) -> None:
    row(
        name,
        f"{CALLS / ours / 1000:.1f} k/s",
        f"thread hops {CALLS / floor / 1000:.1f} k/s",
        f"{floor / ours:.2f}",
    )


async def starts() -> None:
    """How long a worker takes to its first answer, and for how long the loop stands still."""
    bare: list[float] = []
    ours: list[float] = []
    still: list[float] = []
    for _ in range(STARTS):
        start = perf_counter()
        await to_thread.run_sync(
            lambda: subprocess.run([sys.executable, "-S", "-c", ""], check=True)
        )
        bare.append(perf_counter() - start)
        async with _pool() as pool:
            start = perf_counter()
            lease = asyncio.ensure_future(pool.call(Engine.echo, 1))
            await asyncio.sleep(0)
            still.append(perf_counter() - start)
            await lease
            ours.append(perf_counter() - start)
    row(
        "start of a worker to its first answer",
        f"{min(ours) * 1000:.0f} ms",
        f"bare Python {min(bare) * 1000:.0f} ms",
        f"{min(ours) / min(bare):.1f}x",
    )
    row("the loop stands still for a worker's start", f"{min(still) * 1000:.2f} ms")


async def transfers(folder: Path) -> None:
    """Bytes a second of a store, a verify and a ranged read."""
    context = TierContext(
        clock=SystemClock(), entropy=SystemEntropy(), state_dir=str(folder / "state")
    )
    content = os.urandom(SIZE)
    async with AsyncExitStack() as stack:
        tiers = {
            name: await stack.enter_async_context(module.factory(name, {"path": name}, context))
            for name, module in (("dfs", dfs), ("local_disk", local_disk))
        }
        seconds = {name: await _round(tier, content) for name, tier in tiers.items()}
        opened = await stack.enter_async_context(tiers["local_disk"].open(member("k", content)))
        number = opened.fileno()
        assert number is not None
        plain = await best(lambda: _preadv(number))
    for what in ("store", "verify", "ranged read"):
        ours, peer = seconds["dfs"][what], seconds["local_disk"][what]
        name, floor = "local_disk", peer
        if what == "ranged read":
            name, floor = "preadv in a thread", plain
        row(f"dfs {what}, tmpfs", _rate(ours), f"{name} {_rate(floor)}", f"{floor / ours:.2f}")


async def _round(tier: Tier, content: bytes) -> dict[str, float]:
    wanted = item("k", content)
    stored: list[str] = []

    async def store() -> None:
        (outcome,) = await tier.store([wanted], FENCE)
        assert isinstance(outcome, Done), outcome
        stored.append(outcome.instance_id)

    async def read() -> None:
        buffer = memoryview(bytearray(PIECE_BYTES))
        async with tier.open(wanted.member) as reader:
            for offset in range(0, SIZE, PIECE_BYTES):
                await reader.read_into(offset, buffer)

    fastest = float("inf")
    for _ in range(ROUNDS):
        fastest = min(fastest, await best(store, 1))
        await tier.drop([dropping("k", stored[-1], content)], FENCE)
    await store()
    return {
        "store": fastest,
        "verify": await best(lambda: tier.verify([wanted.member])),
        "ranged read": await best(read),
    }


async def _preadv(fd: int) -> None:
    buffer = memoryview(bytearray(PIECE_BYTES))
    for offset in range(0, SIZE, PIECE_BYTES):
        await to_thread.run_sync(os.preadv, fd, [buffer], offset)


def _rate(seconds: float) -> str:
    return f"{SIZE / 1024**3 / seconds:.2f} GiB/s"


async def main() -> None:
    """Print the rows."""
    await calls()
    await starts()
    folder = Path(tempfile.mkdtemp(prefix="weightctl-bench-", dir="/dev/shm"))
    try:
        await transfers(folder)
    finally:
        await to_thread.run_sync(shutil.rmtree, folder)


if __name__ == "__main__":
    anyio.run(main, backend_options={"use_uvloop": True})
