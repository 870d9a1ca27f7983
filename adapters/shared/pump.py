"""Two things at once: moving bytes through two buffers, hops that end.  Layer: adapters.

Invariant: a buffer is drained only after it was filled, in order of the offsets, and filled again
only after it was drained; the first failure ends both sides and is raised as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import anyio
from anyio import CancelScope, to_thread

from weightctl.controller.ports import PIECE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from anyio import CapacityLimiter

    Side = Callable[[int, int, int], Coroutine[Any, Any, None]]


async def pump(size_bytes: int, fill: Side, drain: Side, *, piece_bytes: int = PIECE_BYTES) -> None:
    """Move `size_bytes` in pieces of `piece_bytes`, the last one smaller.

    `fill(slot, offset, size)` and `drain(slot, offset, size)`: slot 0 or 1, the piece's first byte
    and its length.
    """
    filled: tuple[int, int, int] | None = None
    for number, offset in enumerate(range(0, size_bytes, piece_bytes)):
        piece = (number % 2, offset, min(piece_bytes, size_bytes - offset))
        if filled is None:
            await fill(*piece)
        else:
            await _both(drain, filled, fill, piece)
        filled = piece
    if filled is not None:
        await drain(*filled)


async def _both(
    one: Side, one_piece: tuple[int, int, int], other: Side, other_piece: tuple[int, int, int]
) -> None:
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one, *one_piece)
            await other(*other_piece)
    except BaseExceptionGroup as group:
        raise_first(group)


async def whole_hop(call: Callable[[], None], limiter: CapacityLimiter) -> None:
    """Make the call in a thread and wait for its end, however the caller is cancelled meanwhile.

    A shield holds off cancel scopes alone; `asyncio.timeout` and `Task.cancel` cut short what the
    cancelled task itself awaits.  So it is awaited in a task of its own.
    """

    async def hop() -> None:
        with CancelScope(shield=True):
            await to_thread.run_sync(call, limiter=limiter)

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hop)
    except BaseExceptionGroup as group:
        raise_first(group)


def raise_first(group: BaseExceptionGroup[BaseException]) -> NoReturn:
    """Raise the first error of a task group as if it had been raised without one."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    raise error from None
