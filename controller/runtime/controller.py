"""The facade of the loop: one object to start, wake, ask and stop.  Layer: runtime.

`async with Controller(...)` runs the loop over tiers that the caller has entered and a store that
the caller has opened; leaving drains it.  Asking (`plan`, `explain`, `health`) writes nothing.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Never, Self

import anyio
from anyio.abc import TaskGroup

from weightctl.controller.core.identity import Identity
from weightctl.controller.core.plan import Plan
from weightctl.controller.core.policy import Policy
from weightctl.controller.core.records import Availability, RevisionLease, RevisionMetadata
from weightctl.controller.ports import Clock, Entropy, Limiter, Tier
from weightctl.controller.runtime.admission import TierLimits
from weightctl.controller.runtime.chronicle import Chronicle
from weightctl.controller.runtime.conditions import Condition, ConditionBoard, ConditionType
from weightctl.controller.runtime.dispatch import Dispatch
from weightctl.controller.runtime.drift import DriftWatch
from weightctl.controller.runtime.executor import Executor
from weightctl.controller.runtime.guard import Guard
from weightctl.controller.runtime.health import Gauges, Health
from weightctl.controller.runtime.media import Media
from weightctl.controller.runtime.observer import Observer
from weightctl.controller.runtime.pulse import Pulse
from weightctl.controller.runtime.reconciler import PassReport, Reconciler
from weightctl.controller.runtime.resync import Resync
from weightctl.controller.runtime.runner import Next, Runner
from weightctl.controller.runtime.settings import RuntimeSettings
from weightctl.controller.runtime.supervisor import Service, Supervisor, SupervisorOptions
from weightctl.controller.runtime.survey import Answer, Survey
from weightctl.controller.runtime.timer import Timer
from weightctl.controller.runtime.workqueue import Priority, WorkQueue
from weightctl.controller.store.store import WeightMetadataStore
from weightctl.controller.telemetry.metrics import LoopMetrics

METRICS_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What holds a revision now, and until when."""

    record: RevisionMetadata
    plan: Plan
    """Its `waits` say what it waits for; `until_ms` where the end is known."""
    leases: tuple[RevisionLease, ...]
    conditions: tuple[Condition, ...]
    failures: int
    """Failed passes in a row."""
    queued: bool


