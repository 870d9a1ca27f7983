"""A passing segment of ours, on which memory replicas leave Mooncake.  Layer: a tier; on the loop.

It has a client of its own and lives in a task of its own until it is gone, whoever waits for it or
does not.  Others' objects come onto it like onto any segment; so it is drained before it goes: from
then on it takes nothing new, the Master moves away what it may and counts what stays.  Invariant:
it is unmounted only when the Master has counted, twice, as many objects on it as there are members
of ours on it with a cold copy that counts; as long as there is anything else, it stays.
"""

from __future__ import annotations

import asyncio
import logging
import math
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import anyio
from anyio import to_thread

from weightctl.adapters.mooncake.client.codes import Meaning, meaning_of, told
from weightctl.adapters.mooncake.client.engine import Engine
from weightctl.adapters.mooncake.master.replicas import in_memory
from weightctl.adapters.mooncake.parking.drain import Drains
from weightctl.adapters.mooncake.parking.moves import Moves
from weightctl.adapters.mooncake.proof.cold import doubts
from weightctl.controller.errors import TransientError, WeightctlError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from weightctl.adapters.mooncake.client.clients import CountedWorker
    from weightctl.adapters.mooncake.connection import Connection
    from weightctl.adapters.mooncake.master.admin import Segment
    from weightctl.adapters.mooncake.master.replicas import Entry
    from weightctl.adapters.mooncake.parking.drain import Job
    from weightctl.adapters.shared.workers import WorkerPool
    from weightctl.controller.core.observation import Member

T = TypeVar("T")

POLL_S = 0.1
UNIT_BYTES = 16 * 1024 * 1024
"""Segments have a size in these; one more than is needed, for what others put there meanwhile."""
OWN_BYTES = 64 * 1024
"""Room that the Master's allocator may lose around an object."""
LEAVE_S = 25.0
"""How long a process that ends waits for its lot."""
_LISTING_S = 2.0
"""Pause between two looks at all keys of the cluster."""
_log = logging.getLogger(__name__)


class LostError(TransientError):
    """The client of the lot has died, and the segment with it."""


