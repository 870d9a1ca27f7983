"""A few workers over many items, with one plain error.  Layer: weightstore."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import anyio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

Item = TypeVar("Item")


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
