"""A clock that stands still until a test moves it, and chance from a seed.

`advance` wakes sleepers one due time after the other and lets the loop settle in between, so that
what a woken task does (also: sleep again) happens at its own virtual time.  Works on both loops.
"""

import asyncio
import heapq
import itertools
import random

SETTLE_TURNS = 30
"""Loop turns after each due time; enough for a chain of wake-ups across tasks."""


class VirtualClock:
    """Monotonic and wall time under the test's control; they may be moved apart."""

    def __init__(self, *, wall_ms: int = 1_700_000_000_000, monotonic_s: float = 1000.0) -> None:
        self._wall_ms = float(wall_ms)
        self._monotonic_s = monotonic_s
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def wall_ms(self) -> int:
        return int(self._wall_ms)

    def monotonic_s(self) -> float:
        return self._monotonic_s

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        item = (self._monotonic_s + seconds, next(self._order), future)
        heapq.heappush(self._sleepers, item)
        await future

    def jump_wall(self, seconds: float) -> None:
        """Move the wall clock alone, as a clock adjustment does."""
        self._wall_ms += seconds * 1000

    def jump(self, seconds: float) -> None:
        """Move both clocks at once without running anything in between."""
        self._monotonic_s += seconds
        self._wall_ms += seconds * 1000

    def next_due_s(self) -> float | None:
        """When the next sleeper wakes; None when nobody sleeps."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    async def advance(self, seconds: float) -> None:
        """Let `seconds` pass, waking each sleeper at its time."""
        until_s = self._monotonic_s + seconds
        await settle()
        while (due_s := self.next_due_s()) is not None and due_s <= until_s:
            self.jump(max(0.0, due_s - self._monotonic_s))
            heapq.heappop(self._sleepers)[2].set_result(None)
            await settle()
        self.jump(max(0.0, until_s - self._monotonic_s))
        await settle()


async def settle(turns: int = SETTLE_TURNS) -> None:
    """Let every task that can run do so."""
    for _ in range(turns):
        await asyncio.sleep(0)


class SeededEntropy:
    """The same chance for the same seed."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def random(self) -> float:
        return self._random.random()

    def token(self, size_bytes: int) -> str:
        return self._random.randbytes(size_bytes).hex()