class Lot:
    """One passing segment, from its mounting until it is gone."""

    def __init__(self, connection: Connection, members: Sequence[Member]) -> None:
        self.members = {member.key: member for member in members}
        self.why = "its segment is being mounted"
        """What it waits for."""
        self.endpoint = ""
        self.ended = anyio.Event()
        self._connection = connection
        self._clock = connection.context.clock
        self._pool: WorkerPool = connection.clients.pool("lot", 1)
        self._token = ""
        self._ids: list[str] = []
        self._name = ""
        self._job = ""
        self._proof: tuple[frozenset[str], int] | None = None
        self._going: frozenset[str] = frozenset()
        """Members that go with it; not empty once it is being unmounted."""
        self._leaving = False
        self._hold_until_s = 0.0
        """Until when leases are taken in the grace."""
        self._over = False
        self._moves = Moves(self._clock)
        self._fill_until_s = self._clock.monotonic_s() + connection.options.appear_s
        self._there: frozenset[str] = frozenset()
        """Members that were here at the last look."""
        self._list_at_s = 0.0
        self._unlisted_since_s: float | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Let it live, whatever becomes of the caller."""
        self._task = asyncio.get_running_loop().create_task(self._live())

    async def close(self) -> None:
        """Bring it to its end before this process ends; tell when that takes too long."""
        self._fill_until_s = 0.0
        with anyio.move_on_after(LEAVE_S, shield=True):
            await self.ended.wait()
            return
        _log.warning(
            "the parking segment %s is given up after %g s with objects on it: %s",
            self._name,
            LEAVE_S,
            self.why,
        )
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError), anyio.CancelScope(shield=True):
                await self._task

    async def _live(self) -> None:
        try:
            async with self._pool:
                await self._mount()
                while not self._over:
                    await self._try_round()
                    await self._clock.sleep(POLL_S)
        finally:
            self._connection.lot = None
            self.ended.set()

    async def _mount(self) -> None:
        needed = sum(member.size_bytes + OWN_BYTES for member in self.members.values())
        size_bytes = (-(-needed // UNIT_BYTES) + 1) * UNIT_BYTES
        try:
            async with self._client() as worker:
                self._ids = await worker.call(Engine.mount, size_bytes)
        except WeightctlError as error:
            self._refused(error)
            self._over = True  # what may have been mounted goes with the client

    async def _try_round(self) -> None:
        try:
            await self._round()
        except LostError as error:
            self._refused(error)
            self._over = True
        except WeightctlError as error:
            self._refused(error)
        except Exception:  # noqa: BLE001 - others' objects on the lot must not go with a fault
            _log.exception(
                "a step of the parking segment %s has failed; it is tried again", self._name
            )
            await self._clock.sleep(_LISTING_S)

    def _refused(self, error: WeightctlError) -> None:
        why = getattr(error, "why", "")
        self.why = f"{error}" if not why else f"{getattr(error, 'what', '')}: {why}"

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[CountedWorker]:
        async with self._connection.clients.client_of(self._pool) as (worker, token):
            if self._token not in ("", token):
                raise LostError("the parking segment", "its client has died", "it is parked anew")
            self._token = token
            yield worker

    # --- one look, one step ---

    async def _round(self) -> None:
        segments = await self._connection.segments.listed()
        row = next((one for one in segments if one.segment_id in self._ids), None)
        if row is None:
            await self._unlisted()
            return
        self._unlisted_since_s = None
        self._name, self.endpoint = row.name, row.endpoint
        match row.status:
            case "OK":
                self._leaving = False
                if not await self._fill(segments):
                    await self._hold()
                    self._job = await self._asked(lambda drains: drains.begin(row.name))
                    self._proof, self.why = None, "the Master drains its segment"
            case "DRAINING":
                await self._empty(segments)
            case "DRAINED":  # nothing was on it when the Master counted
                found = await self._others(frozenset())
                if found == {}:
                    await self._unmount(0)
                await self._move_to_hosts(segments, found or {})
            case _:
                self._leaving = True
                await self._rescue(segments)

    async def _unlisted(self) -> None:
        now_s = self._clock.monotonic_s()
        if self._unlisted_since_s is None:
            self._unlisted_since_s = now_s
        if self._leaving:
            self._over = True
            rows = [self._connection.book.get(key) for key in self._going]
            dropped = [replace(row, drops=row.drops + 1) for row in rows if row is not None]
            await to_thread.run_sync(self._connection.book.put, dropped)
        elif now_s - self._unlisted_since_s > 2 * self._connection.options.appear_s:
            self._over = True  # nobody can have put anything there since
        else:
            self.why = "the Master does not list its segment (any more)"

    async def _fill(self, segments: Sequence[Segment]) -> bool:
        """Have the members moved here; whether there is anything left to wait for."""
        if self._clock.monotonic_s() >= self._fill_until_s:
            return False
        self.why = "the hosts move its replicas"
        names = {one.endpoint: one.name for one in segments if one.endpoint != self.endpoint}
        entries, _ = await self._connection.look.entries(list(self.members))
        doubtful = await doubts(self._connection, list(self.members.values()), entries)
        left = False
        async with self._client() as worker:
            for key in self.members.keys() - doubtful.keys():
                ends = [found.endpoint for found in in_memory(entries.get(key))]
                sources = [names[end] for end in ends if end in names]
                if sources and not self._moves.tried_in_vain(key):
                    left = True
                    await self._moves.ask(worker, key, sources[0], self._name)
        return left

    async def _empty(self, segments: Sequence[Segment]) -> None:
        """Look whether only members that may go are left; else help to move away the others."""
        job = await self._asked(lambda drains: drains.look(self._job)) if self._job else None
        if job is not None and job.failed and not job.active:
            # Its count leaves out what has failed too often: begin another one.
            await self._asked(lambda drains: drains.cancel(self._job))
            self._job = ""
            return
        await self._hold()
        safe, there = await self._ours()
        if job is None or job.status != "RUNNING":
            if job is None:  # begun, and its answer was lost: nobody counts, so everything must go
                await self._move_to_hosts(segments, await self._others(frozenset()) or {})
            return
        if job.active or job.blocked != len(safe) or safe != there or not safe:
            self._proof = None
            self.why = _waits_for(job, len(safe))
            if not job.active:
                await self._move_to_hosts(segments, await self._others(safe) or {})
        elif self._proof is None or self._proof[0] != safe:
            self._proof = (safe, job.counted_at_ms)
        elif job.counted_at_ms > self._proof[1]:
            self._going = safe
            await self._unmount(math.ceil(self._connection.options.lease_ttl_s))

    async def _ours(self) -> tuple[frozenset[str], frozenset[str]]:
        """Members on the lot: those with a cold copy that counts, and all."""
        entries, _ = await self._connection.look.entries(list(self.members))
        there = [one for key, one in self.members.items() if self._is_here(entries.get(key))]
        doubtful = await doubts(self._connection, there, entries) if there else {}
        self._there = keys = frozenset(member.key for member in there)
        return keys - doubtful.keys(), keys

    def _is_here(self, entry: Entry | None) -> bool:
        return any(found.endpoint == self.endpoint for found in in_memory(entry))

    async def _others(self, safe: frozenset[str]) -> dict[str, int] | None:
        """Sizes of what is here beside members that may go; None when that was looked for just now.

        The Master's own job leaves here what is pinned or read.
        """
        now_s = self._clock.monotonic_s()
        if now_s < self._list_at_s:
            return None
        self._list_at_s = now_s + _LISTING_S
        found: dict[str, int] = {}

        def take(_: int, __: Sequence[str], entries: Mapping[str, Entry]) -> None:
            for key, entry in entries.items():
                if key not in safe and self._is_here(entry):
                    found[key] = in_memory(entry)[0].size_bytes

        await self._connection.look.scan(await self._connection.serving.all_keys(), take)
        return found

    async def _rescue(self, segments: Sequence[Segment]) -> None:
        """Within the grace: a member whose cold copy is gone meanwhile does not go with the lot."""
        self.why = "its segment is unmounted with a grace, in which it can still be read"
        # The drain goes on, and would move away what is neither pinned nor leased. But a member
        # that is asked for when it has just gone is promoted: so the last lease is taken amid the
        # grace, and lasts until its end, for the Master renews each that is half over.
        if self._clock.monotonic_s() < self._hold_until_s:
            await self._hold()
        safe, there = await self._ours()
        sizes = {key: self.members[key].size_bytes for key in there - safe}
        await self._move_to_hosts(segments, sizes)

    async def _move_to_hosts(self, segments: Sequence[Segment], sizes: Mapping[str, int]) -> None:
        room = {
            one.name: one.capacity_bytes - one.used_bytes
            for one in segments
            if one.status == "OK" and one.name != self._name
        }
        if not sizes or not room:
            return
        async with self._client() as worker:
            for key, size_bytes in sizes.items():
                # One that has just failed may be dead, and listed for a while yet.
                by_room = sorted(room, key=room.__getitem__, reverse=True)
                target = by_room[self._moves.tries(key) % len(by_room)]
                if await self._moves.ask(worker, key, self._name, target):
                    room[target] -= size_bytes

    async def _hold(self) -> None:
        """Keep a lease on the members here: what is not pinned the Master would move away, too.

        An object that a host has brought back from its disk is not, whoever has put it.
        """
        if not self._there:
            _, self._there = await self._ours()
        if self._there:
            async with self._client() as worker:
                await worker.call(Engine.touch, list(self._there))
            for key in self._there:
                self._connection.reads.note(self.members[key].group_id)

    async def _unmount(self, grace_s: int) -> None:
        async with self._client() as worker:
            self._leaving = True
            self._hold_until_s = self._clock.monotonic_s() + grace_s / 2
            code = await worker.call(Engine.unmount, self._ids, grace_s)
        if code != 0:
            self._leaving = meaning_of(code) is Meaning.UNKNOWN
            self.why = f"unmounting its segment: {told(code)}"

    async def _asked(self, call: Callable[[Drains], T]) -> T:
        address = (await self._connection.serving.health()).address
        drains = Drains(address, self._connection.options.deadline_s)
        return await to_thread.run_sync(call, drains)


def _waits_for(job: Job, safe: int) -> str:
    others = max(job.blocked + job.active - safe, 0)
    return (
        f"{others} objects on its segment are not ours or have no cold copy, and must be moved to"
        " the hosts first: unfinished puts have to end, and the hosts need free memory"
    )
