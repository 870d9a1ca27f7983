"""How fast bytes may flow.  Layer: runtime; knows nothing of the domain.

A token bucket by the monotonic clock: bytes are paid for before they flow, in the order of asking.
A transfer pays at both of its ends.  Rates can be changed at any time; who waits notices at once.
"""

from collections.abc import Sequence

import anyio

from weightctl.controller.ports import Clock, Limiter

BURST_S = 0.05
"""Idle time that may be made up for; it covers timers that ring late and keeps the error small."""
_NEGLIGIBLE_S = 1e-6
"""Below this a sleep is only rounding; the level goes a little below zero instead."""


class TokenBucket:
    """A bandwidth limit; `rate_bytes_per_s` None means unlimited."""

    def __init__(self, clock: Clock, rate_bytes_per_s: float | None = None) -> None:
        self._clock = clock
        self._rate = rate_bytes_per_s
        self._level = 0.0
        self._filled_s = clock.monotonic_s()
        self._turn = anyio.Lock()
        self._nap: anyio.CancelScope | None = None
        self.charged_bytes = 0
        """Bytes let through since the start."""
        self.charged_s = float("-inf")
        """When the last of them were."""

    @property
    def rate_bytes_per_s(self) -> float | None:
        """The rate that holds now."""
        return self._rate

    def set_rate(self, rate_bytes_per_s: float | None) -> None:
        """Change the rate; what has been saved up so far counts by the old one."""
        self._fill(0)
        self._rate = rate_bytes_per_s
        if self._nap is not None:
            self._nap.cancel()

    async def charge(self, size_bytes: int) -> None:
        """Wait until `size_bytes` more may flow.  Cancelled in the wait, nothing is paid."""
        if self._rate is None:
            self._let_through(size_bytes)
            return
        async with self._turn:
            while (missing_s := self._missing_s(size_bytes)) > _NEGLIGIBLE_S:
                with anyio.CancelScope() as self._nap:
                    await self._clock.sleep(missing_s)
                self._nap = None
            self._level -= size_bytes
            self._let_through(size_bytes)

    def _let_through(self, size_bytes: int) -> None:
        self.charged_bytes += size_bytes
        self.charged_s = self._clock.monotonic_s()

    def _missing_s(self, size_bytes: int) -> float:
        """Seconds until `size_bytes` are saved up; 0 when they are, or without a limit."""
        if self._rate is None:
            self._level = float(size_bytes)
            return 0.0
        self._fill(size_bytes)
        return (size_bytes - self._level) / self._rate

    def _fill(self, wanted_bytes: int) -> None:
        """Save up for the time that has passed, but never much more than is wanted now."""
        now_s = self._clock.monotonic_s()
        passed_s, self._filled_s = now_s - self._filled_s, now_s
        if self._rate is not None:
            ceiling = max(self._level, wanted_bytes + self._rate * BURST_S)
            self._level = min(self._level + passed_s * self._rate, ceiling)


class JointLimiter:
    """Both ends of a transfer: every byte is charged to each of the buckets."""

    def __init__(self, buckets: Sequence[Limiter]) -> None:
        self._buckets = buckets

    async def charge(self, size_bytes: int) -> None:
        """Wait until every end lets `size_bytes` more flow."""
        for bucket in self._buckets:
            await bucket.charge(size_bytes)
