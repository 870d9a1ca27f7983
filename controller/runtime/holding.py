"""Ends foreign code that holds up the event loop.  Layer: runtime; knows nothing of the domain.

Code that never gives its turn back (an endless loop, a blocking call) stops everything that the
loop drives.  A thread sees that the same turn still goes on after a set time and signals the main
thread; the handler runs there, between two instructions of what runs, and raises inside foreign
code.  Invariant: it raises only while the very turn that was seen still runs, and never inside a
frame of weightctl or of the loop, whose state must stay whole.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import traceback
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextvars import Context
    from types import FrameType

TICKS = 10
"""A turn is looked at so often before it has lasted too long; a stop of the process is one look."""
TRIES = 10
"""What goes on after so many attempts to interrupt it cannot be ended."""
SIGNAL = signal.SIGURG
"""Ignored unless somebody handles it, so one that comes too late does no harm."""
_OURS = ("weightctl.controller.", "asyncio.", "anyio.", "uvloop.")


class HeldUpError(BaseException):
    """Raised inside the code that held up the loop; no `except Exception` keeps it."""


@dataclass(eq=False, slots=True, kw_only=True)
class Owner:
    """Somebody whose code runs on the loop."""

    name: str
    plugin: str = ""
    """What names the code, and its package with the version; for people and for notes."""
    package: str = ""
    places: list[str] = field(default_factory=list)
    """Where it was interrupted, and nobody has told of it yet."""


_owner: ContextVar[Owner | None] = ContextVar("owner", default=None)
"""Also of the tasks that the code begins: they copy the context."""


def owner_in(context: Context) -> Owner | None:
    """Whose code runs there; None for weightctl's own."""
    return context.get(_owner)


class _Now:
    """What runs at this moment; written by the loop's thread, read by the one that watches."""

    __slots__ = ("inside", "turn")

    def __init__(self) -> None:
        self.turn = 0
        self.inside: Owner | None = None


_now = _Now()


class running:  # noqa: N801 - used as the context manager that it is
    """While this is entered a piece of the owner's code runs and gives nothing back: one turn."""

    __slots__ = ("_outer", "_owner", "_token")

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    def __enter__(self) -> None:
        self._token = _owner.set(self._owner)
        self._outer = _now.inside
        _now.inside = self._owner
        _now.turn += 1

    def __exit__(self, *_: object) -> None:
        _now.inside = self._outer
        _now.turn += 1
        _owner.reset(self._token)


class _Beat:
    """Counts the rounds of a loop for as long as it turns."""

    def __init__(self, loop: asyncio.AbstractEventLoop, every_s: float) -> None:
        self.count = 0
        self._loop = loop
        self._every_s = every_s
        self._next = loop.call_later(every_s, self._beat)

    def _beat(self) -> None:
        self.count += 1
        self._next = self._loop.call_later(self._every_s, self._beat)

    def end(self) -> None:
        self._next.cancel()


class Watch:
    """Watches the running loop of the main thread from a thread of its own.

    limit_s: how long one turn may last.  end: is told, in the thread that watches, whose code could
    not be interrupted and where the main thread is; it has to end the process.
    """

    def __init__(self, limit_s: float, end: Callable[[Owner, str], None]) -> None:
        self._tick_s = limit_s / TICKS
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._beat = _Beat(self._loop, self._tick_s / 2)
        self._over = threading.Event()
        self._target: tuple[object, ...] | None = None
        self._culprit: Owner | None = None
        self._thread = threading.Thread(target=self._watch, name="weightctl-watch", daemon=True)

    def __enter__(self) -> Self:
        self._former = signal.signal(SIGNAL, self._interrupt)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()  # it ends by itself: nobody has to wait for that
        self._beat.end()
        signal.signal(SIGNAL, self._former)

    def _runs(self) -> tuple[object, ...]:
        """The same for as long as one turn goes on."""
        return _now.turn, self._beat.count, asyncio.current_task(self._loop)

    def _watch(self) -> None:
        """In the thread that watches."""
        looks, last = 0, self._runs()
        while not self._over.wait(self._tick_s):
            now = self._runs()
            if now != last:
                looks, last, self._culprit = 0, now, None
                continue
            looks += 1
            owner = _now.inside or self._culprit
            if looks >= TICKS + TRIES and owner is not None:
                self._end(owner, _stack_of_main())
                return
            if looks >= TICKS:
                self._target = now
                signal.pthread_kill(_main_thread(), SIGNAL)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """In the main thread, between two instructions."""
        del number
        owner = _owner.get()
        if frame is None or owner is None or self._target != self._runs():
            return
        self._culprit = owner
        if _is_ours(frame):
            return  # it is asked again at the next look
        place = _place_of(frame)
        owner.places.append(place)
        raise HeldUpError(place)


@contextmanager
def watched(limit_s: float, end: Callable[[Owner, str], None]) -> Iterator[None]:
    """Watch the running loop; does nothing where no handler of signals can be set."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with Watch(limit_s, end):
        yield


def _is_ours(frame: FrameType) -> bool:
    return (str(frame.f_globals.get("__name__")) + ".").startswith(_OURS)


def _place_of(frame: FrameType) -> str:
    """The innermost place that is no part of Python's own library."""
    found: FrameType | None = frame
    while found is not None:
        module = str(found.f_globals.get("__name__")).partition(".")[0]
        if module not in sys.stdlib_module_names or module == "__main__":
            frame = found
            break
        found = found.f_back
    code = frame.f_code
    return f"{code.co_filename}:{frame.f_lineno} in {code.co_qualname}"


def _main_thread() -> int:
    return threading.main_thread().ident or 0


def _stack_of_main() -> str:
    frame = sys._current_frames().get(_main_thread())  # noqa: SLF001 - the only way there is
    return "".join(traceback.format_stack(frame))


def last_words(text: str, code: int) -> None:
    """End the process at once, whatever its main thread does and whatever it holds."""
    os.write(2, text.encode(errors="backslashreplace"))
    os._exit(code)