def _only_error(error: BaseException) -> BaseException:
    """What a group of one stands for, so that callers can name what they catch."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


class Controller:
    """The reconcile loop over one store and its tiers."""

    def __init__(
        self,
        store: WeightMetadataStore,
        tiers: Sequence[Tier],
        *,
        clock: Clock,
        entropy: Entropy,
        policy: Policy | None = None,
        settings: RuntimeSettings | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings = settings or RuntimeSettings()
        self._timer = Timer(clock)
        self._queue: WorkQueue[Identity] = WorkQueue(clock, entropy, self._timer, settings.queue)
        self._observer = Observer(tiers, clock=clock, timer=self._timer, options=settings.observer)
        self._dispatch = Dispatch(
            self._observer,
            store,
            clock=clock,
            timer=self._timer,
            options=settings.executor,
            limits=settings.tiers,
        )
        self._survey = Survey(self._observer, policy=policy or Policy(), clock=clock)
        self._board = ConditionBoard(clock, stuck_after_s=settings.stuck_after_s)
        self._chronicle = Chronicle(store)
        self._drift = DriftWatch(self._observer)
        self._reconciler = Reconciler(
            store,
            self._observer,
            self._survey,
            Executor(self._dispatch),
            clock=clock,
            settings=settings,
            drift=self._drift,
            board=self._board,
            report=self._reported,
        )
        self._guard = Guard(
            store, self._reconciler.ask, clock=clock, policy=lambda: self._survey.policy
        )
        self._resync = Resync(
            store,
            self._queue,
            self._drift,
            clock=clock,
            entropy=entropy,
            options=settings.resync,
        )
        self._pulse = Pulse(self._observer, self._resync, clock=clock, options=settings.resync)
        self._supervisor = self._supervise(entropy)
        self._watchers: dict[Identity, set[Callable[[PassReport], None]]] = {}
        self._running: dict[Identity, float] = {}
        """When each pass under way began."""
        self._tasks: TaskGroup | None = None
        self._ended = anyio.Event()
        self._media = Media(tiers, timer=self._timer, deadline_s=settings.observer.deadline_s)
        self.metrics = LoopMetrics(tuple(self._observer.tiers), self._media.names)
        self._gauges = Gauges(
            self.metrics,
            store,
            self._queue,
            dispatch=self._dispatch,
            board=self._board,
            resync=self._resync,
            clock=clock,
        )

    def _supervise(self, entropy: Entropy) -> Supervisor:
        runner = Runner(self._queue, self._timed_pass, slots=self._settings.slots)
        services = [
            Service(name="workers", run=runner.run, drains=True),
            Service(name="leases", run=self._resync.watch_leases),
            Service(name="unfinished", run=self._resync.watch_unfinished),
            Service(name="drift", run=self._resync.watch_published),
            Service(name="pulse", run=self._pulse.run),
            Service(name="guard", run=self._guard.run),
            Service(name="metrics", run=self._keep_metrics),
        ]
        options = SupervisorOptions(drain_s=self._settings.drain_s)
        return Supervisor(
            services, clock=self._clock, entropy=entropy, timer=self._timer, options=options
        )

    # --- life -------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Start.  Enter and leave in the same task."""
        known = {name: self._store.tier_epochs.get(name) for name in self._observer.tiers}
        epochs = {name: epoch for name, epoch in known.items() if epoch}
        self._observer.gate.restore(epochs)
        self._pulse.restore(epochs)
        self._chronicle.begin()
        self._unsubscribe = self._store.subscribe(self._hint)
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._timer.run)
        self._tasks.start_soon(self._run)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        """Drain and stop.  Raises what made the loop end, if it ended by itself."""
        tasks = self._tasks
        if tasks is None:
            raise RuntimeError("controller left without having been entered")
        self._unsubscribe()
        self.stop()
        if error is None:
            await self._ended.wait()
        tasks.cancel_scope.cancel()
        try:
            return await tasks.__aexit__(kind, error, trace)
        except BaseExceptionGroup as group:
            raise _only_error(group) from None

    async def _run(self) -> None:
        try:
            await self._supervisor.run(on_stop=self._queue.close)
        finally:
            self._ended.set()

    def stop(self) -> None:
        """Ask to stop: passes under way are finished within the drain time."""
        self._supervisor.stop()

    def leave(self) -> None:
        """Stop at once."""
        self._supervisor.leave()

    @property
    def ended(self) -> bool:
        """Whether the loop has ended: nothing that is recorded is carried out here any more."""
        return self._ended.is_set()

    async def run_until_stopped(self) -> None:
        """Wait until the loop has ended, for example after `stop`."""
        await self._ended.wait()

    # --- waking -----------------------------------------------------------------------------------

    def _hint(self, identity: Identity) -> None:
        """The store has published something of this revision; a converged one costs nothing.

        While a pass runs it is mostly that pass's own write, which is no new work.
        """
        self._chronicle.note(identity)
        own = self._queue.is_active(identity)
        self._queue.add(identity, Priority.CONTINUED if own else Priority.FRESH)

    def wake(self, identity: Identity) -> bool:
        """Have the revision looked at now.  False when the queue is full; the resync comes."""
        self._drift.forget(identity)
        return self._queue.add(identity)

    async def wait_converged(
        self, identity: Identity, progress: Callable[[PassReport], None] | None = None
    ) -> PassReport:
        """Wait until a pass has observed the wanted state of the record as it is now, or later.

        `progress` gets the report of each pass.  Has no end of its own: a revision that is blocked
        or lost stays so, which the reports tell.  Raises WeightError NOT_FOUND.
        """
        view = await self._store.get(identity=identity)
        at_least = view.metadata.metadata_generation
        done = anyio.Event()
        last: list[PassReport] = []

        def watch(report: PassReport) -> None:
            if progress is not None:
                progress(report)
            if report.converged and report.record.metadata_generation >= at_least:
                last[:] = [report]
                done.set()

        self._watchers.setdefault(identity, set()).add(watch)
        try:
            self.wake(identity)
            await done.wait()
        finally:
            self._watchers[identity].discard(watch)
            if not self._watchers[identity]:
                del self._watchers[identity]
        return last[0]

    async def _timed_pass(self, identity: Identity) -> Next:
        started_s = self._running[identity] = self._clock.monotonic_s()
        try:
            following = await self._reconciler.reconcile(identity)
        finally:
            del self._running[identity]
        self.metrics.pass_seconds.observe(self._clock.monotonic_s() - started_s)
        self.metrics.passes.add(1, type(following).__name__.lower())
        return following

    def _reported(self, report: PassReport) -> None:
        for outcome, count in report.tally.reasons.items():
            self.metrics.outcomes.add(count, outcome)
        self.metrics.moved_bytes.add(report.tally.moved_bytes)
        self._guard.note(report)
        for watch in tuple(self._watchers.get(report.identity, ())):
            watch(report)

    async def _keep_metrics(self) -> Never:
        while True:
            await self.refresh_metrics()
            await self._clock.sleep(METRICS_S)

    async def refresh_metrics(self) -> LoopMetrics:
        """The metrics, with every gauge as it is now."""
        await self._media.refresh()
        await self._gauges.refresh(self.health(), self._supervisor.restarts)
        return self.metrics

    # --- asking -----------------------------------------------------------------------------------

    async def plan(self, identity: Identity) -> Plan:
        """The dry run: what a pass would do now.  Raises WeightError NOT_FOUND."""
        return (await self.ask(identity)).plan

    async def ask(self, identity: Identity) -> Answer:
        """What is seen of a revision, and the dry run on it.  Raises WeightError NOT_FOUND."""
        return await self._reconciler.ask(identity)

    async def plan_all(self) -> AsyncIterator[tuple[Identity, Plan]]:
        """The dry run for every revision that is not DELETED."""
        for record in self._store.records():
            if record.availability is not Availability.DELETED:
                yield record.identity, await self.plan(record.identity)

    async def explain(self, identity: Identity) -> Explanation:
        """What holds the revision now, and until when.  Raises WeightError NOT_FOUND."""
        answer = await self.ask(identity)
        return Explanation(
            record=answer.situation.record,
            plan=answer.plan,
            leases=self._store.leases(identity=identity),
            conditions=self._board.of(identity),
            failures=self._queue.failures(identity),
            queued=identity in self._queue,
        )

    def conditions(self, identity: Identity) -> tuple[Condition, ...]:
        """What is to be said of a revision; empty when it has converged or was not looked at."""
        return self._board.of(identity)

    @property
    def bandwidths(self) -> Mapping[str, Limiter]:
        """The bandwidth of every tier, for others who move bytes beside the loop."""
        return self._dispatch.buckets

    def set_limits(self, limits: Mapping[str, TierLimits]) -> None:
        """Replace tier limits while running."""
        self._dispatch.set_limits(limits)

    def set_policy(self, policy: Policy) -> None:
        """Replace the policy while running; the next passes use it."""
        self._survey.policy = policy

    async def ask_health(self) -> Health:
        """As `health`, the tiers' media asked anew."""
        await self._media.refresh()
        return self.health()

    def health(self) -> Health:
        """Whether the loop works, and what keeps it from working well."""
        round_s = self._resync.drift_round_s
        blind, hung = self._resync.blind(), self._hung()
        problems = blind | self._supervisor.problems
        if hung:
            problems["workers"] = f"{len(hung)} passes take very long, that over {hung[0]} first"
        if not self._store.healthy:
            problems["journal"] = self._store.problem
        working = not blind and (len(hung) < self._settings.slots or self._bytes_move())
        return Health(
            ready=self._supervisor.ready and self._store.healthy and working,
            problems=problems,
            tiers=dict(self._observer.problems()),
            media=dict(self._media.reports),
            due=sum(self._queue.due_count(priority) for priority in Priority),
            delayed=self._queue.delayed_count,
            active=self._queue.active_count,
            oldest_wait_s=self._queue.oldest_wait_s(),
            stuck=self._board.count(ConditionType.STUCK),
            failing=self._board.count(ConditionType.FAILING),
            lost=self._board.count(ConditionType.LOST),
            drift_round_age_s=None if round_s is None else self._clock.monotonic_s() - round_s,
        )

    def _hung(self) -> list[Identity]:
        """The revisions whose pass has run for longer than nothing may move, longest first."""
        before_s = self._clock.monotonic_s() - self._settings.stuck_after_s
        return [of for of, began_s in self._running.items() if began_s < before_s]

    def _bytes_move(self) -> bool:
        """Whether any tier has given or taken bytes of late."""
        last_s = max(bucket.charged_s for bucket in self._dispatch.buckets.values())
        return last_s >= self._clock.monotonic_s() - self._settings.stuck_after_s
