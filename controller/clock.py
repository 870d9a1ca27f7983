"""Real time and real chance: the only implementations of Clock and Entropy.  Layer: ports.

Everything else takes a `Clock` or an `Entropy`, so that the same code runs under a virtual clock.
What a command that only asks does not need is imported where it is used.

Stored deadlines are wall time.  A step of the machine's clock must not end a live lease or keep a
dead one alive, so within a process wall time goes with the monotonic clock and a step of the
machine's clock is followed slowly.
"""

import os
import time

NAP_S_MAX = 3600.0
"""No sleep is longer in one piece; an endless one would never notice a resumed machine."""


SLEW_SHARE = 0.05
"""A step is made up for at this share of the time that passes: a lease of a minute lives three
seconds more or less, and its holder renews it after a third of its life."""
STEP_NS_MAX = 86_400_000 * 1_000_000
"""A larger step is followed at once: the clock had not been set, and no lease lives that long."""


class SystemClock:
    """The machine's clocks; wall time is that of the start plus what has passed since."""

    def __init__(self) -> None:
        monotonic_ns = time.monotonic_ns()
        self._kept = (time.time_ns() - monotonic_ns, monotonic_ns)
        """Wall minus monotonic time as it is taken to be, and the monotonic time of that."""

    def wall_ms(self) -> int:
        """Wall clock, milliseconds since the epoch; never goes back but by more than a day."""
        monotonic_ns = time.monotonic_ns()
        offset_ns, since_ns = self._kept
        ahead_ns = time.time_ns() - monotonic_ns - offset_ns
        if abs(ahead_ns) <= STEP_NS_MAX:
            most_ns = int((monotonic_ns - since_ns) * SLEW_SHARE)
            ahead_ns = max(-most_ns, min(ahead_ns, most_ns))
        self._kept = (offset_ns + ahead_ns, monotonic_ns)
        return (offset_ns + ahead_ns + monotonic_ns) // 1_000_000

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
