"""Tasks that foreign code begins by itself.  Layer: runtime; knows nothing of the domain.

An event loop ends when a task of it raises SystemExit, whoever began the task.  Here one that a
plugin began fails alone instead, and its owner is told of it.  Invariant: a task of weightctl's own
is begun as ever, and a Ctrl-C still ends the process.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar, cast

from weightctl.controller.runtime.answers import shown
from weightctl.controller.runtime.holding import owner_in
from weightctl.controller.runtime.interrupts import is_ctrl_c

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator, Iterator

    from weightctl.controller.runtime.holding import Owner

T = TypeVar("T")
_log = logging.getLogger(__name__)


class EndedError(RuntimeError):
    """A task raised what would have ended the process."""


@contextmanager
def contained() -> Iterator[None]:
    """While this is entered, tasks of the running loop that owners begin fail alone."""
    loop = asyncio.get_running_loop()
    former = loop.get_task_factory()
    loop.set_task_factory(_begin)
    try:
        yield
    finally:
        loop.set_task_factory(former)


def _begin(
    loop: asyncio.AbstractEventLoop,
    coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
    **given: Any,  # noqa: ANN401 - what else there is depends on Python's version
) -> asyncio.Task[T]:
    owner = owner_in(given.get("context") or copy_context())
    return asyncio.Task(coro if owner is None else _alone(coro, owner), loop=loop, **given)


async def _alone(coro: Coroutine[Any, Any, T] | Generator[Any, None, T], owner: Owner) -> T:
    try:
        return await cast("Coroutine[Any, Any, T]", coro)  # nobody makes them of generators now
    except (SystemExit, KeyboardInterrupt) as error:
        if is_ctrl_c(error):
            raise
        told = f"a task that tier {owner.name} (plugin {owner.plugin}) began raised {shown(error)}"
        _log.error("%s", told)  # at once: perhaps nobody ever asks for the task's outcome
        raise EndedError(told) from error
