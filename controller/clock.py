"""Real time and real chance: the only implementations of Clock and Entropy.  Layer: ports.

Everything else takes a `Clock` or an `Entropy`, so that the same code runs under a virtual clock.
What a command that only asks does not need is imported where it is used.
"""

import os
import time

NAP_S_MAX = 3600.0
"""No sleep is longer in one piece; an endless one would never notice a resumed machine."""


class SystemClock:
    """The machine's clocks."""

    def wall_ms(self) -> int:
        """Wall clock, milliseconds since the epoch; may jump either way."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Monotonic seconds for durations."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep by the monotonic clock; returns early (never late) for more than an hour."""
        import anyio  # noqa: PLC0415 - see above

        await anyio.sleep(min(max(seconds, 0.0), NAP_S_MAX))


class SystemEntropy:
    """The operating system's random source for tokens; a seeded-from-it generator for jitter.

    A `seed` repeats the jitter, never the tokens.
    """

    def __init__(self, seed: int | None = None) -> None:
        from random import Random  # noqa: PLC0415 - see above

        start = int.from_bytes(os.urandom(16)) if seed is None else seed
        self._jitter = Random(start)  # noqa: S311 - jitter is no secret

    def random(self) -> float:
        """Uniform in [0, 1)."""
        return self._jitter.random()

    def token(self, size_bytes: int) -> str:
        """A fresh hexadecimal token of that many random bytes."""
        return os.urandom(size_bytes).hex()
