"""What a simulated process has in the place of threads, worker processes, sockets and the clock.

Nothing of the product knows of it: names that it imports are exchanged for the length of a run, at
its borders to the machine only.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import anyio
from anyio import to_thread

from tests.sim.mooncake.threads import AbandonedError, Threads, wait
from weightctl.adapters.mooncake.client.engine import Engine
from weightctl.controller.errors import TransientError, UnknownOutcomeError, WeightctlError

if TYPE_CHECKING:
    from tests.sim.mooncake.process import MooncakeProcess

BUFFER_BYTES = 8192
START_S = 0.3
"""A worker process needs so long to start."""
LIBRARY = "tests.sim.mooncake.library"
PROCESS: ContextVar["MooncakeProcess | None"] = ContextVar("PROCESS", default=None)


def here() -> "MooncakeProcess":
    """The simulated process whose code runs now.  Raises AbandonedError when it is dead."""
    process = PROCESS.get()
    if process is None or not process.alive:
        raise AbandonedError
    return process


class SimLine:
    """Stands for `master.asking.Line`."""

    def __init__(self, address: str, deadline_s: float, clock: object) -> None:
        del clock
        self._address, self._deadline_s = address, deadline_s

    def ask(
        self,
        method: str,
        path: str,
        bytes_max: int,
        *,
        body: str | bytes | None = None,
        headers: Mapping[str, str] | None = None,
        feed: Callable[[bytes], None] | None = None,
        within_s: float | None = None,
    ) -> tuple[int, bytes]:
        del method, headers
        deadline_s = self._deadline_s if within_s is None else within_s
        process = here()
        raw = body.encode() if isinstance(body, str) else body or b""
        status, answer = wait(
            lambda: process.moon.network.http(process.act(), self._address, path, raw, deadline_s)
        )
        if feed is not None and status == 200:
            feed(answer)
            return status, b""
        return status, answer[: bytes_max + 1]

    def is_stale(self) -> bool:
        return False

    def close(self) -> None:
        """There is nothing to close."""


class _Answer:
    def __init__(self, status: int, body: bytes) -> None:
        self.status, self._body = status, body

    def read(self, bytes_max: int) -> bytes:
        return self._body[:bytes_max]


class SimHTTPConnection:
    """Stands for `http.client.HTTPConnection`."""

    def __init__(self, host: str, port: int, timeout: float) -> None:
        self._line = SimLine(f"{host}:{port}", timeout, None)
        self._answer = (0, b"")

    def request(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> None:
        self._answer = self._line.ask(method, path, 1 << 24, body=body, headers=headers)

    def getresponse(self) -> _Answer:
        return _Answer(*self._answer)

    def close(self) -> None:
        """There is nothing to close."""


class SimWorker:
    """Stands for `shared.worker_process.WorkerProcess`: an engine in a simulated worker."""

    def __init__(
        self,
        name: str,
        buffer_bytes: int,
        *,
        on_free: Callable[["SimWorker"], None],
        on_gone: Callable[["SimWorker", str], None],
        on_reaped: Callable[["SimWorker"], None],
    ) -> None:
        del buffer_bytes
        self.name, self.pid = name, 0
        self.ready = self.gone = False
        self.buffer = memoryview(bytearray(BUFFER_BYTES))
        self._on_free, self._on_gone, self._on_reaped = on_free, on_gone, on_reaped
        self._process = here()
        self._engine: Engine | None = None
        self._answer: asyncio.Future[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._settling: list[asyncio.Future[None]] = []
        self._last: tuple[Any, float] | None = None
        self._process.workers.append(self)

    @property
    def busy(self) -> bool:
        return self._answer is not None

    def boot(self, factory: str, options: Mapping[str, Any], deadline_s: float) -> None:
        del factory, deadline_s
        self._engine = Engine(self.buffer, library=LIBRARY, setup=options["setup"])
        asyncio.get_running_loop().call_later(START_S, self._booted)

    def _booted(self) -> None:
        if not self.gone:
            self.ready = True
            self._on_free(self)

    def request(self, call: Any, deadline_s: float) -> "asyncio.Future[Any]":
        assert self.ready
        assert not self.busy
        if self.gone:
            raise TransientError(f"{self.name}: `{call[0]}` was not sent", "its worker was lost")
        loop = asyncio.get_running_loop()
        self._answer = future = loop.create_future()
        self._timer = loop.call_later(deadline_s, self.abandon, f"{call[0]}: too late")
        self._task = loop.create_task(self._work(call))
        return future

    def finish_with(self, call: Any, deadline_s: float) -> None:
        if self.gone:
            return
        if self.busy:
            self._last = (call, deadline_s)
        else:
            self.request(call, deadline_s)

    async def settled(self) -> None:
        if self._answer is not None:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._settling.append(waiter)
            await waiter

    async def _work(self, call: Any) -> None:
        method, args, kwargs = call
        value, failed = None, None
        try:
            run = getattr(self._engine, method)
            value = await self._process.moon.threads.run(
                lambda: run(*args, **kwargs), abandon_on_cancel=True
            )
        except WeightctlError as error:
            failed = error
        except Exception as error:  # noqa: BLE001 - as a worker that dies of it
            failed = UnknownOutcomeError(self.name, f"an error that was not translated: {error!r}")
        except AbandonedError:
            failed = UnknownOutcomeError(self.name, "the worker process died")
        if self.gone:
            return
        self._finish(value, failed)
        last, self._last = self._last, None
        if last is not None:
            self.finish_with(*last)
        else:
            self._on_free(self)

    def _finish(self, value: object, failed: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        future, self._answer = self._answer, None
        if future is not None and not future.done():
            if failed is None:
                future.set_result(value)
            else:
                future.set_exception(failed)
        settling, self._settling = self._settling, []
        for waiter in settling:
            if not waiter.done():
                waiter.set_result(None)

    def abandon(self, why: str) -> None:
        if self.gone:
            return
        self.gone = True
        if self._task is not None:
            self._task.cancel()
        self._finish(None, UnknownOutcomeError(f"{self.name}: no answer", why))
        self._process.worker_gone(self._engine)
        self._on_gone(self, why)
        self._on_reaped(self)

    def forget(self) -> None:
        """It is not watched any more."""


class _Stream:
    async def aclose(self) -> None:
        """A connection that was only tried."""


async def connect_tcp(host: str, port: int) -> _Stream:
    """Stands for `anyio.connect_tcp`."""
    await here().moon.network.connect(f"{host}:{port}")
    return _Stream()


@contextmanager
def machine(threads: Threads) -> Iterator[None]:
    """The simulated machine instead of the real one."""
    places: dict[str, dict[str, Any]] = {
        "weightctl.adapters.mooncake.master.admin": {"Line": SimLine},
        "weightctl.adapters.mooncake.master.election": {"Line": SimLine},
        "weightctl.adapters.mooncake.parking.drain": {"HTTPConnection": SimHTTPConnection},
        "weightctl.adapters.shared.workers": {"WorkerProcess": SimWorker},
    }
    with ExitStack() as stack:
        for module, names in places.items():
            stack.enter_context(patch.multiple(import_module(module), **names))
        stack.enter_context(patch.object(to_thread, "run_sync", threads.run_sync))
        stack.enter_context(patch.object(anyio, "connect_tcp", connect_tcp))
        stack.enter_context(patch.dict("os.environ"))
        yield
