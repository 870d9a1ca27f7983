"""Cancels a task at its n-th call of a port, before or after the call took effect.

Wrap the store and the tiers; run the task; count the points that it passes.  Running it again for
every n enumerates all the places where a pass can be cut off.
"""

import asyncio
import inspect
from typing import Any

import anyio


class Cutter:
    """Counts points and cancels `task` at number `at` (counting from 1)."""

    def __init__(self) -> None:
        self.at = 0
        self.count = 0
        self.task: asyncio.Task[Any] | None = None

    async def point(self) -> None:
        self.count += 1
        if self.count == self.at and self.task is not None:
            self.task.cancel()
            await anyio.sleep_forever()


class Cut:
    """Stands for `inner` with a point before and after each asynchronous call."""

    def __init__(self, inner: Any, cutter: Cutter) -> None:
        self._inner = inner
        self._cutter = cutter

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if name in {"directory", "evidence", "tier_epochs"}:
            return Cut(value, self._cutter)
        if not inspect.iscoroutinefunction(value):
            return value

        async def cut(*args: Any, **kwargs: Any) -> Any:
            await self._cutter.point()
            result = await value(*args, **kwargs)
            await self._cutter.point()
            return result

        return cut
