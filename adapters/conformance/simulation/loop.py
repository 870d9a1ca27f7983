"""An event loop with a clock of its own whose ready queue is shuffled by a seed.

Time stands still while anything can run and then jumps to the next timer, so that a run is a
function of its seed. There are no threads, sockets or signals in it. A task that keeps the loop
busy without time passing is found out by a bound on the steps within one instant.
"""

import asyncio
import heapq
import itertools
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from weightctl.adapters.conformance.simulation.entropy import Chance

STEPS_PER_INSTANT_MAX = 200_000
OVERTAKEN_MAX = 40
"""A ready task waits for at most so many steps of others that became ready later."""


class BusyLoopError(BaseException):
    """Something spins: a bounded number of steps was made and no time has passed."""


class SimTask(asyncio.Task[Any]):
    """A task whose hash is its number, so that sets of tasks have the same order in every run."""

    _number = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        SimTask._number += 1
        self.number = SimTask._number
        super().__init__(*args, **kwargs)

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other


class _Ready:
    """What can run now, in an order by chance that does not depend on the order of coming.

    A library that cancels a set of things does so in the order of their addresses, which is another
    in each run. So a task's turn is drawn from its number and the step that made it ready.
    """

    def __init__(self, loop: "SimLoop", seed: int) -> None:
        self._loop = loop
        self._seed = seed
        self._chance = Chance(seed).random
        self._heap: list[tuple[float, int, asyncio.Handle]] = []
        self._order = itertools.count()

    def append(self, handle: asyncio.Handle) -> None:
        task = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]
        step = self._loop.steps
        if isinstance(task, SimTask):
            chance = (hash((self._seed, task.number, step)) & 0xFFFF) / 0x10000
        else:
            chance = self._chance()
        heapq.heappush(self._heap, (step + chance * OVERTAKEN_MAX, next(self._order), handle))

    def pop(self) -> asyncio.Handle:
        return heapq.heappop(self._heap)[2]

    def clear(self) -> None:
        self._heap.clear()

    def __len__(self) -> int:
        return len(self._heap)


class SimLoop(asyncio.BaseEventLoop):
    """Runs everything in one thread on virtual time."""

    _ready: _Ready
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.steps = 0
        self._ready = _Ready(self, seed)
        self._now_s = 1000.0
        self._instant_steps = 0
        self.set_task_factory(_new_task)  # type: ignore[arg-type]

    def time(self) -> float:
        """Virtual seconds."""
        return self._now_s

    def skip(self, seconds: float) -> None:
        """Let time jump ahead with nothing running in between, as on a suspended machine."""
        self._now_s += seconds

    def _run_once(self) -> None:
        if not self._ready:
            self._pass_time()
        handle = self._ready.pop()
        if handle._cancelled:
            return
        self.steps += 1
        self._instant_steps += 1
        if self._instant_steps > STEPS_PER_INSTANT_MAX:
            raise BusyLoopError(f"{self._instant_steps} steps at {self._now_s}: {handle!r}")
        handle._run()
        if self._scheduled and self._scheduled[0].when() <= self._now_s:
            self._ring()

    def _pass_time(self) -> None:
        scheduled = self._scheduled
        while scheduled and scheduled[0]._cancelled:
            heapq.heappop(scheduled)
        if not scheduled:
            raise BusyLoopError("nothing will ever happen again")
        self._now_s = max(self._now_s, scheduled[0].when())
        self._instant_steps = 0
        self._ring()

    def _ring(self) -> None:
        scheduled = self._scheduled
        while scheduled and scheduled[0].when() <= self._now_s:
            handle = heapq.heappop(scheduled)
            if not handle._cancelled:
                self._ready.append(handle)

    def _process_events(self, event_list: object) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody waits outside."""


@contextmanager
def off_loop() -> Iterator[None]:
    """For what takes no virtual time, as SQL in memory: no detector of blocking calls minds it."""
    loop = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)


def _new_task(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **kwargs: Any
) -> SimTask:
    return SimTask(work, loop=loop, **kwargs)


def run_simulated(main: Coroutine[Any, Any, Any], seed: int) -> Any:
    """Run to the end on a loop of its own."""
    SimTask._number = 0
    loop = SimLoop(seed)
    try:
        return loop.run_until_complete(main)
    finally:
        leftovers = asyncio.all_tasks(loop)
        for task in leftovers:
            task.cancel()
        if leftovers:
            loop.run_until_complete(asyncio.gather(*leftovers, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
