"""When the writer of an import was last heard of.  Layer: store, memory only.

Kept outside the record, so that a Begin retry returns the identical record and replay is not upset.
Monotonic time; what is not known counts from the opening of the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weightctl.controller.core.identity import Identity
    from weightctl.controller.ports import Clock


class ImportSigns:
    """Signs of life by revision; forgotten when the import ends."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._opened_s = clock.monotonic_s()
        self._heard_s: dict[Identity, float] = {}

    def touch(self, identity: Identity) -> None:
        """The writer lives now."""
        self._heard_s[identity] = self._clock.monotonic_s()

    def forget(self, identity: Identity) -> None:
        """The import ended."""
        self._heard_s.pop(identity, None)

    def idle_s(self, identity: Identity) -> float:
        """Seconds since the last sign."""
        return self._clock.monotonic_s() - self._heard_s.get(identity, self._opened_s)
