"""The queue and its workers at shutdown, in very many orders of their steps.

The loop's ready queue is shuffled by a seed. Whatever the order of adding, claiming, cancelling and
closing, everybody comes home, no key is lost, doubled or worked on twice at a time, and nobody is
handed a key after the close. A deadlock is found by the simulated loop: nothing can ever happen
again.
"""

import asyncio
from collections import Counter
from random import Random

import pytest

from tests.support.virtual_time import SeededEntropy
from weightctl.adapters.conformance.simulation.clock import SimClock
from weightctl.adapters.conformance.simulation.loop import SimLoop, run_simulated
from weightctl.controller.core.backoff import Backoff
from weightctl.controller.runtime.runner import Again, Failed, Finished, Next, Runner
from weightctl.controller.runtime.timer import Timer
from weightctl.controller.runtime.workqueue import (
    Priority,
    QueueClosedError,
    QueueOptions,
    WorkQueue,
)

SEEDS = 250
"""Orders of steps, for each kind of ending."""
KEYS = tuple("abcdef")


class Course:
    """One run: workers, writers and an ending, at times that chance gives."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        self.clock = SimClock(loop)
        self.timer = Timer(self.clock)
        options = QueueOptions(backoff=Backoff(base_s=0.5, max_s=2.0, jitter=0.0))
        self.queue: WorkQueue[str] = WorkQueue(self.clock, SeededEntropy(seed), self.timer, options)
        self.active: Counter[str] = Counter()
        self.accepted: set[str] = set()
        self.ended: set[str] = set()
        """Keys whose last pass began after their last add."""
        self.closed = False
        self.claimed_after_close = 0

    def nap(self) -> float:
        return self.chance.choice((0.0, 0.0, 0.1, 0.3))

    async def handle(self, key: str) -> Next:
        self.active[key] += 1
        assert self.active[key] == 1, "one pass per key at a time"
        self.ended.add(key)
        try:
            await asyncio.sleep(self.nap())
        finally:
            self.active[key] -= 1
        return self.chance.choice(
            (Finished(), Finished(), Again(after_s=0.2), Failed(generation=1), Again())
        )

    async def write(self) -> None:
        for _ in range(6):
            key = self.chance.choice(KEYS)
            self.accepted.add(key)
            self.ended.discard(key)
            if self.chance.random() < 0.7:
                self.queue.add(key, self.chance.choice(tuple(Priority)))
            else:
                self.queue.add_after(key, 0.2)
            await asyncio.sleep(self.nap())

    def close(self) -> None:
        self.closed = True
        self.queue.close()

    async def run(self, ending: str) -> None:
        runner = Runner(self.queue, self.handle, slots=3)
        timer = asyncio.create_task(self.timer.run())
        working = asyncio.create_task(runner.run())
        claimers = [asyncio.create_task(self.claim()) for _ in range(3)]
        writers = [asyncio.create_task(self.write()) for _ in range(2)]
        await asyncio.sleep(self.chance.random())
        if ending == "cancel a claimer, then close":
            claimers[0].cancel()
        if ending == "cancel claimers, then go on":
            await asyncio.gather(*writers)
            while claimers:
                await asyncio.sleep(60.0)
                assert len(self.queue) == 0, "those who stay work everything off"
                self.queue.add("a")  # wakes one of those who wait, perhaps the one that leaves
                claimers.pop().cancel()
            await asyncio.sleep(60.0)
            assert len(self.queue) == 0
        if ending == "cancel the workers":
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
        if ending == "close within a pass":
            self.queue.add("z")
        self.close()
        if ending == "close twice":
            self.close()
        if ending == "cancel after the close":
            working.cancel()
        async with asyncio.timeout(600.0):
            await asyncio.gather(working, *claimers, *writers, return_exceptions=True)
        timer.cancel()
        await asyncio.gather(timer, return_exceptions=True)
        self.judge()

    async def claim(self) -> None:
        """A worker by hand, beside the runner."""
        while True:
            try:
                key = await self.queue.claim()
            except QueueClosedError:
                return
            self.claimed_after_close += self.closed
            self.ended.add(key)
            try:
                await asyncio.sleep(self.nap())
            finally:
                self.queue.done(key)

    def judge(self) -> None:
        queue = self.queue
        assert queue.active_count == 0, "a claimed key has been given back"
        assert not queue._waiters, "nobody waits for ever"
        assert self.claimed_after_close == 0
        known = {key for key in (*KEYS, "z") if key in queue}
        assert len(queue) == len(known)
        lost = self.accepted - self.ended - known
        assert not lost, f"{lost} were added and neither worked on nor kept"
        queue._surface()
        lanes = sum(queue.due_count(priority) for priority in Priority)
        assert lanes + queue.delayed_count == len(known), "each known key waits in one place"


async def course(seed: int, ending: str) -> None:
    await Course(seed).run(ending)


@pytest.mark.parametrize(
    "ending",
    [
        "close",
        "close twice",
        "close within a pass",
        "cancel a claimer, then close",
        "cancel claimers, then go on",
        "cancel the workers",
        "cancel after the close",
    ],
)
def test_no_order_of_steps_loses_a_key_or_leaves_anybody_waiting(ending: str) -> None:
    for seed in range(SEEDS):
        try:
            run_simulated(course(seed, ending), seed)
        except BaseException as error:
            raise AssertionError(f"seed {seed}, ending {ending!r}") from error
