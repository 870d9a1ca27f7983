"""Work queue rates beside the cost of one task switch on uvloop."""

import asyncio
import time

import uvloop

from tests.bench.report import row
from weightctl.controller.clock import SystemClock, SystemEntropy
from weightctl.controller.runtime.timer import Timer
from weightctl.controller.runtime.workqueue import Priority, WorkQueue

KEYS = 200_000
SWITCHES = 300_000


def new_queue() -> WorkQueue[str]:
    clock = SystemClock()
    return WorkQueue(clock, SystemEntropy(), Timer(clock))


def rate(count: int, started_s: float) -> float:
    return count / (time.perf_counter() - started_s)


def names() -> list[str]:
    return [f"tenant:namespace/resource-{number}/revision@1" for number in range(KEYS)]


def adds() -> float:
    """Distinct keys, half of them again (dedup), into both lanes."""
    queue, keys = new_queue(), names()
    started_s = time.perf_counter()
    for number, key in enumerate(keys):
        queue.add(key, Priority(number & 1))
    for key in keys[::2]:
        queue.add(key)
    return rate(len(keys) * 3 // 2, started_s)


def delayed_adds() -> float:
    queue, keys = new_queue(), names()
    started_s = time.perf_counter()
    for number, key in enumerate(keys):
        queue.add_after(key, 10.0 + number % 977)
    return rate(len(keys), started_s)


async def claims() -> float:
    queue, keys = new_queue(), names()
    for number, key in enumerate(keys):
        queue.add(key, Priority(number & 1))
    started_s = time.perf_counter()
    for _ in keys:
        queue.done(await queue.claim())
    return rate(len(keys), started_s)


async def switches() -> float:
    """The floor: tasks that only yield to each other."""

    async def spin(turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)

    started_s = time.perf_counter()
    await asyncio.gather(*(spin(SWITCHES // 10) for _ in range(10)))
    return rate(SWITCHES, started_s)


def main() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        floor = runner.run(switches())
        claimed = runner.run(claims())
    measured = (
        ("queue: add with dedup", adds(), 300_000),
        ("queue: add with a delay", delayed_adds(), 300_000),
        ("queue: claim and done", claimed, 100_000),
    )
    for what, ours, aim in measured:
        peer = f"task switch {floor / 1000:,.0f} k/s"
        row(what, f"{ours / 1000:,.0f} k/s", peer, f"{ours / floor:.2f}x", f"{aim // 1000} k/s")


if __name__ == "__main__":
    main()
