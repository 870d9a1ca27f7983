"""One connection to a Mooncake cluster, shared by its tiers.  Layer: a tier; on the loop.

Owns the look at the Master, the worker processes with the clients, the book, and the epoch.  The
epoch is proven by every single answer: a marker object of one byte, hard-pinned and in memory only
as long as the Master remembers, is asked for together with the keys.  Invariant: an answer without
the marker, or between two different healths, is no observation.
"""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakValueDictionary

import anyio
from anyio import to_thread

from weightctl.adapters.mooncake.client.codes import Meaning, meaning_of
from weightctl.adapters.mooncake.client.engine import Engine
from weightctl.adapters.mooncake.master.election import admin_of
from weightctl.adapters.mooncake.master.replicas import MEMORY, in_memory, is_there, state_of
from weightctl.adapters.mooncake.ownership.book import Book
from weightctl.adapters.mooncake.ownership.claim import Claim, DisownedError, WatchedError
from weightctl.adapters.mooncake.ownership.place import make_sure_of_place
from weightctl.adapters.mooncake.ownership.small import SmallObjects
from weightctl.adapters.mooncake.proof.reads import Reads
from weightctl.adapters.mooncake.standing import CountedWorker, Standing
from weightctl.adapters.shared.pump import raise_first
from weightctl.adapters.shared.workers import EngineSpec, WorkerLimits, WorkerPool
from weightctl.controller.core.observation import MemberState
from weightctl.controller.errors import ConfigError, ReconcileError, TransientError
from weightctl.controller.ports import NOT_SET_UP, SET_UP_BY_USE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from weightctl.adapters.mooncake.master.admin import Health, Segment
    from weightctl.adapters.mooncake.master.replicas import Entry, ReplicaKind
    from weightctl.adapters.mooncake.options import ConnectionOptions
    from weightctl.adapters.mooncake.parking.lot import Lot
    from weightctl.controller.ports import MediumReport, TierContext

    Take = Callable[[int, Sequence[str], Mapping[str, Entry]], None]
    """`take(start, keys, entries)`: use the answer for the keys from position `start` on."""

T = TypeVar("T")

QUERY_KEYS = 1000
LANES = 2
"""Queries of one observation at a time, each in a thread with a connection of its own: while the
Master works on one, the answer to the other is read.  More were not faster."""
READERS = 2
MARKER_PREFIX = "weightctl-epoch/"
_LOCAL_BUFFER_BYTES = 32 * 1024 * 1024
_REVOKE_S = 5.0
_REPORT_S = 2.0
_PASSING = frozenset({"GRACEFULLY_UNMOUNTING", "UNMOUNTING"})
_PASSING_S = 2.0
"""How long it is not asked again which segments are being unmounted."""
_TRIES = 3
"""Looks that begin an epoch or take the cluster in between."""


class ForgottenError(TransientError):
    """The Master does not know the marker: it may have forgotten everything."""


