"""What holds up the loop, with the call and the line.  Layer: conformance.

Two nets: blocking calls are caught when they are made (blockbuster), also when the tier swallows
the error; and each turn of a call is measured by the processor time of its own thread, which no
load of the machine changes.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar
from unittest import mock

import blockbuster

T = TypeVar("T")

TURN_S_MAX = 0.25
"""Processor time of one turn: far above what a piece of bookkeeping takes on any machine."""
_SAMPLE_S = 0.02
_FRAMES = 3


class Watch:
    """Runs awaitables turn by turn; `held` is what held up the loop, by call."""

    def __init__(self) -> None:
        self.held: list[str] = []
        self._thread = threading.get_ident()
        self._since_s: float | None = None
        self._seen = ""
        self._over = threading.Event()

    async def call(self, name: str, work: Awaitable[T]) -> T:
        """Await it, measuring each turn."""
        return await _Turns(work, lambda turn: self._turn(name, turn))

    def _turn(self, name: str, turn: Callable[[], object]) -> object:
        self._seen = ""
        began_s = time.thread_time()
        self._since_s = began_s
        try:
            return turn()
        finally:
            self._since_s = None
            took_s = time.thread_time() - began_s
            if took_s > TURN_S_MAX:
                self.held.append(f"{name} computed for {took_s:.2f} s on the loop{self._seen}")

    def sample(self) -> None:
        """In a thread of its own: keep where a long turn is."""
        while not self._over.wait(_SAMPLE_S):
            frames = sys._current_frames()  # noqa: SLF001 - documented; the only way to them
            if self._since_s is not None and (frame := frames.get(self._thread)):
                self._seen = _place(traceback.extract_stack(frame))

    def end(self) -> None:
        """No more samples."""
        self._over.set()

    def blocked(self, function: str) -> None:
        """A blocking call was made on the loop."""
        self.held.append(f"{function} blocks{_place(traceback.extract_stack()[:-2])}")


class _Turns(Generic[T]):
    """Hands each turn of an awaitable to `run`."""

    def __init__(self, work: Awaitable[T], run: Callable[[Callable[[], object]], object]) -> None:
        self._work = work
        self._run = run

    def __await__(self) -> Generator[Any, Any, T]:
        inner = self._work.__await__()
        answer: Any = None
        error: BaseException | None = None
        while True:
            turn = _thrown(inner, error) if error is not None else _sent(inner, answer)
            try:
                wanted = self._run(turn)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            answer, error = None, None
            try:
                answer = yield wanted
            except BaseException as given:  # noqa: BLE001 - it is the inner one's
                error = given


def _sent(inner: Any, answer: object) -> Callable[[], object]:  # noqa: ANN401 - any generator
    return lambda: inner.send(answer) if answer is not None else next(inner)


def _thrown(inner: Any, error: BaseException) -> Callable[[], object]:  # noqa: ANN401 - as above
    return lambda: inner.throw(error)


def _place(stack: list[traceback.FrameSummary]) -> str:
    frames = [frame for frame in stack if "/blockbuster/" not in frame.filename]
    return "".join(
        f"\n  {frame.filename}:{frame.lineno} in {frame.name}: {frame.line}"
        for frame in frames[-_FRAMES:]
    )


@contextmanager
def watched() -> Iterator[Watch]:
    """A watch for the length of the block."""
    watch = Watch()
    sampler = threading.Thread(target=watch.sample, daemon=True)

    class Heard(blockbuster.BlockingError):
        """Tells the watch, whoever swallows it."""

        def __init__(self, function: str) -> None:
            super().__init__(function)
            watch.blocked(function)

    sampler.start()
    try:
        with (
            mock.patch("blockbuster.blockbuster.BlockingError", Heard),
            blockbuster.blockbuster_ctx() as detector,
        ):
            for function in detector.functions.values():
                function.can_block_in("<frozen importlib._bootstrap>", "_find_and_load")
                function.can_block_in("linecache.py", "updatecache")
            yield watch
    finally:
        watch.end()  # the sampler ends by itself: waiting for it would block the loop
