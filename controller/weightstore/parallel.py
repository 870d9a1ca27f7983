"""Tasks with one plain error: workers over many items, a step that ends.  Layer: weightstore."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import anyio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

Item = TypeVar("Item")
FINISH_S = 10.0
"""How long a cancelled caller waits for what `finished` has begun."""


async def for_each(
    items: Iterable[Item], workers: int, work: Callable[[Item], Awaitable[None]]
) -> None:
    """Run `work` for every item, at most `workers` at a time; a task per worker, none per item.

    The first error stops the other workers and is raised as it is, not inside a group.
    """
    shared = iter(items)
    failures: list[Exception] = []

    async def worker() -> None:
        try:
            for item in shared:
                await work(item)
        except Exception as error:  # noqa: BLE001 - raised again below
            failures.append(error)
            tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for _ in range(workers):
            tasks.start_soon(worker)
    if failures:
        raise failures[0]


async def finished(act: Callable[[], Awaitable[None]]) -> None:
    """Run `act` to its end although the caller is cancelled, for at most FINISH_S then.

    It has a task of its own, because a shield holds off cancel scopes alone: `asyncio.timeout` and
    `Task.cancel` cut short what the cancelled task itself awaits.
    """
    failures: list[Exception] = []
    scope = anyio.CancelScope(shield=True)
    ended = anyio.Event()

    async def run() -> None:
        with scope:
            try:
                await act()
            except Exception as error:  # noqa: BLE001 - raised again below
                failures.append(error)
        ended.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        try:
            await ended.wait()
        finally:
            with anyio.move_on_after(FINISH_S, shield=True):
                await ended.wait()
            scope.cancel()
    if failures:
        raise failures[0]
