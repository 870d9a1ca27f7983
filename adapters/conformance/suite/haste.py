"""A clock that hurries while nothing real is waited for.  Layer: conformance.

The loop's own patience (pauses, deadlines of calls that were lost) costs little then, and yet what
a real tier carries out has its whole deadline: a slow machine makes nothing fail.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

from weightctl.controller.clock import SystemClock
from weightctl.controller.core.observation import Member
from weightctl.controller.ports import RangedReader, Tier
from weightctl.controller.runtime.forwarding import ForwardingTier

T = TypeVar("T")

HASTE = 20.0
"""So many seconds of the clock pass in one while it hurries."""


class HastyClock:
    """A clock on which time passes faster, but for the time in which it is told not to."""

    def __init__(self) -> None:
        self._real = SystemClock()
        self._began_ms = self._real.wall_ms()
        self._calls = 0
        self._since_s = self._real.monotonic_s()
        self._before_s = 0.0
        """What had passed on this clock at `_since_s`."""

    def monotonic_s(self) -> float:
        """As the port."""
        return self._before_s + (self._real.monotonic_s() - self._since_s) * self._rate

    def wall_ms(self) -> int:
        """As the port; without jumps."""
        return self._began_ms + int(self.monotonic_s() * 1000)

    async def sleep(self, seconds: float) -> None:
        """As the port."""
        until_s = self.monotonic_s() + seconds
        await self._real.sleep(seconds / HASTE)
        while (left_s := until_s - self.monotonic_s()) > 0:
            await self._real.sleep(left_s / HASTE)

    @contextmanager
    def at_leisure(self) -> Iterator[None]:
        """Time passes as it does, for as long as anybody is in here."""
        self._enter(1)
        try:
            yield
        finally:
            self._enter(-1)

    @property
    def _rate(self) -> float:
        return 1.0 if self._calls else HASTE

    def _enter(self, more: int) -> None:
        self._before_s, self._since_s = self.monotonic_s(), self._real.monotonic_s()
        self._calls += more


class Leisurely(ForwardingTier):
    """A real tier; its calls and readers keep the clock from hurrying."""

    def __init__(self, inner: Tier, clock: HastyClock) -> None:
        super().__init__(inner)
        self._clock = clock

    async def around(self, call: str, run: Callable[[], Awaitable[T]]) -> T:
        """Every call that waits."""
        del call
        with self._clock.at_leisure():
            return await run()

    @asynccontextmanager
    async def _open(self, member: Member) -> AsyncIterator[RangedReader]:
        with self._clock.at_leisure():
            async with super()._open(member) as reader:
                yield reader
