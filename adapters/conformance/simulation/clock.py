"""Clocks of simulated processes: one monotonic time, a wall clock that jumps and stands still."""

import asyncio

from weightctl.adapters.conformance.simulation.loop import SimLoop

EPOCH_MS = 1_700_000_000_000


class SimClock:
    """`ports.Clock` over the loop's time; the wall clock may be moved, stopped and set going."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._offset_s = 0.0
        self._stopped_at_s: float | None = None
        self.highest_ms = 0
        """The latest time that the wall clock has ever shown to anybody."""

    def wall_ms(self) -> int:
        now_s = self._loop.time() if self._stopped_at_s is None else self._stopped_at_s
        shown_ms = EPOCH_MS + int((now_s + self._offset_s) * 1000)
        self.highest_ms = max(self.highest_ms, shown_ms)
        return shown_ms

    def monotonic_s(self) -> float:
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(seconds, 0.0))

    def jump_wall(self, seconds: float) -> None:
        """Move the wall clock, as an adjustment does; never before the epoch."""
        self._offset_s += seconds

    def stop_wall(self) -> None:
        """The wall clock stands still."""
        if self._stopped_at_s is None:
            self._stopped_at_s = self._loop.time()

    def start_wall(self) -> None:
        """It goes on from where it stood, unless it goes already."""
        if self._stopped_at_s is not None:
            self._offset_s -= self._loop.time() - self._stopped_at_s
            self._stopped_at_s = None
