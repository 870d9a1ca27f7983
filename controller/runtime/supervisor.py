"""Starts, watches and stops the loop's services.  Layer: runtime; knows nothing of the domain.

One task group, one start order, the reverse to stop.  A service that ends or raises on its own is a
fault: the process is not ready until it runs again, it is restarted with backoff, and when it keeps
failing, or an invariant broke, the process ends.  Nothing dies silently.
"""

import logging
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio

from weightctl.controller.core.backoff import Backoff
from weightctl.controller.errors import InvariantViolationError, WeightctlError
from weightctl.controller.ports import Clock, Entropy
from weightctl.controller.runtime.timer import Timer
from weightctl.controller.telemetry.logs import event

_LOG = logging.getLogger("weightctl.runtime")


class ServiceFailedError(WeightctlError):
    """A service kept failing; the process must end, so that somebody notices."""

    reason = "ServiceFailed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Something that runs until it is stopped."""

    name: str
    run: Callable[[], Awaitable[object]]
    drains: bool = False
    """Ends by itself after a request to stop; the others are cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorOptions:
    """How often a service may fail before the process ends."""

    failures_max: int = 5
    calm_s: float = 60.0
    """A service that has run for so long has recovered: its failures are forgotten."""
    drain_s: float = 20.0


def broken_invariant(error: BaseException) -> InvariantViolationError | None:
    """The broken invariant within an error or a group of errors."""
    if isinstance(error, InvariantViolationError):
        return error
    if isinstance(error, BaseExceptionGroup):
        return next((found for part in error.exceptions if (found := broken_invariant(part))), None)
    return None


class Supervisor:
    """Runs services; `problems` says what keeps the process from being ready."""

    def __init__(
        self,
        services: list[Service],
        *,
        clock: Clock,
        entropy: Entropy,
        timer: Timer,
        options: SupervisorOptions | None = None,
    ) -> None:
        self._services = services
        self._clock = clock
        self._entropy = entropy
        self._timer = timer
        self._options = options or SupervisorOptions()
        self._backoff = Backoff(base_s=0.5, max_s=30.0)
        self._scopes: dict[str, anyio.CancelScope] = {}
        self._stopping = anyio.Event()
        self._leaving = False
        self.problems: dict[str, str] = {}
        self.restarts: dict[str, int] = {service.name: 0 for service in services}

    @property
    def ready(self) -> bool:
        """Every service runs, and nobody asked to stop."""
        return not self.problems and not self._stopping.is_set()

    def stop(self) -> None:
        """Ask to stop: passes under way are finished within the drain time."""
        self._stopping.set()

    def leave(self) -> None:
        """Stop at once: everything is cancelled where it is."""
        self._leaving = True
        self._stopping.set()
        for scope in self._scopes.values():
            scope.cancel()

    async def run(self, on_stop: Callable[[], None] = lambda: None) -> None:
        """Run all services until stopped; `on_stop` lets draining services know.

        Raises InvariantViolationError or ServiceFailedError when the process must end.
        """
        async with anyio.create_task_group() as group:
            group.start_soon(self._stop_in_order, on_stop)
            for service in self._services:
                self._scopes[service.name] = anyio.CancelScope()
                group.start_soon(self._keep_running, service)

    async def _stop_in_order(self, on_stop: Callable[[], None]) -> None:
        await self._stopping.wait()
        on_stop()
        draining = [service.name for service in self._services if service.drains]
        with self._timer.deadline(self._options.drain_s):
            while not self._leaving and any(name in self._scopes for name in draining):
                await self._clock.sleep(0.05)
        for service in reversed(self._services):
            scope = self._scopes.get(service.name)
            if scope is not None:
                scope.cancel()

    async def _keep_running(self, service: Service) -> None:
        failures = 0
        with self._scopes[service.name]:
            while True:
                started_s = self._clock.monotonic_s()
                problem = await self._run_once(service)
                if self._stopping.is_set() and service.drains:
                    break
                calm = self._clock.monotonic_s() - started_s >= self._options.calm_s
                failures = 1 if calm else failures + 1
                await self._pause(service, problem, failures)
        del self._scopes[service.name]

    async def _run_once(self, service: Service) -> str:
        """Run a service until it ends; why it ended."""
        try:
            await service.run()
        except Exception as error:
            broken = broken_invariant(error)
            if broken is not None:
                self.problems[service.name] = str(broken)
                raise broken from error
            event(_LOG, logging.ERROR, "service failed", error=error, service=service.name)
            return f"{type(error).__name__}: {error}"
        return "it ended by itself"

    async def _pause(self, service: Service, problem: str, failures: int) -> None:
        self.problems[service.name] = problem
        if failures > self._options.failures_max:
            raise ServiceFailedError(
                f"service {service.name}",
                f"it failed {failures} times in a row, at last: {problem}",
                "the process ends; see the log for the cause",
            )
        await self._clock.sleep(self._backoff.delay_s(failures, self._entropy.random()))
        self.restarts[service.name] += 1
        del self.problems[service.name]


async def stop_on_signals(stop: Callable[[], None], leave: Callable[[], None]) -> None:
    """Call `stop` at the first SIGTERM or SIGINT, `leave` at each later one, until cancelled."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
        count = 0
        async for number in received:
            count += 1
            event(_LOG, logging.INFO, "signal", name=signal.Signals(number).name)
            if count == 1:
                stop()
            else:
                leave()
