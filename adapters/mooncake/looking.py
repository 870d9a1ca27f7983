"""Looking at objects: every answer is of one epoch, and of a cluster of ours.  Layer: a tier; loop.

Takes no lease: over HTTP, in worker threads.  The tiers of a cluster ask for the same keys at the
same time, and share one look.  Invariants: an answer without the marker of the epoch, without the
claim of this store, or between two different healths, is no observation; nobody gets an answer to a
question that was sent before he asked, or that comes when its try has ended.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel

from weightctl.adapters.mooncake.keys import never_asked
from weightctl.adapters.mooncake.master.replicas import NEVER_THERE
from weightctl.adapters.mooncake.master.serving import threaded
from weightctl.adapters.mooncake.ownership.claim import Claim, DisownedError, WatchedError
from weightctl.adapters.mooncake.ownership.epoch import Epoch, ForgottenError
from weightctl.adapters.mooncake.ownership.place import Place
from weightctl.adapters.shared.pump import raise_first
from weightctl.controller.errors import ReconcileError, TransientError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from weightctl.adapters.mooncake.master.admin import Health
    from weightctl.adapters.mooncake.master.replicas import Entry
    from weightctl.adapters.mooncake.ownership.small import SmallObjects
    from weightctl.adapters.mooncake.site import Site

    Take = Callable[[int, Sequence[str], Mapping[str, Entry]], None]
    """`take(start, keys, entries)`: use the answer for the keys from position `start` on."""

QUERY_KEYS = 1000
LANES = 2
"""Queries of one observation at a time, each in a thread with a connection of its own: while the
Master works on one, the answer to the other is read.  More were not faster."""
_TRIES = 3
"""Looks that begin an epoch or take the cluster in between."""


class _Shared:
    """One look for all who ask for the same keys before it begins."""

    def __init__(self, keys: Sequence[str]) -> None:
        self.keys = keys
        self.takes: list[Take] = []
        self.ended = anyio.Event()
        self.answer: str | ReconcileError | None = None
        """The epoch, or why there is no answer; None when who looked has given up."""

    def take(self, start: int, keys: Sequence[str], entries: Mapping[str, Entry]) -> None:
        """Let each of them have it."""
        for take in self.takes:
            take(start, keys, entries)


class _Try:
    """One try of a look.  Its threads go on when it is given up; what they get then is nobody's."""

    def __init__(self, take: Take) -> None:
        self._take = take
        self._lock = Lock()
        self._over = False

    def take(self, start: int, keys: Sequence[str], entries: Mapping[str, Entry]) -> None:
        """Let who asked have it, unless the try is over."""
        with self._lock:
            if not self._over:
                self._take(start, keys, entries)

    def end(self) -> None:
        """Nothing is taken from now on."""
        with self._lock:
            self._over = True