class Connection:
    """Everything that the tiers of one cluster share.  Enter it once for each tier."""

    def __init__(self, options: ConnectionOptions, context: TierContext) -> None:
        self.options = options
        self.context = context
        self.admin = admin_of(options, context.clock)
        self.standing = Standing(context.clock)
        path = Path(context.state_dir) / "tiers" / f"{options.cluster}.mooncake.sqlite"
        self.book = Book(path, read_only=context.read_only)
        self.reading: Counter[str] = Counter()
        """Keys that are open for reading in this process."""
        self.putting: dict[str, anyio.Event] = {}
        """Keys that are being put in this process; set when that has ended."""
        self.sole: dict[str, str] = {}
        """By key the disk that was seen to hold the only copy, until it is known to be right."""
        self.parking = anyio.Lock()
        self.lot: Lot | None = None
        """The passing segment of ours that has not gone yet."""
        self._passing: frozenset[str] = frozenset()
        self._passing_until_s = 0.0
        self._hosts: tuple[str, ...] = ()
        """Segments that take new objects, without the lot's."""
        self.reads = Reads(context.clock, options.lease_ttl_s, options.verify_bytes_per_s)
        self.small = SmallObjects(self)
        self._unrevoked: set[str] = set()
        """Keys whose put was begun and could not be taken back yet."""
        self._renewing = anyio.Lock()
        self._entering = anyio.Lock()
        self._claim = Claim(self)
        self._entered = 0
        self._turn = 0
        self._view = ""
        self._shown = ""
        self._placed = False
        """Whether the Master was seen to be the book's."""
        self._stack = AsyncExitStack()
        self._owner: WorkerPool
        self._readers: WorkerPool

    # --- life ---

    @property
    def in_use(self) -> bool:
        """Whether a tier has entered it and not left."""
        return self._entered > 0

    async def enter(self) -> None:
        """Open the book; the clients start when they are first needed."""
        async with self._entering:
            if self._entered == 0:
                await self._open()
            self._entered += 1

    async def _open(self) -> None:
        self._claim, self._shown, self._placed = Claim(self), "", False
        async with AsyncExitStack() as stack:
            await to_thread.run_sync(self.book.open)
            stack.push_async_callback(to_thread.run_sync, self.book.close)
            self.admin.open()
            stack.callback(self.admin.close)
            # What a client put, only the same client can drop: one owner, never killed lightly.
            self._owner = await stack.enter_async_context(self.pool("owner", 1))
            self._readers = await stack.enter_async_context(self.pool("reader", READERS))
            if self.options.adopt:
                with suppress(ReconcileError):  # a Master that is away is asked again
                    await self._is_ours()
            self._stack = stack.pop_all()

    async def leave(self) -> None:
        """End the clients when the last tier leaves."""
        self._entered -= 1
        if self._entered == 0:
            if self.lot is not None:
                await self.lot.close()
            await self._stack.aclose()

    def pool(self, role: str, workers: int) -> WorkerPool:
        """Clients of their own, not entered yet; none has a segment."""
        options = self.options
        setup = {
            "local_hostname": options.hostname,
            "metadata_server": options.metadata,
            "global_segment_size": 0,
            "local_buffer_size": _LOCAL_BUFFER_BYTES,
            "protocol": options.protocol,
            "rdma_devices": options.devices,
            "master_server_addr": options.master,
        }
        return WorkerPool(
            f"{options.cluster}-{role}",
            EngineSpec(
                factory="weightctl.adapters.mooncake.client.engine:Engine",
                options={"library": options.library, "setup": setup},
            ),
            clock=self.context.clock,
            limits=WorkerLimits(workers=workers, deadline_s=options.transfer_s),
        )

    # --- clients ---

    @asynccontextmanager
    async def owner(self) -> AsyncIterator[tuple[CountedWorker, str]]:
        """The client that puts and drops, and the name under which it owns what it puts."""
        async with self.client_of(self._owner) as client:
            yield client

    @asynccontextmanager
    async def reader(self) -> AsyncIterator[CountedWorker]:
        """A client that reads.  It may be killed at any time."""
        async with self.client_of(self._readers) as (worker, _):
            yield worker

    @asynccontextmanager
    async def client_of(self, pool: WorkerPool) -> AsyncIterator[tuple[CountedWorker, str]]:
        """A client of a pool, set up, and its name.  Raises ReconcileError."""
        # Without a Master a client blocks for long.
        self._view = (await self.health()).view
        async with pool.lease() as leased:
            worker = CountedWorker(leased, self.standing)
            environment = {
                "MC_RPC_TIMEOUT_MS": str(int(self.options.deadline_s * 1000)),
                "MC_STORE_CLUSTER_ID": self.options.cluster,
                "GLOG_minloglevel": "2",
            }
            fresh = self.context.entropy.token(8)
            token = await worker.call(Engine.connect, fresh, environment)
            yield worker, token

    def owner_name(self, token: str) -> str:
        """What a row's `owner` is for objects put now; another one in another epoch or view.

        Whether a Master that took over knows who has put an object is not certain.
        """
        return f"{token}@{self.book.epoch}:{self._view}"

    def next_segment(self) -> str:
        """The segment that the next object is put on; empty for any.

        Beside a lot a host is named: what is put onto the lot is never offloaded.
        """
        segments = self.options.segments or (self._hosts if self.lot is not None else ())
        if not segments:
            return ""
        self._turn += 1
        return segments[self._turn % len(segments)]

    # --- looking ---

    def remark(self) -> str:
        """What was asked of the Master by this process, and that none of it kept anything alive."""
        asked = ", ".join(f"{count} x {path}" for path, count in self.admin.asked.items() if count)
        count = self.reads.count
        reads = f"{count} reads of objects took one" if count else "no object was read"
        told = (
            f"cluster {self.options.cluster} was looked at by GET {asked or 'nothing'}: none of"
            f" these takes a Mooncake lease or promotes; {reads}"
        )
        if self.book.strange:
            told += (
                f"; {self.book.strange} objects were there before weightctl knew them and may not"
                " be hard-pinned: the Master may evict them from memory, which is noticed, and they"
                " stay readable as long as a host has them on its disk"
            )
        return told

    async def scan(self, keys: Sequence[str], take: Take) -> str:
        """Let `take` have the answer for every key, in worker threads; the epoch of all of them.

        Raises TransientError when there is no answer of one epoch for all keys.
        """
        for _ in range(_TRIES):
            try:
                return await self._scan(keys, take)
            except DisownedError:
                continue
            except ForgottenError:
                if self.context.read_only:
                    raise
                self._claim.forgotten()
            with suppress(DisownedError):
                await self._begin_epoch()
        return await self._scan(keys, take)

    async def settle(self) -> None:
        """Wait until it was seen whose the cluster is.  Raises ReconcileError.

        Whoever asks only once, as before an import, gets an answer and not the reason to wait.
        """
        while True:
            try:
                await self.scan([], lambda *_: None)
            except WatchedError as error:
                await self.context.clock.sleep(error.left_s)
            else:
                return

    async def entries(self, keys: Sequence[str]) -> tuple[dict[str, Entry], str]:
        """What the Master says of some keys, and the epoch.  Raises TransientError."""
        found: dict[str, Entry] = {}

        def take(_: int, __: Sequence[str], entries: Mapping[str, Entry]) -> None:
            found.update(entries)

        epoch = await self.scan(keys, take)
        return found, epoch

    async def segments(self) -> list[Segment]:
        """The memory segments.  Raises TransientError."""

        def ask() -> list[Segment]:
            return self.admin.segments(self._health())

        found = await self._threaded(ask)
        self._passing = frozenset(one.endpoint for one in found if one.status in _PASSING)
        ours = self.lot.endpoint if self.lot is not None else ""
        ok = [one for one in found if one.status == "OK" and one.endpoint != ours]
        self._hosts = tuple(one.name for one in ok)
        self._passing_until_s = self.context.clock.monotonic_s() + _PASSING_S
        return found

    async def look_for_passing(self) -> None:
        """Know which segments are being unmounted, as of a moment ago.  Raises TransientError."""
        if self.context.clock.monotonic_s() >= self._passing_until_s:
            await self.segments()

    @property
    def some_pass(self) -> bool:
        """Whether there is such a segment."""
        return bool(self._passing) or self.lot is not None

    def passes(self, entry: Entry | None) -> bool:
        """Whether every memory replica of an object lies where it will soon be gone.

        That is on a segment that is being unmounted, or on our own lot.
        """
        if not self.some_pass:
            return False
        ours = self.lot.endpoint if self.lot is not None else ""
        ends = [found.endpoint for found in in_memory(entry)]
        return bool(ends) and all(end == ours or end in self._passing for end in ends)

    def state_of(self, entry: Entry | None, kind: ReplicaKind, size_bytes: int) -> MemberState:
        """As `replicas.state_of`, but PARTIAL for what will soon be gone from memory."""
        state = state_of(entry, kind, size_bytes)
        if state is MemberState.COMPLETE and kind is MEMORY and self.passes(entry):
            return MemberState.PARTIAL
        return state

    async def all_keys(self) -> list[str]:
        """Every key of the cluster.  Raises TransientError."""

        def ask() -> list[str]:
            return self.admin.all_keys(self._health())

        return await self._threaded(ask)

    async def health(self) -> Health:
        """Who serves.  Raises TransientError when nobody does."""
        return await to_thread.run_sync(self._health)

    def _health(self) -> Health:
        """Who serves.  Raises TransientError when nobody does; either is counted."""
        try:
            health = self.admin.health()
        except TransientError as error:
            self.standing.is_away(error.why)
            raise
        self.standing.serves(health)
        return health

    async def report(self) -> MediumReport:
        """How the cluster does, asked now; takes no lease.

        What is known without an answer is told when none comes soon.
        """
        with suppress(TransientError), anyio.move_on_after(_REPORT_S):
            await self._threaded(self._health)
        return self.standing.report(self.admin.asked, self.reads)

    async def _threaded(self, call: Callable[[], T]) -> T:
        return await to_thread.run_sync(call, abandon_on_cancel=True)

    async def _scan(self, keys: Sequence[str], take: Take) -> str:
        await self._is_ours()
        if len(keys) <= QUERY_KEYS:
            return await self._threaded(lambda: self._scan_at_once(keys, take))
        before = await self._threaded(self._health)
        try:
            async with anyio.create_task_group() as tasks:
                for lane in range(LANES):
                    tasks.start_soon(
                        self._threaded,
                        lambda lane=lane: self._scan_lane(before, keys, lane, take),
                    )
        except BaseExceptionGroup as group:
            raise_first(group)
        return self._epoch_of(before, await self._threaded(self._health))

    async def _is_ours(self) -> None:
        """Raise ReconcileError unless the cluster is the book's, and this store's."""
        if not self._placed:
            await make_sure_of_place(self)
            self._placed = True
        if self._claim.is_due:
            await self._claim.take()

    def _scan_at_once(self, keys: Sequence[str], take: Take) -> str:
        before = self._health()
        self._ask(before, keys, 0, take)
        return self._epoch_of(before, self._health())

    def _scan_lane(self, health: Health, keys: Sequence[str], lane: int, take: Take) -> None:
        for start in range(lane * QUERY_KEYS, len(keys), LANES * QUERY_KEYS):
            self._ask(health, keys[start : start + QUERY_KEYS], start, take)

    def _ask(self, health: Health, keys: Sequence[str], start: int, take: Take) -> None:
        token = self.book.epoch or self._shown_epoch(health)
        marker = f"{MARKER_PREFIX}{token}"
        if not token:
            raise ForgottenError(
                f"cluster {self.options.cluster}",
                f"{NOT_SET_UP}: {self.book.path}",
                SET_UP_BY_USE,
            )
        entries = self.admin.query(health, [marker, *self._claim.keys, *keys])
        entry = entries.get(marker)
        if not is_there(entry) or not in_memory(entry):
            raise ForgottenError(
                f"cluster {self.options.cluster}",
                "the Master does not hold the marker of this epoch in memory any more: it was"
                " restarted, or the marker's host was",
                "nothing is dropped until what it holds has settled",
            )
        self._claim.check(entries)
        take(start, keys, entries)

    def _shown_epoch(self, health: Health) -> str:
        """The epoch that another process has begun, for a dry run that has no book; empty for none.

        It acts on nothing, so that it need not know of earlier epochs.
        """
        if self.context.read_only and not self._shown:
            keys = [key for key in self.admin.all_keys(health) if key.startswith(MARKER_PREFIX)]
            entries = self.admin.query(health, keys) if keys else {}
            there = sorted(key for key in keys if in_memory(entries.get(key)))
            self._shown = there[-1].removeprefix(MARKER_PREFIX) if there else ""
        return self._shown

    def _epoch_of(self, before: Health, after: Health) -> str:
        if before != after:
            raise TransientError(
                f"cluster {self.options.cluster}",
                f"while it was asked, {before} became {after}",
                "it is asked again",
            )
        return f"{self.book.epoch or self._shown}:{before.view}"

    # --- the epoch ---

    @property
    def marker(self) -> str:
        """Key of the marker of the epoch; empty before the first one."""
        return f"{MARKER_PREFIX}{self.book.epoch}" if self.book.epoch else ""

    async def _begin_epoch(self) -> None:
        """Put a new marker, unless another task has just done it.  Raises ReconcileError."""
        async with self._renewing:
            with suppress(ForgottenError):
                await self._scan([], lambda *_: None)
                return
            token = self.context.entropy.token(8)
            await self.small.put(f"{MARKER_PREFIX}{token}")
            await to_thread.run_sync(self.book.set_epoch, token)
            self.standing.begins_epoch()
            with suppress(ReconcileError):
                keys = [key for key in await self.all_keys() if key.startswith(MARKER_PREFIX)]
                await self.small.remove([key for key in keys if key != self.marker])

    async def revoke(self, key: str) -> None:
        """Take back a put that was begun, also when the caller is being cancelled."""
        self._unrevoked.add(key)
        with anyio.move_on_after(_REVOKE_S, shield=True):
            await self.revoke_left()

    async def revoke_left(self) -> None:
        """Take back what could not be taken back before; never raises for the Master.

        When that client is dead the Master does so itself, after `put_start_discard_timeout_sec`.
        """
        with suppress(ReconcileError):
            for key in tuple(self._unrevoked):
                async with self.owner() as (worker, _):
                    code = await worker.call(Engine.revoke, key)
                if meaning_of(code) is not Meaning.UNKNOWN:
                    self._unrevoked.discard(key)


_open: WeakValueDictionary[tuple[str, bool, str], Connection] = WeakValueDictionary()


def shared(options: ConnectionOptions, context: TierContext) -> Connection:
    """The one connection of this state directory to this cluster, new or one that is in use.

    Two over one book would each act on what the other has changed meanwhile.  Raises ConfigError
    when one of the same configuration, or one that is in use, has other options.
    """
    key = (context.state_dir, context.read_only, options.cluster)
    connection = _open.get(key)
    if connection is not None and connection.options != options:
        if connection.context is context or connection.in_use:
            raise _unequal(connection.options, options)
        connection = None
    if connection is None:
        connection = _open[key] = Connection(options, context)
    return connection


def _unequal(one: ConnectionOptions, other: ConnectionOptions) -> ConfigError:
    names = [field.name for field in fields(one)]
    named = [name for name in names if getattr(one, name) != getattr(other, name)]
    said = "; ".join(f"{name} = {getattr(one, name)} and {getattr(other, name)}" for name in named)
    return ConfigError(
        f"the tiers of Mooncake cluster {one.cluster!r} cannot be used together",
        f"they share one connection and differ in {said}",
        "set connection options in the section [mooncake] only; give another cluster that is used"
        " beside it another `cluster`",
    )
