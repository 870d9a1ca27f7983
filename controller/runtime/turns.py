"""Drives foreign code turn by turn.  Layer: runtime; knows nothing of the domain.

A coroutine of a plugin runs in the task of whoever awaits it, so what it does to that task it does
to us.  Driven by turns it cannot: how long each turn holds the loop is known, a cancellation that
it raises by itself is told from one that was asked for, and one that it swallows is not waited for.
"""

from __future__ import annotations

import asyncio
from asyncio import CancelledError
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from weightctl.controller.runtime.holding import running
from weightctl.controller.runtime.interrupts import is_ctrl_c

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from weightctl.controller.ports import Clock
    from weightctl.controller.runtime.holding import Owner

T = TypeVar("T")

GRACE_S = 5.0
"""How long a cancelled call may clean up before it is left where it is."""

_left: list[object] = []
"""Kept for good: to close what ignores its end would raise somewhere else."""


class SelfCancelledError(Exception):
    """The code raised a cancellation that nobody had asked for."""


class SelfEndedError(Exception):
    """The code raised what ends a process or a generator, and nobody had asked for that."""


class OverdueError(Exception):
    """It did not end within its limit; whoever asked may have been unable to cancel it."""


class Turns(Generic[T]):
    """Awaits what `begin` of `owner` gives, for at most `limit_s` from its first wait on.

    held: hears how long each turn took, in seconds.  left: hears that the work was cancelled, did
    not end within `GRACE_S` and is not driven any more.  A caller's deadline does not reach code
    that shields itself from it; the limit does.
    """

    def __init__(
        self,
        begin: Callable[[], Awaitable[T]],
        *,
        owner: Owner,
        clock: Clock,
        limit_s: float,
        held: Callable[[float], None],
        left: Callable[[], None],
    ) -> None:
        self._begin = begin
        self._owner = owner
        self._clock = clock
        self._limit_s = limit_s
        self._held = held
        self._left = left
        self._alarm: asyncio.TimerHandle | None = None
        self._rung = 0
        """Cancellations of our own that the task has not been told were over."""

    def __await__(self) -> Generator[Any, Any, T]:
        inner = _begun(self._begin)
        task = asyncio.current_task()
        given: Any = None
        thrown: BaseException | None = None
        cancelled: BaseException | None = None
        overdue = False
        try:
            while True:
                began_s = self._clock.monotonic_s()
                try:
                    with running(self._owner):
                        wanted = _turn(inner, given, thrown)
                except StopIteration as done:
                    return done.value  # type: ignore[no-any-return]
                except (CancelledError, KeyboardInterrupt, GeneratorExit) as error:
                    if overdue and isinstance(error, CancelledError):
                        raise OverdueError from error
                    _check_asked(error, task, cancelled=cancelled is not None)
                    raise
                finally:
                    self._held(self._clock.monotonic_s() - began_s)
                given, thrown = None, None
                if self._alarm is None:
                    self._arm(self._limit_s)
                try:
                    given = yield wanted
                except CancelledError as error:
                    thrown = error
                    if cancelled is None:
                        cancelled, overdue = error, self._rung > 0
                        self._arm(GRACE_S)
                    elif self._rung > overdue:
                        _left.append(inner)
                        self._left()
                        raise OverdueError if overdue else cancelled from None
                except BaseException as error:  # noqa: BLE001 - it is the inner one's to handle
                    thrown = error
        finally:
            self._calm()

    def _arm(self, after_s: float) -> None:
        """Cancel the task after a while, also where no scope reaches it."""
        task = asyncio.current_task()
        if task is None:
            return
        if self._alarm is not None:
            self._alarm.cancel()

        def ring() -> None:
            self._rung += 1
            task.cancel()

        self._alarm = asyncio.get_running_loop().call_later(after_s, ring)

    def _calm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        task = asyncio.current_task()
        while self._rung and task is not None:
            self._rung -= 1
            task.uncancel()


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _check_asked(error: BaseException, task: asyncio.Task[Any] | None, *, cancelled: bool) -> None:
    """Raises SelfCancelledError, or SelfEndedError, for an end that nobody had asked for.

    Asked for is what a signal raises, or who closes the task from outside of it.
    """
    if isinstance(error, CancelledError):
        if not cancelled and not _is_cancelled():
            raise SelfCancelledError from error
    elif not is_ctrl_c(error) and asyncio.current_task() is task:
        raise SelfEndedError(type(error).__name__) from error


def _begun(begin: Callable[[], Awaitable[T]]) -> Generator[Any, Any, T]:
    """Nothing of it runs before the first turn."""
    return (yield from begin().__await__())


def _turn(inner: Generator[Any, Any, T], given: object, thrown: BaseException | None) -> object:
    if thrown is not None:
        return inner.throw(thrown)
    return next(inner) if given is None else inner.send(given)