class Looking:
    """The looks of one connection, from its opening on."""

    def __init__(self, site: Site, small: SmallObjects, saw: Callable[[str], None]) -> None:
        self._site = site
        self._saw = saw
        self._serving = site.serving
        self._epoch = Epoch(site, small)
        self._place = Place(site, self._epoch)
        self._claim = Claim(site, small, self._epoch)
        self._renewing = anyio.Lock()
        self._beginning: dict[int, _Shared] = {}
        """By the identity of its keys a look of which nothing was asked yet."""

    async def scan(self, keys: Sequence[str], take: Take) -> str:
        """Let `take` have the answer for every key, in worker threads; the epoch of all of them.

        Raises TransientError when there is no answer of one epoch for all keys.
        """
        look = self._beginning.get(id(keys))
        if look is not None:
            look.takes.append(take)
            await look.ended.wait()
        else:
            look = self._beginning[id(keys)] = _Shared(keys)
            look.takes.append(take)
            await self._look(look)
        match look.answer:
            case None:
                return await self.scan(keys, take)
            case ReconcileError() as error:
                raise error
            case epoch:
                return epoch

    async def _look(self, look: _Shared) -> None:
        """Let who asks at the same time come in, then look."""
        try:
            try:
                await anyio.lowlevel.checkpoint()
            finally:
                del self._beginning[id(look.keys)]
            look.answer = await self._looked(look.keys, look.take)
            self._saw(look.answer)
        except ReconcileError as error:
            look.answer = error
        finally:
            look.ended.set()

    async def _looked(self, keys: Sequence[str], take: Take) -> str:
        for _ in range(_TRIES):
            try:
                return await self._scan(keys, take)
            except DisownedError:
                continue
            except ForgottenError:
                if self._site.context.read_only:
                    raise
                self._claim.forgotten()
            with suppress(DisownedError):
                await self._begin_epoch()
        return await self._scan(keys, take)

    async def entries(self, keys: Sequence[str]) -> tuple[dict[str, Entry], str]:
        """What the Master says of some keys, and the epoch.  Raises TransientError."""
        found: dict[str, Entry] = {}

        def take(_: int, __: Sequence[str], entries: Mapping[str, Entry]) -> None:
            found.update(entries)

        epoch = await self.scan(keys, take)
        return found, epoch

    @property
    def marker(self) -> str:
        """Key of the marker of the epoch; empty before the first one."""
        return self._epoch.marker

    async def settle(self) -> None:
        """Wait until it was seen whose the cluster is.  Raises ReconcileError.

        Whoever asks only once, as before an import, gets an answer and not the reason to wait.
        """
        while True:
            try:
                await self.scan([], _nothing)
            except WatchedError as error:
                await self._site.context.clock.sleep(error.left_s)
            else:
                return

    async def make_sure(self) -> None:
        """Raise ReconcileError unless the cluster is the book's, and this store's."""
        await self._place.make_sure()
        if self._claim.is_due:
            await self._claim.take()

    async def _begin_epoch(self) -> None:
        """Put a new marker, unless another task has just done it.  Raises ReconcileError."""
        async with self._renewing:
            with suppress(ForgottenError):
                await self._scan([], _nothing)
                return
            await self._epoch.begin()

    async def _scan(self, keys: Sequence[str], take: Take) -> str:
        await self.make_sure()
        attempt = _Try(take)
        try:
            return await self._scan_in_threads(keys, attempt.take)
        finally:
            attempt.end()

    async def _scan_in_threads(self, keys: Sequence[str], take: Take) -> str:
        if len(keys) <= QUERY_KEYS:
            return await threaded(lambda: self._scan_at_once(keys, take))
        before = await self._serving.health()
        try:
            async with anyio.create_task_group() as tasks:
                for lane in range(LANES):
                    tasks.start_soon(
                        threaded, lambda lane=lane: self._scan_lane(before, keys, lane, take)
                    )
        except BaseExceptionGroup as group:
            raise_first(group)
        return self._epoch_of(before, await self._serving.health())

    def _scan_at_once(self, keys: Sequence[str], take: Take) -> str:
        before = self._serving.health_now()
        self._ask(before, keys, 0, take)
        return self._epoch_of(before, self._serving.health_now())

    def _scan_lane(self, health: Health, keys: Sequence[str], lane: int, take: Take) -> None:
        for start in range(lane * QUERY_KEYS, len(keys), LANES * QUERY_KEYS):
            self._ask(health, keys[start : start + QUERY_KEYS], start, take)

    def _ask(self, health: Health, keys: Sequence[str], start: int, take: Take) -> None:
        marker = self._epoch.marker_at(health)
        asked = [marker, *self._claim.keys, *keys]
        entries = self._serving.admin.query(health, asked)
        self._epoch.check(entries.get(marker))
        self._claim.check(entries)
        if len(entries) < len(asked):
            entries = {**entries, **dict.fromkeys(never_asked(keys), NEVER_THERE)}
        take(start, keys, entries)

    def _epoch_of(self, before: Health, after: Health) -> str:
        if before != after:
            why = f"while it was asked, {before} became {after}"
            raise TransientError(self._site.name, why, "it is asked again")
        return self._epoch.named(before)


def _nothing(_: int, __: Sequence[str], ___: Mapping[str, Entry]) -> None:
    """Only the marker and the claim are asked for."""
