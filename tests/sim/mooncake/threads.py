"""Worker threads under virtual time: one runs at a time, and only while the loop stands still.

Blocking code runs in a real thread, so that nothing of it has to be written anew, but the loop's
thread waits until it has ended or waits itself for something on the loop (`wait`). So it is a
coroutine with another stack: a run stays a function of its seed, and what hangs costs virtual time.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import anyio
from anyio.lowlevel import checkpoint

from weightctl.adapters.conformance.simulation.loop import off_loop

T = TypeVar("T")
Wanted = Callable[[], Coroutine[Any, Any, Any]]
_here = threading.local()


class AbandonedError(BaseException):
    """Raised in a thread whose caller, or whose process, is gone; nothing catches it."""


class _Thread:
    """A thread that takes one call after another; `step` gives it a turn."""

    def __init__(self) -> None:
        self._go, self._stopped = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._stopped.acquire()
        self._call: Callable[[], Any] | None = None
        self._given: tuple[Any, BaseException | None] = (None, None)
        self.wanted: Wanted | None = None
        """What it waits for; None when its call has ended."""
        self.result: Any = None
        self.error: BaseException | None = None
        self._real = threading.Thread(target=self._serve, daemon=True)
        self._real.start()

    def begin(self, call: Callable[[], Any]) -> None:
        """Run a call until it ends or waits."""
        self._call = call
        self._turn()

    def go_on(self, value: Any, error: BaseException | None) -> None:
        """Give it what it has waited for, and let it run on."""
        self._given = (value, error)
        self._turn()

    def end(self) -> None:
        """Let the idle thread end."""
        self._call = None
        self._go.release()
        self._real.join()

    def ask(self, wanted: Wanted) -> Any:
        """On the thread: wait for something on the loop."""
        self.wanted = wanted
        self._stopped.release()
        self._go.acquire()
        value, error = self._given
        self._given = (None, None)
        if error is not None:
            raise error
        return value

    def _turn(self) -> None:
        self.wanted = None
        with off_loop():
            self._go.release()
            self._stopped.acquire()

    def _serve(self) -> None:
        _here.thread = self
        while True:
            self._go.acquire()
            if self._call is None:
                return
            self.result = self.error = None
            try:
                self.result = self._call()
            except BaseException as error:  # noqa: BLE001 - handed on to who waits for it
                self.error = error
            self.wanted = None
            self._stopped.release()


def wait(wanted: Wanted) -> Any:
    """In a simulated worker thread: wait for a coroutine on the loop; what it gives or raises."""
    thread: _Thread = _here.thread
    return thread.ask(wanted)


class Threads:
    """All worker threads of one simulation."""

    def __init__(self) -> None:
        self._idle: list[_Thread] = []
        self._all: list[_Thread] = []
        self._under_way: set[asyncio.Task[Any]] = set()

    async def run(self, call: Callable[[], T], *, abandon_on_cancel: bool = False) -> T:
        """As `anyio.to_thread.run_sync`: what cannot be abandoned is waited for."""
        await checkpoint()
        context = contextvars.copy_context()
        thread = self._idle.pop() if self._idle else self._new()
        thread.begin(lambda: context.run(call))
        if thread.wanted is not None:
            driver = asyncio.get_running_loop().create_task(self._drive(thread))
            self._under_way.add(driver)
            ended = asyncio.Event()
            driver.add_done_callback(lambda _: ended.set())
            driver.add_done_callback(self._under_way.discard)
            with anyio.CancelScope(shield=not abandon_on_cancel):
                await ended.wait()
            result, error = driver.result()
        else:
            result, error = self._taken(thread)
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    async def run_sync(
        self,
        call: Callable[..., T],
        *args: Any,
        abandon_on_cancel: bool = False,
        **_: object,
    ) -> T:
        """Stands for `anyio.to_thread.run_sync`."""
        return await self.run(lambda: call(*args), abandon_on_cancel=abandon_on_cancel)

    async def close(self) -> None:
        """End all of them: what still waits is abandoned."""
        for driver in tuple(self._under_way):
            driver.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        for thread in self._all:
            with off_loop():
                thread.end()

    def _new(self) -> _Thread:
        with off_loop():
            thread = _Thread()
        self._all.append(thread)
        return thread

    async def _drive(self, thread: _Thread) -> tuple[Any, BaseException | None]:
        while thread.wanted is not None:
            value: Any = None
            failed: BaseException | None = None
            try:
                value = await thread.wanted()
            except asyncio.CancelledError:
                failed = AbandonedError()
            except Exception as error:  # noqa: BLE001 - raised in the thread
                failed = error
            thread.go_on(value, failed)
        return self._taken(thread)

    def _taken(self, thread: _Thread) -> tuple[Any, BaseException | None]:
        result, error = thread.result, thread.error
        thread.result = thread.error = None
        self._idle.append(thread)
        return result, error
