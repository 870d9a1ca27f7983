"""What a caller of the weight store may choose and is told.  Layer: weightstore."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from weightctl.controller.errors import ConfigError
from weightctl.controller.weightstore.layout import PAYLOAD_BYTES_MIN

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightStoreOptions:
    """Limits of the facade; every one has a safe default."""

    payload_bytes: int = 64 * MIB
    """Largest payload object of an import.  A resumed import must use the same value."""
    workers: int = 4
    """Objects hashed or copied at the same time."""
    batch_bytes: int = 256 * MIB
    """Bytes handed to a tier in one call; a sign of life follows each."""
    batch_items: int = 256
    gap_bytes: int = 128 * 1024
    """Ranges of one object that lie closer are read in one go."""
    attempts: int = 5
    """Tries of one primitive that fails in a passing way."""
    busy_s: float = 60.0
    """How long what somebody else holds is waited for, where the tier does not know until when.

    Longer than a medium keeps what a dead writer had begun; Mooncake's Master 30 s by default.
    """
    observe_deadline_s: float = 30.0
    """A tier that has not answered by then is taken as unknown."""

    def __post_init__(self) -> None:
        least = {
            "payload_bytes": PAYLOAD_BYTES_MIN,
            "workers": 1,
            "batch_bytes": 1,
            "batch_items": 1,
            "gap_bytes": 0,
            "attempts": 1,
            "busy_s": 0,
            "observe_deadline_s": 0.001,
        }
        for name, bound in least.items():
            value = getattr(self, name)
            if not value >= bound:  # a deadline may be no number at all
                raise ConfigError(
                    f"the weight store's option {name} cannot be {value}",
                    f"it must be at least {bound}",
                    "leave it out to get the default",
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far one stage is; `tier` is empty for stages that concern no single tier."""

    stage: str
    """`hash`, `store`, `verify` or `load`."""
    tier: str
    done_bytes: int
    total_bytes: int
    waits: str = ""
    """What it waits for, when it does; for people."""


ProgressCallback = Callable[[Progress], None]
"""Called on the event loop, often; it must return at once."""


class Meter:
    """Adds up the bytes of one stage and reports them."""

    def __init__(
        self, callback: ProgressCallback | None, stage: str, total_bytes: int, tier: str = ""
    ) -> None:
        self._callback = callback
        self._stage = stage
        self._tier = tier
        self._total_bytes = total_bytes
        self._done_bytes = 0

    def add(self, size_bytes: int) -> None:
        """Count bytes that flowed."""
        self.reach(self._done_bytes + size_bytes)

    def reach(self, done_bytes: int) -> None:
        """Report that much as done; never less than before, never more than the total."""
        self._done_bytes = min(self._total_bytes, max(self._done_bytes, done_bytes))
        self.wait("")

    def wait(self, what: str) -> None:
        """Report that this stage waits for something; the next count says that it goes on."""
        if self._callback is not None:
            self._callback(
                Progress(
                    stage=self._stage,
                    tier=self._tier,
                    done_bytes=self._done_bytes,
                    total_bytes=self._total_bytes,
                    waits=what,
                )
            )
