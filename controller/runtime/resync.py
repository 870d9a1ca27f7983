"""Visits everything without being asked, so that no lost wake-up matters.  Layer: runtime.

Unfinished records are due often, idle published ones seldom, both spread over their interval with
jitter and below fresh work.  Expired leases are erased here.  A key that is queued already is left
alone: the earlier visit is the one that counts, and backoff is not undone.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
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

_ROUNDS_LATE = 3
_LATE_S_MIN = 60.0
"""A watcher of which no round has ended for so many intervals, or so long, sees nothing."""


class Resync:
    """The three rounds; each is a service of its own, named as the supervisor names it."""

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
        self._ended_s = dict.fromkeys(self._intervals_s(), clock.monotonic_s())
        """When the last round of each ended; at first, when it could have begun."""

    def _intervals_s(self) -> Mapping[str, float]:
        options = self._options
        return {
            "leases": options.leases_s,
            "unfinished": options.working_s,
            "drift": options.published_s,
        }

    @property
    def drift_age_s(self) -> float:
        """Seconds since a drift round ended; since the start while none has."""
        return self._clock.monotonic_s() - self._ended_s["drift"]

    def blind(self) -> dict[str, str]:
        """The watchers that run and see nothing, because no round of theirs comes to its end."""
        now_s = self._clock.monotonic_s()
        found = {}
        for name, interval_s in self._intervals_s().items():
            age_s = now_s - self._ended_s[name]
            if age_s > max(_ROUNDS_LATE * interval_s, _LATE_S_MIN):
                found[name] = f"no round has ended for {age_s:.0f} s"
        return found

    def _ended(self, name: str) -> None:
        self._ended_s[name] = self._clock.monotonic_s()

    async def watch_unfinished(self) -> Never:
        """Make every record with unfinished work due, again and again; the first time at once."""
        spread_s = 0.0
        while True:
            await self._enqueue_unfinished(spread_s)
            self._ended("unfinished")
            spread_s = self._options.working_s
            await self._clock.sleep(self._options.working_s)

    async def watch_published(self) -> Never:
        """Look for drift, round after round."""
        while True:
            started_s = self._clock.monotonic_s()
            await self.drift_round(self._options.published_s)
            self.drift_round_s = self._clock.monotonic_s()
            self._ended("drift")
            left_s = started_s + self._options.published_s - self.drift_round_s
            await self._clock.sleep(max(left_s, 1.0))

    async def watch_leases(self) -> Never:
        """Erase expired leases; whoever waited for them is woken by the store."""
        while True:
            await self._clock.sleep(self._options.leases_s)
            # Refused while the gate is closed or the journal has failed: said elsewhere.
            with suppress(WeightError):
                self.expired_leases += len(await self._store.expire_leases())
            self._ended("leases")

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

    async def look_again(self, spread_s: float) -> None:
        """Some tier may have forgotten what it held: everything is due within `spread_s`.

        What waits for its time is brought forward, parked or not; known idle revisions get a look.
        """
        for count, record in enumerate(self._store.records(), 1):
            identity = record.identity
            if record.availability is not Availability.DELETED and (
                identity in self._queue or not is_idle(record)
            ):
                delay_s = self._entropy.random() * spread_s
                self._queue.add_after(identity, delay_s, Priority.RESYNC)
            if count % self._options.chunk == 0:
                await anyio.lowlevel.checkpoint()
        await self.drift_round(spread_s)

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
