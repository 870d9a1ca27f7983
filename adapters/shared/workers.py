"""A few worker processes for calls that may hang in the kernel.  Layer: adapters, shared.

A file or device call on a medium that has gone away ignores signals and keeps its whole process
from ending; so such calls run in worker processes, each request with a deadline, and whoever waits
gets an answer in time: the result; `UnknownOutcomeError` (sent, and no answer); `ThrottledError` or
`TransientError` (never sent, nothing was changed).  A worker that misses a deadline is killed and
left behind, not waited for; how many may be left behind is bounded.

An engine is a plain synchronous object that lives in the worker.  It is made there by
`factory(buffer, **options)`, where `buffer` is memory that the worker shares with the loop's
process: bulk bytes go through it and are never pickled.  Its methods take and return plain values
(anything that pickles) and raise `WeightctlError`; its module must import no event loop.  Each
worker has an engine of its own, so an engine must not keep in memory what another must know.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

import anyio

from weightctl.adapters.shared.worker_process import Call, WorkerProcess
from weightctl.controller.errors import ReconcileError, ThrottledError, TransientError
from weightctl.controller.ports import PIECE_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from weightctl.controller.ports import Clock

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """What runs in the workers."""

    factory: str
    """`package.module:name` of a callable `factory(buffer: memoryview, **options) -> engine`."""
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLimits:
    """Bounds of a pool; times in seconds of the monotonic clock."""

    workers: int = 3
    deadline_s: float = 30.0
    """For one request, from when it is sent; also for waiting until a worker is free."""
    start_s: float = 30.0
    """For a worker to start and make its engine, which must not touch the medium."""
    hung_max: int = 12
    """Processes that were left behind and have not ended; more are never made."""
    probe_s: float = 5.0
    """Wait before the first probe of a medium that hangs; doubles with each further one."""
    stop_s: float = 2.0
    """How long leaving the pool waits for the killed workers."""
    buffer_bytes: int = 2 * PIECE_BYTES
    """Shared memory of each worker: two pieces, so that one is filled while one is used."""


class WorkerLease:
    """One worker for the sole use of one task, with its buffer.  Made by `WorkerPool.lease`."""

    __slots__ = ("_at_end", "_deadline_s", "_worker")

    def __init__(self, worker: WorkerProcess, deadline_s: float) -> None:
        self._worker = worker
        self._deadline_s = deadline_s
        self._at_end: Call | None = None

    @property
    def buffer(self) -> memoryview:
        """The shared memory, `buffer_bytes` long.  Its content is undefined at first."""
        return self._worker.buffer

    async def call(
        self, method: Callable[Concatenate[Any, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Result of `engine.method(...)` in this worker; `method` is named by the engine's class.

        Waits for an earlier, cancelled call first.  Raises what the engine raised;
        UnknownOutcomeError when no answer came in time or the worker died meanwhile;
        TransientError when the worker had been lost before, so nothing was sent.
        """
        await self._worker.settled()
        request = (method.__name__, args, kwargs)
        answer: R = await self._worker.request(request, self._deadline_s)
        return answer

    def at_end(
        self, method: Callable[Concatenate[Any, P], Any] | None, *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """What the worker does last, however the lease ends, also when it is cancelled.

        It is sent then and not waited for; None takes it back.  For letting go of what a series of
        calls holds open in the engine.
        """
        self._at_end = None if method is None else (method.__name__, args, kwargs)

    def end(self) -> None:
        """Called by the pool."""
        if self._at_end is not None:
            self._worker.finish_with(self._at_end, self._deadline_s)


class WorkerPool:
    """At most `limits.workers` workers, started when needed.  An async context manager."""

    def __init__(
        self, name: str, engine: EngineSpec, *, clock: Clock, limits: WorkerLimits | None = None
    ) -> None:
        self.name = name
        self._engine = engine
        self._clock = clock
        self._limits = limits or WorkerLimits()
        self._workers: set[WorkerProcess] = set()
        self._idle: list[WorkerProcess] = []
        self._leased: set[WorkerProcess] = set()
        self._hung: set[WorkerProcess] = set()
        self._waiters: deque[asyncio.Future[WorkerProcess]] = deque()
        self._transfers = asyncio.Semaphore(max(1, self._limits.workers - 1))
        self._probe_at_s = 0.0
        self._all_ended: asyncio.Event | None = None
        self._open = False

    @property
    def hung(self) -> int:
        """Killed workers that have not ended yet."""
        return len(self._hung)

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the workers that take requests, for tests and people."""
        return tuple(worker.pid for worker in self._workers)

    async def __aenter__(self) -> Self:
        """Starts nothing yet: the first request starts the first worker."""
        self._open = True
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Kill every worker; ends within `stop_s` even when none of them ends."""
        self._open = False
        self._refuse_waiters(self._closed())
        for worker in tuple(self._workers):
            worker.abandon("the pool was closed")
        if self._hung:
            self._all_ended = asyncio.Event()
            with anyio.move_on_after(self._limits.stop_s, shield=True):
                await self._all_ended.wait()
        for worker in self._hung:
            worker.forget()
        self._hung.clear()

    async def call(
        self, method: Callable[Concatenate[Any, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Result of `engine.method(...)` in any free worker; see `WorkerLease.call`."""
        async with self.lease() as worker:
            return await worker.call(method, *args, **kwargs)

    @asynccontextmanager
    async def lease(
        self, *, transfer: bool = False, deadline_s: float | None = None
    ) -> AsyncIterator[WorkerLease]:
        """A worker with its buffer; `deadline_s` is for each of its requests.

        `transfer` is for work of many requests: such leases leave one worker to the short calls.
        Raises ThrottledError when no worker comes free in time.
        """
        async with self._transfers if transfer else nullcontext():
            worker = await self._take()
            self._leased.add(worker)
            lease = WorkerLease(worker, deadline_s or self._limits.deadline_s)
            try:
                yield lease
            finally:
                self._leased.discard(worker)
                lease.end()
                self._offer(worker)

    async def _take(self) -> WorkerProcess:
        if not self._open:
            raise self._closed()
        if self._idle:
            return self._idle.pop()
        self._grow()
        if not self._workers:
            raise self._throttled(f"{self.hung} workers hang in the kernel and have not ended")
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[WorkerProcess] = loop.create_future()
        self._waiters.append(waiter)
        timer = loop.call_later(self._patience_s(), self._give_up, waiter)
        try:
            return await waiter
        except BaseException:
            self._stop_waiting(waiter)
            raise
        finally:
            timer.cancel()

    def _patience_s(self) -> float:
        starting = any(not worker.ready for worker in self._workers)
        return self._limits.deadline_s + (self._limits.start_s if starting else 0.0)

    def _give_up(self, waiter: asyncio.Future[WorkerProcess]) -> None:
        if not waiter.done():
            waiter.set_exception(self._throttled("every worker is busy"))

    def _stop_waiting(self, waiter: asyncio.Future[WorkerProcess]) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        elif waiter.done() and not waiter.cancelled() and waiter.exception() is None:
            self._offer(waiter.result())  # handed over in the moment of a cancellation

    def _offer(self, worker: WorkerProcess) -> None:
        """Give a worker that nobody uses to the first who waits, or keep it."""
        if worker.gone or worker.busy or worker in self._leased:
            return
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(worker)
                return
        self._idle.append(worker)

    def _grow(self) -> None:
        """Start a worker where the bounds allow it."""
        limits = self._limits
        if len(self._workers) >= limits.workers or self.hung >= limits.hung_max:
            return
        if self.hung >= limits.workers:
            if self._clock.monotonic_s() < self._probe_at_s:
                return
            self._delay_probe()
        worker = WorkerProcess(
            self.name,
            limits.buffer_bytes,
            on_free=self._offer,
            on_gone=self._lost,
            on_reaped=self._ended,
        )
        self._workers.add(worker)
        worker.boot(self._engine.factory, self._engine.options, limits.start_s)

    def _delay_probe(self) -> None:
        wait_s = self._limits.probe_s * 2.0 ** (self.hung - self._limits.workers)
        self._probe_at_s = self._clock.monotonic_s() + wait_s

    def _lost(self, worker: WorkerProcess, why: str) -> None:
        self._workers.discard(worker)
        if worker in self._idle:
            self._idle.remove(worker)
        self._hung.add(worker)
        if self.hung >= self._limits.workers:
            self._delay_probe()
        if not self._waiters or not self._open:
            return
        if not worker.ready and not self._workers:
            self._refuse_waiters(self._no_start(why))
            return
        self._grow()
        if not self._workers:
            self._refuse_waiters(self._throttled(why))

    def _ended(self, worker: WorkerProcess) -> None:
        self._hung.discard(worker)
        if not self._hung and self._all_ended is not None:
            self._all_ended.set()

    def _refuse_waiters(self, error: ReconcileError) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_exception(error)

    def _throttled(self, why: str) -> ThrottledError:
        wait_s = max(0.0, self._probe_at_s - self._clock.monotonic_s()) or self._limits.probe_s
        return ThrottledError(
            min(wait_s, self._limits.deadline_s),  # what hangs may end at any time
            f"{self.name}: the request was not sent",
            why,
            "check that the medium answers; it is tried again by itself",
        )

    def _no_start(self, why: str) -> TransientError:
        return TransientError(
            f"{self.name}: no worker process could be started",
            why,
            "check the machine's memory and process limits; it is tried again by itself",
        )

    def _closed(self) -> TransientError:
        return TransientError(f"{self.name}: the request was not sent", "the pool is closed")
