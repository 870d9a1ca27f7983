"""One worker process, seen from the loop that started it.  Layer: adapters.

Owns the process, its channel, its shared buffer and at most one request.  A request ends exactly
once: by its answer, by its deadline, or by the death of the process; whatever comes later is not
heard.  No method waits for the process: it is killed by descriptor and reaped when the kernel says
that it has ended, which for a process that hangs in the kernel may be never.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import pickle
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any, cast

from weightctl.adapters.shared.worker_main import (
    ANSWER_ERROR,
    ANSWER_VALUE,
    FRAME,
    FRAME_BYTES_MAX,
    PackedError,
    pack_frame,
    unpack_error,
)
from weightctl.controller.errors import TransientError, UnknownOutcomeError, require

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_BOOT = "from weightctl.adapters.shared.worker_main import main; main()"
_DIED = "the worker process died"
_RECEIVE_BYTES = 256 * 1024
Call = tuple[str, tuple[Any, ...], dict[str, Any]]
"""Method of the engine, positional and keyword arguments."""
_unreaped: set[int] = set()
"""Children that still hung when their pool closed; tried again whenever a worker starts."""


class WorkerProcess:
    """A running worker.  `on_free` is called when it may take a request, `on_gone` once when it
    can take no more, `on_reaped` once when the kernel has let the process go.
    """

    def __init__(
        self,
        name: str,
        buffer_bytes: int,
        *,
        on_free: Callable[[WorkerProcess], None],
        on_gone: Callable[[WorkerProcess, str], None],
        on_reaped: Callable[[WorkerProcess], None],
    ) -> None:
        self.name = name
        self.ready = False
        self.gone = False
        self._on_free, self._on_gone, self._on_reaped = on_free, on_gone, on_reaped
        self._loop = asyncio.get_running_loop()
        self._number = -1
        self._answer: asyncio.Future[Any] | None = None
        self._last: tuple[Call, float] | None = None
        self._settling: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._received = bytearray()
        self._unsent: bytes | memoryview = b""
        self.pid, self._pidfd, self._channel, self.buffer = _start(name, buffer_bytes)
        self._loop.add_reader(self._channel.fileno(), self._receive)
        self._loop.add_reader(self._pidfd, self._ended)

    @property
    def busy(self) -> bool:
        """Whether a request has neither an answer nor an end."""
        return self._answer is not None

    def boot(self, factory: str, options: Mapping[str, object], deadline_s: float) -> None:
        """Have the engine made; the worker is ready, or gone, before the deadline."""
        future = self._send((factory, dict(options)), "start its engine", deadline_s)
        future.add_done_callback(self._booted)

    def request(self, call: Call, deadline_s: float) -> asyncio.Future[Any]:
        """A future of the engine's answer.  Cancelling it forgets the answer, while the worker
        stays busy until there is one or the deadline has passed.
        """
        require(self.ready and not self.busy, f"worker {self.name} is given a second request")
        if self.gone:
            raise TransientError(f"{self.name}: `{call[0]}` was not sent", "its worker was lost")
        return self._send(call, call[0], deadline_s)

    def finish_with(self, call: Call, deadline_s: float) -> None:
        """Have a last call done before the worker is free again, now or after the present one.

        Nobody hears its answer.
        """
        if self.gone:
            return
        if self.busy:
            self._last = (call, deadline_s)
        else:
            self._send(call, call[0], deadline_s)

    async def settled(self) -> None:
        """Wait until it is not busy; no longer than the deadline of what keeps it so."""
        if self._answer is not None:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._settling.append(waiter)
            await waiter

    def abandon(self, why: str) -> None:
        """Kill it and forget it, without waiting; its request, if any, ends as unknown."""
        if self.gone:
            return
        self.gone = True
        self._loop.remove_reader(self._channel.fileno())
        self._loop.remove_writer(self._channel.fileno())
        self._channel.close()
        self._kill()
        self._finish(error=_unknown(self.name, why))
        self._on_gone(self, why)

    def forget(self) -> None:
        """Stop watching a process that would not end; called when the pool closes."""
        if self._pidfd >= 0:
            self._release_pidfd()
            _unreaped.add(self.pid)

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def _send(self, content: object, what: str, deadline_s: float) -> asyncio.Future[Any]:
        self._number += 1
        future: asyncio.Future[Any] = self._loop.create_future()
        self._answer = future
        self._timer = self._loop.call_later(
            deadline_s, self.abandon, f"{what} did not end within {deadline_s:g} s"
        )
        self._unsent = pack_frame(self._number, content)
        self._transmit()
        return future

    def _transmit(self) -> None:
        try:
            sent = self._channel.send(self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.abandon(_DIED)
            return
        self._unsent = memoryview(self._unsent)[sent:]
        if self._unsent:
            self._loop.add_writer(self._channel.fileno(), self._transmit)
        else:
            self._loop.remove_writer(self._channel.fileno())

    def _receive(self) -> None:
        try:
            data = self._channel.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            self.abandon(_DIED)
            return
        if not data:
            self.abandon(_DIED)
            return
        self._received += data
        while not self.gone and len(self._received) >= FRAME.size:
            size, number = FRAME.unpack_from(self._received)
            if size > FRAME_BYTES_MAX:
                self.abandon(f"its answer of {size} bytes is not believable")
                return
            if len(self._received) < FRAME.size + size:
                return
            body = bytes(memoryview(self._received)[FRAME.size : FRAME.size + size])
            del self._received[: FRAME.size + size]
            if number == self._number:
                self._answered(*pickle.loads(body))  # noqa: S301 - from our own child

    def _answered(self, kind: int, content: object) -> None:
        if not self.busy:
            return  # the same answer once more
        if kind == ANSWER_VALUE:
            self._finish(value=content)
        elif kind == ANSWER_ERROR:
            self._finish(error=unpack_error(cast("PackedError", content)))
        else:
            self._finish(error=_unknown(self.name, f"an error that was not translated: {content}"))
        last, self._last = self._last, None
        if last is not None:
            self.finish_with(*last)
        elif self.ready:
            self._on_free(self)

    def _booted(self, future: asyncio.Future[Any]) -> None:
        error = None if future.cancelled() else future.exception()
        if self.gone:
            return
        if error is not None:
            self.abandon(f"the engine did not start: {' '.join(str(error).split())}")
            return
        self.ready = True
        self._on_free(self)

    def _finish(self, *, value: object = None, error: Exception | None = None) -> None:
        future, self._answer = self._answer, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for waiter in self._settling:
            if not waiter.done():
                waiter.set_result(None)
        self._settling.clear()
        if future is None or future.done():
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)
            future.exception()  # a caller that went away leaves nobody to look at it

    def _ended(self) -> None:
        if not self.gone:
            self._receive()  # an answer may have been sent just before the end
            self.abandon(_DIED)
        _reap(self.pid)
        self._release_pidfd()
        self._on_reaped(self)

    def _release_pidfd(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._pidfd = -1


def _start(name: str, buffer_bytes: int) -> tuple[int, int, socket.socket, memoryview]:
    """Start the process; its parts are (pid, pidfd, channel, shared buffer).

    Called on the loop, for well under a millisecond: the kernel's signal at a parent's death
    follows the thread that started the child, so no passing helper thread may do it.
    """
    for pid in tuple(_unreaped):
        _reap(pid)
    ours, theirs = socket.socketpair()
    memory = os.memfd_create(f"weightctl-{name}")
    try:
        with os.fdopen(memory, "r+b", closefd=False) as file:
            file.truncate(buffer_bytes)
        buffer = memoryview(mmap.mmap(memory, buffer_bytes))
        numbers = [str(number) for number in (os.getpid(), theirs.fileno(), memory)]
        import_path = os.pathsep.join(folder or "." for folder in sys.path)
        quiet = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
        # `-S` leaves out the search for site-packages: the import path is handed over as it is.
        # Duplicating a descriptor onto itself only takes its close-on-exec mark away.
        kept = [(os.POSIX_SPAWN_DUP2, fd, fd) for fd in (theirs.fileno(), memory)]
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-S", "-P", "-c", _BOOT, *numbers, name],
            {**os.environ, "PYTHONPATH": import_path},
            file_actions=[*quiet, *kept],
            setsid=True,
        )
        pidfd = os.pidfd_open(pid)
    except OSError as error:
        ours.close()
        raise TransientError(
            f"worker {name} cannot be started", str(error), "it is tried again by itself"
        ) from error
    finally:
        theirs.close()
        os.close(memory)
    ours.settimeout(0.0)
    return pid, pidfd, ours, buffer


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        if os.waitpid(pid, os.WNOHANG) == (0, 0):
            _unreaped.add(pid)
            return
    _unreaped.discard(pid)


def _unknown(name: str, why: str) -> UnknownOutcomeError:
    return UnknownOutcomeError(
        f"worker {name} gave no answer", why, "what it was doing is observed again before a retry"
    )
