"""Visits everything without being asked, so that no lost wake-up matters.  Layer: runtime.

Unfinished records are due often, idle published ones seldom, both spread over their interval with
jitter and below fresh work.  Expired leases are erased here.  A key that is queued already is left
alone: the earlier visit is the one that counts, and backoff is not undone.
"""

from collections.abc import Iterator
from typing import Never

import anyio

from weightctl.controller.core.identity import Identity
from weightctl.controller.core.records import Availability, RevisionMetadata
from weightctl.controller.errors import WeightError
from weightctl.controller.ports import Clock, Entropy
from weightctl.controller.runtime.drift import DriftWatch, is_idle
from weightctl.controller.runtime.settings import ResyncOptions
from weightctl.controller.runtime.workqueue import Priority, WorkQueue
from weightctl.controller.store.store import WeightMetadataStore


class Resync:
    """The three rounds; each is a service of its own."""

    def __init__(
        self,
        store: WeightMetadataStore,
        queue: WorkQueue[Identity],
        drift: DriftWatch,
        *,
        clock: Clock,
        entropy: Entropy,
        options: ResyncOptions,
    ) -> None:
        self._store = store
        self._queue = queue
        self._drift = drift
        self._clock = clock
        self._entropy = entropy
        self._options = options
        self.drift_round_s: float | None = None
        """Monotonic time at which the last drift round ended: how fresh the picture is."""
        self.expired_leases = 0

    async def watch_unfinished(self) -> Never:
        """Make every record with unfinished work due, again and again; the first time at once."""
        spread_s = 0.0
        while True:
            await self._enqueue_unfinished(spread_s)
            spread_s = self._options.working_s
            await self._clock.sleep(self._options.working_s)

    async def watch_published(self) -> Never:
        """Look for drift, round after round."""
        while True:
            started_s = self._clock.monotonic_s()
            await self.drift_round(self._options.published_s)
            self.drift_round_s = self._clock.monotonic_s()
            left_s = started_s + self._options.published_s - self.drift_round_s
            await self._clock.sleep(max(left_s, 1.0))

    async def watch_leases(self) -> Never:
        """Erase expired leases; whoever waited for them is woken by the store."""
        while True:
            await self._clock.sleep(self._options.leases_s)
            try:
                self.expired_leases += len(await self._store.expire_leases())
            except WeightError:
                continue  # the gate is closed or the journal failed: said elsewhere, tried again

    async def drift_round(self, spread_s: float) -> None:
        """One visit to every idle published revision.

        Those never seen converged get a whole pass, spread over `spread_s`; the others a look.
        Where a copy is known to be damaged the pass comes at once: what a reader found while no
        loop ran is not recorded in the summary yet.
        """
        for records in self._slices():
            unknown = self._drift.unknown(records)
            for record in unknown:
                if record.identity not in self._queue:
                    damaged = self._store.damage.rows(record.manifest.payload_group_id)
                    delay_s = 0.0 if damaged else self._entropy.random() * spread_s
                    self._queue.add_after(record.identity, delay_s, Priority.RESYNC)
            new = {record.identity for record in unknown}
            known = [record for record in records if record.identity not in new]
            group_ids = [record.manifest.payload_group_id for record in known]
            groups = await self._store.directory.members_of(group_ids)
            for identity in await self._drift.changed(known, groups):
                self._drift.forget(identity)
                self._queue.add(identity, Priority.RESYNC)
            await self._clock.sleep(self._options.pause_s)

    def _slices(self) -> Iterator[list[RevisionMetadata]]:
        """Idle records that are not queued anyway, in slices."""
        part: list[RevisionMetadata] = []
        for record in self._store.records():
            if is_idle(record) and record.identity not in self._queue:
                part.append(record)
                if len(part) >= self._options.chunk:
                    yield part
                    part = []
        if part:
            yield part

    async def _enqueue_unfinished(self, spread_s: float) -> None:
        for count, record in enumerate(self._store.records(), 1):
            identity = record.identity
            finished = record.availability is Availability.DELETED or is_idle(record)
            if not finished and identity not in self._queue:
                delay_s = self._entropy.random() * spread_s
                self._queue.add_after(identity, delay_s, Priority.RESYNC)
            if count % self._options.chunk == 0:
                await anyio.lowlevel.checkpoint()
