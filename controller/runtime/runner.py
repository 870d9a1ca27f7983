"""Bounded slots that work through a queue.  Layer: runtime; knows nothing of the domain.

One task per slot, none per key.  A slot owns a key from claim to release in one `try`/`finally`, so
there is a single exit path; whatever ends a pass early (cancellation included) makes the key due
again at once.  An exception of the handler is the handler's bug and ends the runner with it.
"""

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

import anyio

from weightctl.controller.runtime.workqueue import Priority, QueueClosedError, WorkQueue

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """Nothing more to do for this key until somebody adds it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """Due again in `after_s` seconds.  `progressed`: the pass got somewhere, so backoff resets."""

    after_s: float = 0.0
    progressed: bool = True
    priority: Priority = Priority.CONTINUED


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """Try again after the key's backoff, which starts anew with another `generation`."""

    generation: int = 0
    at_least_s: float = 0.0


Next = Finished | Again | Failed
"""What a pass says about when the key is due again."""


class Runner(Generic[K]):
    """Runs `handle` for due keys in `slots` tasks, at most one at a time for each key."""

    def __init__(
        self, queue: WorkQueue[K], handle: Callable[[K], Awaitable[Next]], *, slots: int
    ) -> None:
        self._queue = queue
        self._handle = handle
        self._slots = slots

    async def run(self) -> None:
        """Work until the queue is closed; the passes under way are finished first."""
        async with anyio.create_task_group() as group:
            for number in range(self._slots):
                group.start_soon(self._slot, name=f"slot-{number}")

    async def _slot(self) -> None:
        while True:
            try:
                key = await self._queue.claim()
            except QueueClosedError:
                return
            await self._work(key)

    async def _work(self, key: K) -> None:
        carried_through = False
        try:
            outcome = await self._handle(key)
            self._schedule(key, outcome)
            carried_through = True
        finally:
            if carried_through:
                self._queue.done(key)
            else:
                self._queue.give_back(key)

    def _schedule(self, key: K, outcome: Next) -> None:
        match outcome:
            case Finished():
                self._queue.succeed(key)
            case Again(after_s=after_s, progressed=progressed, priority=priority):
                if progressed:
                    self._queue.succeed(key)
                self._queue.add_after(key, after_s, priority)
            case Failed(generation=generation, at_least_s=at_least_s):
                self._queue.fail(key, generation, at_least_s)
