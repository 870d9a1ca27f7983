"""One part of the store's API.  Layer: store.

The store is all of its parts over one engine and one clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weightctl.controller.ports import Clock
    from weightctl.controller.store.engine import Engine


class Part:
    """Some of the store's requests."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
