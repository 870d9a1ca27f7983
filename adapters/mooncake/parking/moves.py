"""Tasks that move memory replicas between segments.  Layer: a tier; on the loop.

Invariant: a key has at most one task at a time, and after one that was in vain the next comes
later each time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weightctl.adapters.mooncake.client.engine import Engine

if TYPE_CHECKING:
    from weightctl.adapters.mooncake.client.clients import CountedWorker
    from weightctl.controller.ports import Clock

TRIES = 3
"""After which a move is in vain, for who does not need it."""
_PAUSE_S = 0.25
_PAUSE_MAX_S = 30.0
_RUNNING = frozenset({"PENDING", "PROCESSING"})


class Moves:
    """The moves that one lot has asked for."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._running: dict[str, tuple[int, int]] = {}
        self._tries: dict[str, int] = {}
        self._due_s: dict[str, float] = {}

    def tries(self, key: str) -> int:
        """How often a move of it was asked for."""
        return self._tries.get(key, 0)

    def tried_in_vain(self, key: str) -> bool:
        """Whether its last task has ended and there were many."""
        return key not in self._running and self.tries(key) >= TRIES

    async def ask(self, worker: CountedWorker, key: str, source: str, target: str) -> bool:
        """Have a replica moved, unless that is under way or not due; whether it was asked for."""
        if key in self._running:
            status, _ = await worker.call(Engine.task, self._running[key])
            if status in _RUNNING:
                return False
            del self._running[key]
        now_s = self._clock.monotonic_s()
        if now_s < self._due_s.get(key, 0.0):
            return False
        tries = self._tries[key] = self.tries(key) + 1
        self._due_s[key] = now_s + min(_PAUSE_S * 2.0**tries, _PAUSE_MAX_S)
        task, code = await worker.call(Engine.move, key, source, target)
        if code == 0:
            self._running[key] = task
        return code == 0
