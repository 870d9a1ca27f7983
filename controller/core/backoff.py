"""How long to wait before the next attempt.  Layer: core (pure).

Exponential with jitter.  The random number is passed in, so a delay is a function of its arguments;
the caller keeps the count of failures and resets it on success or on a new generation only.
"""

from __future__ import annotations

from dataclasses import dataclass

from weightctl.controller.errors import require

_DOUBLINGS_MAX = 62
"""Beyond this a float keeps growing for no purpose; the maximum has long been reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Delays from `base_s` doubling up to `max_s`; `jitter` is the share that chance decides."""

    base_s: float = 0.1
    max_s: float = 60.0
    jitter: float = 0.5

    def __post_init__(self) -> None:
        require(0 < self.base_s <= self.max_s, f"backoff {self}: 0 < base_s <= max_s must hold")
        require(0 <= self.jitter <= 1, f"backoff {self}: jitter must lie in 0..1")

    def delay_s(self, failures: int, chance: float) -> float:
        """Seconds to wait after the `failures`-th failure in a row (1 is the first).

        `chance` is uniform in [0, 1).  The result lies in ((1 - jitter) * d, d] where d is the
        undisturbed delay, so it never exceeds `max_s` and many keys that fail together spread out.
        """
        require(failures >= 1, f"backoff asked for after {failures} failures")
        doublings = min(failures - 1, _DOUBLINGS_MAX)
        undisturbed_s = min(self.max_s, self.base_s * float(2**doublings))
        return undisturbed_s * (1.0 - self.jitter * chance)
