"""How the loop is doing, for people and for monitoring.  Layer: runtime.

`Health` is a picture of now; `Gauges` puts it and the state of all revisions into the metrics.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

import anyio

from weightctl.controller.core.identity import Identity
from weightctl.controller.core.records import Availability, Operation, Residency
from weightctl.controller.ports import Clock, MediumReport
from weightctl.controller.runtime.conditions import ConditionBoard, ConditionType
from weightctl.controller.runtime.dispatch import Dispatch
from weightctl.controller.runtime.resync import Resync
from weightctl.controller.runtime.workqueue import WorkQueue
from weightctl.controller.store.store import WeightMetadataStore
from weightctl.controller.telemetry.metrics import CONDITIONS, LoopMetrics

_SLICE = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Whether the loop works, and what keeps it from working well."""

    ready: bool
    problems: dict[str, str]
    """By service or component; empty when all is well."""
    tiers: dict[str, str]
    """By tier: why its last answer was none; empty text for one that answers."""
    media: Mapping[str, MediumReport]
    """By tier that reports: how its medium does, as it was told last."""
    due: int
    delayed: int
    active: int
    oldest_wait_s: float
    stuck: int
    failing: int
    lost: int
    drift_round_age_s: float | None
    """Age of the last finished drift round; None before the first."""


@dataclass(slots=True)
class _Census:
    """All revisions, counted."""

    availability: Counter[Availability]
    residency: Counter[Residency]
    operations: int = 0
    oldest_ms: int | None = None


class Gauges:
    """Refreshes the gauges of the loop's metrics."""

    def __init__(
        self,
        metrics: LoopMetrics,
        store: WeightMetadataStore,
        queue: WorkQueue[Identity],
        *,
        dispatch: Dispatch,
        board: ConditionBoard,
        resync: Resync,
        clock: Clock,
    ) -> None:
        self._metrics = metrics
        self._store = store
        self._queue = queue
        self._dispatch = dispatch
        self._board = board
        self._resync = resync
        self._clock = clock

    async def refresh(self, health: Health, restarts: Mapping[str, int]) -> None:
        """Set every gauge; counts the revisions in slices, so that the loop stays free."""
        metrics = self._metrics
        metrics.ready.set(health.ready)
        metrics.due.set(health.due)
        metrics.delayed.set(health.delayed)
        metrics.active.set(health.active)
        metrics.refused.set(self._queue.refused)
        metrics.oldest_wait.set(health.oldest_wait_s)
        metrics.drift_age.set(self._resync.drift_age_s)
        metrics.expired_leases.set(self._resync.expired_leases)
        for service, count in restarts.items():
            metrics.restarts.set(count, service)
        for tier, problem in health.tiers.items():
            metrics.tier_problem.set(bool(problem), tier)
            metrics.charged_bytes.set(self._dispatch.buckets[tier].charged_bytes, tier)
        for tier, report in health.media.items():
            for name, number in report.numbers.items():
                metrics.medium.set(number, tier, name)
        for kind in CONDITIONS:
            metrics.conditions.set(self._board.count(ConditionType(kind)), kind)
        self._show(await self._count())

    async def _count(self) -> _Census:
        census = _Census(Counter(), Counter())
        records = self._store.records()
        while part := list(islice(records, _SLICE)):
            for record in part:
                census.availability[record.availability] += 1
                census.residency[record.residency] += 1
                if record.operation is not Operation.NONE:
                    self._count_operation(census, record.identity)
            await anyio.lowlevel.checkpoint()
        return census

    def _count_operation(self, census: _Census, identity: Identity) -> None:
        operation = self._store.operation(identity=identity)
        if operation is not None:
            census.operations += 1
            started_ms = operation.started_at_ms
            census.oldest_ms = min(census.oldest_ms or started_ms, started_ms)

    def _show(self, census: _Census) -> None:
        metrics = self._metrics
        for availability in Availability:
            metrics.availability.set(census.availability[availability], availability.name)
        for residency in Residency:
            metrics.residency.set(census.residency[residency], residency.name)
        metrics.active_leases.set(self._store.live_leases())
        metrics.pending_operations.set(census.operations)
        age_ms = 0 if census.oldest_ms is None else self._clock.wall_ms() - census.oldest_ms
        metrics.oldest_operation.set(max(age_ms, 0) / 1000)
