"""How many bytes the dfs tier holds and may still take.  Layer: a tier; on the loop.

A group is measured in a worker, one request each, and again only when its folder has changed: times
of change are coarse, so an equal one counts only when it was old already at the measurement.
Invariant: used and reserved bytes together stay within `limit_bytes` for this controller, however
many writers reserve at once; what other hosts store is seen at the next count.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

from weightctl.adapters.dfs.engine import Engine
from weightctl.controller.core.tiers import TierCapacity
from weightctl.controller.errors import CapacityError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weightctl.adapters.shared.workers import WorkerPool
    from weightctl.controller.ports import Clock

COARSE_S = 2.0
"""No file system's time of change is coarser."""


@dataclass(slots=True)
class _Measured:
    changed_ns: int
    seen_s: float
    """When this time of change was first seen, on the monotonic clock."""
    size_bytes: int = 0
    settled: bool = False
    """Whether it was measured when the change was old."""


class Accounts:
    """Accounts of one root."""

    def __init__(self, limit_bytes: int | None, clock: Clock) -> None:
        self.limit_bytes = limit_bytes
        self._clock = clock
        self._counting = anyio.Lock()
        self._measured: dict[str, _Measured] = {}
        self._stored_bytes = 0
        """Brought in since the last count."""
        self._reserved_bytes = 0

    async def capacity(self, pool: WorkerPool) -> TierCapacity:
        """Count what has changed.  Raises ReconcileError."""
        await self.count(pool)
        medium_free = await pool.call(Engine.free_bytes)
        used = self._used_bytes()
        free = max(0, medium_free - self._reserved_bytes)
        if self.limit_bytes is not None:
            free = max(0, min(free, self.limit_bytes - used))
        total = self.limit_bytes if self.limit_bytes is not None else used + free
        return TierCapacity(used_bytes=used, free_bytes=free, total_bytes=total)

    async def count(self, pool: WorkerPool) -> None:
        """Measure the groups whose folders have changed.  Raises ReconcileError."""
        async with self._counting:
            stored_before = self._stored_bytes
            measured: dict[str, _Measured] = {}
            for group, changed_ns in (await pool.call(Engine.groups)).items():
                known = self._measured.get(group)
                if known is None or known.changed_ns != changed_ns:
                    known = _Measured(changed_ns, self._clock.monotonic_s())
                if not known.settled:
                    known.settled = self._clock.monotonic_s() - known.seen_s >= COARSE_S
                    known.size_bytes = await pool.call(Engine.group_size, group)
                measured[group] = known
            self._measured = measured
            self._stored_bytes -= stored_before

    @contextmanager
    def reserved(self, size_bytes: int) -> Iterator[None]:
        """Room for one replica while it is written.  Raises CapacityError."""
        if self.limit_bytes is not None:
            free = max(0, self.limit_bytes - self._used_bytes())
            if size_bytes > free:
                raise CapacityError(
                    size_bytes,
                    free,
                    f"{size_bytes} bytes do not fit",
                    f"{free} of {self.limit_bytes} bytes are free",
                    "make room or raise capacity_bytes",
                )
        self._reserved_bytes += size_bytes
        try:
            yield
        finally:
            self._reserved_bytes -= size_bytes

    def stored(self, size_bytes: int) -> None:
        """A replica was brought in since the last count."""
        self._stored_bytes += size_bytes

    def _used_bytes(self) -> int:
        measured = sum(group.size_bytes for group in self._measured.values())
        return measured + self._stored_bytes + self._reserved_bytes
