"""One mutation at a time per revision, and none during a restore.  Layer: store.

A lock may be released by another task than the one that took it: it travels with a journal draft
and ends when the draft is settled, so a cancelled caller never frees a revision whose entry is
still on its way to disk. Waiters are served in order. For one event loop; not thread-safe.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

Waiter = asyncio.Future[None]


class KeyedLocks:
    """Locks that exist only while they are held; `close` keeps all holders out."""

    def __init__(self) -> None:
        self._held: dict[Hashable, deque[Waiter] | None] = {}
        self._closed: deque[Waiter] | None = None
        """Who waits for `reopen`; None while open."""
        self._drained: Waiter | None = None

    async def acquire(self, key: Hashable) -> None:
        """Hold `key`; without a task switch when it is free."""
        while self._closed is not None:
            await _wait_in(self._closed)
        if key not in self._held:
            self._held[key] = None
            return
        waiters = self._held[key]
        if waiters is None:
            waiters = self._held[key] = deque()
        waiter = _enqueue(waiters)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.release(key)  # it was handed over just now
            raise

    def release(self, key: Hashable) -> None:
        """Hand `key` to the next waiter, or free it."""
        if not _wake_next(self._held[key]):
            del self._held[key]
            if not self._held and self._drained is not None and not self._drained.done():
                self._drained.set_result(None)

    async def close(self) -> None:
        """Wait until no key is held, and keep every new holder out until `reopen`."""
        while self._closed is not None:
            await _wait_in(self._closed)
        self._closed = deque()
        try:
            if self._held:
                self._drained = asyncio.get_running_loop().create_future()
                await self._drained
        except BaseException:
            self.reopen()
            raise
        finally:
            self._drained = None

    def reopen(self) -> None:
        """Let holders in again."""
        waiters, self._closed = self._closed, None
        while _wake_next(waiters):
            pass


def _enqueue(waiters: deque[Waiter]) -> Waiter:
    waiter: Waiter = asyncio.get_running_loop().create_future()
    waiters.append(waiter)
    return waiter


async def _wait_in(waiters: deque[Waiter]) -> None:
    await _enqueue(waiters)


def _wake_next(waiters: deque[Waiter] | None) -> bool:
    """Wake the first waiter that still waits; False when there is none."""
    while waiters:
        waiter = waiters.popleft()
        if not waiter.done():
            waiter.set_result(None)
            return True
    return False
