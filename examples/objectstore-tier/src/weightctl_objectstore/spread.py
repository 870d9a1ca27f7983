"""Many small things at once, with a bound and without a task for each."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import anyio
from anyio import Semaphore

from weightctl.controller.errors import WeightctlError

T = TypeVar("T")


WORKERS_MAX = 16
"""Tasks of one call; the slots bound all calls together."""


async def spread(items: Sequence[T], act: Callable[[T], Awaitable[None]], slots: Semaphore) -> None:
    """Act on every item, with as many at once as there are slots, and no task for each item.

    The first error of the loop's taxonomy ends it and is raised.
    """
    left = iter(items)
    failed: list[WeightctlError] = []

    async def work() -> None:
        for item in left:
            if failed:
                return
            try:
                async with slots:
                    await act(item)
            except WeightctlError as error:
                failed.append(error)

    async with anyio.create_task_group() as group:
        for _ in range(min(WORKERS_MAX, len(items))):
            group.start_soon(work)
    if failed:
        raise failed[0]
