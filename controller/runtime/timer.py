"""One task that calls back at given times.  Layer: runtime; knows nothing of the domain.

Deadlines and delayed work share it, so that neither costs a task.  It sleeps by the `Clock`, hence
runs under a virtual one.  Invariant: the nap never ends later than the earliest armed call.
"""

import heapq
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Never

import anyio

from weightctl.controller.ports import Clock

_NAP_S_MAX = 60.0
_STALE_MIN = 64


class Alarm:
    """One armed call; `cancel` disarms it."""

    __slots__ = ("_timer", "callback", "due_s")

    def __init__(self, timer: "Timer", due_s: float, callback: Callable[[], object]) -> None:
        self._timer = timer
        self.due_s = due_s
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        """Disarm; harmless when it has rung."""
        if self.callback is not None:
            self.callback = None
            self._timer.note_stale()


class Timer:
    """Calls back at monotonic times.  Single-threaded; `run` must be running for it to ring."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, Alarm]] = []
        self._order = itertools.count()
        self._stale = 0
        self._nap: anyio.CancelScope | None = None
        self._nap_until_s = 0.0

    def __len__(self) -> int:
        return len(self._heap) - self._stale

    def call_at(self, due_s: float, callback: Callable[[], object]) -> Alarm:
        """Arm a synchronous call at monotonic `due_s`; it must not raise."""
        alarm = Alarm(self, due_s, callback)
        heapq.heappush(self._heap, (due_s, next(self._order), alarm))
        if self._nap is not None and due_s < self._nap_until_s:
            self._nap.cancel()
        return alarm

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Alarm:
        """Arm a synchronous call in `delay_s` seconds."""
        return self.call_at(self._clock.monotonic_s() + delay_s, callback)

    def note_stale(self) -> None:
        """Count a disarmed alarm; the heap is rebuilt when most of it is stale."""
        self._stale += 1
        if self._stale > _STALE_MIN and self._stale * 2 > len(self._heap):
            self._heap = [item for item in self._heap if item[2].callback is not None]
            heapq.heapify(self._heap)
            self._stale = 0

    @contextmanager
    def deadline(self, seconds: float) -> Iterator[anyio.CancelScope]:
        """Cancel the block after `seconds`; `cancelled_caught` of the scope tells that it was."""
        with anyio.CancelScope() as scope:
            alarm = self.call_later(seconds, scope.cancel)
            try:
                yield scope
            finally:
                alarm.cancel()

    async def run(self) -> Never:
        """Ring until cancelled."""
        while True:
            self._ring()
            now_s = self._clock.monotonic_s()
            self._nap_until_s = now_s + _NAP_S_MAX
            if self._heap:
                self._nap_until_s = min(self._nap_until_s, self._heap[0][0])
            with anyio.CancelScope() as self._nap:
                await self._clock.sleep(self._nap_until_s - now_s)
            self._nap = None

    def _ring(self) -> None:
        now_s = self._clock.monotonic_s()
        while self._heap and self._heap[0][0] <= now_s:
            alarm = heapq.heappop(self._heap)[2]
            if alarm.callback is None:
                self._stale -= 1
                continue
            callback, alarm.callback = alarm.callback, None
            callback()
