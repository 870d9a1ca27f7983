"""A tier whose replicas are files that cannot hang: the engine in worker threads.

Layer: adapters, shared.  Owns the hops: one a batch for asking and removing, one a replica for
moving bytes, with a few replicas moving at once.  Invariants: nothing blocks the loop; every draft
that was published is settled and every open replica closed, also when the caller is cancelled;
cancelling stops a copy at its next piece.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import ParamSpec, Self, TypeVar

import anyio
from anyio import CancelScope, CapacityLimiter, to_thread

from weightctl.adapters.shared import observing, reading, removing
from weightctl.adapters.shared.ownership import tell_adopted
from weightctl.adapters.shared.pump import whole_hop
from weightctl.adapters.shared.reading import OpenReplica
from weightctl.adapters.shared.root import Root
from weightctl.adapters.shared.storing import MOVING_MAX, Mover, StoreRun
from weightctl.adapters.shared.streaming import Buffers
from weightctl.adapters.shared.translate import error_from_os
from weightctl.controller.core.observation import Member, Members, TierObservation
from weightctl.controller.core.tiers import TierCapacity, TierProfile
from weightctl.controller.errors import ReconcileError
from weightctl.controller.ports import (
    PIECE_BYTES,
    DropItem,
    Fence,
    InventoryItem,
    Limiter,
    Outcome,
    Permanent,
    RangedReader,
    StoreItem,
    Unknown,
)

P = ParamSpec("P")
T = TypeVar("T")
ASKING_MAX = 8
"""Threads that ask, open and read ranges; those that move are counted apart."""
VERIFYING_MAX = 2
CHUNK_ITEMS = 256
_READ_ONLY = Permanent(detail="the tier was opened for asking only")


class FileTier:
    """One root folder as a tier (`ports.Tier`).

    root: the engine, used by nobody else; read_only: nothing is made, changed or removed;
    adopt: on entering the root becomes this store's, whosever it was; fence: for whom it is
    entered, so that an older one is refused before anything was done.
    """

    def __init__(
        self,
        profile: TierProfile,
        root: Root,
        *,
        read_only: bool = False,
        adopt: bool = False,
        fence: Fence | None = None,
    ) -> None:
        self._profile = profile
        self._root = root
        self._read_only = read_only
        self._adopt = adopt
        self._fence = fence
        self._buffers = Buffers(MOVING_MAX)
        self._asking = CapacityLimiter(ASKING_MAX)
        self._moving = CapacityLimiter(MOVING_MAX)

    @property
    def profile(self) -> TierProfile:
        """Constant."""
        return self._profile

    async def __aenter__(self) -> Self:
        """Find or mark the medium and clean up after killed writers.  Raises ConfigError."""
        with CancelScope(shield=True):
            await to_thread.run_sync(self._enter, limiter=self._asking)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Nothing stays open between calls."""

    def _enter(self) -> None:
        self._root.enter(read_only=self._read_only)
        if not self._read_only:
            with suppress(ReconcileError, OSError):  # away or damaged: observing says so
                if self._adopt:
                    tell_adopted(self._profile.name, self._root.adopt())
                removing.sweep(self._root)
            with suppress(ReconcileError, OSError):  # every primitive is told the same
                if self._fence is not None:
                    self._root.admit(self._fence)

    # --- asking ---

    async def observe(self, members: Members, *, detail: Sequence[int] = ()) -> TierObservation:
        """As the port; one listing of the group's folder."""
        ask = partial(observing.observe, self._root, members, detail)
        return await to_thread.run_sync(ask, abandon_on_cancel=True, limiter=self._asking)

    async def inventory(self, group_id: str | None = None) -> Mapping[str, Sequence[InventoryItem]]:
        """As the port."""
        ask = partial(observing.inventory, self._root, group_id)
        return await to_thread.run_sync(ask, abandon_on_cancel=True, limiter=self._asking)

    async def capacity(self) -> TierCapacity:
        """As the port."""
        ask = partial(_translated, self._root.capacity)
        return await to_thread.run_sync(ask, abandon_on_cancel=True, limiter=self._asking)

    def map_path(self, member: Member) -> str | None:
        """As the port.  Calls the file system: on a loop, call it in a worker thread."""
        if not self._profile.capabilities.mappable:
            return None
        try:
            replica = reading.open_replica(self._root, member)
        except (ReconcileError, OSError):
            return None
        reading.close_replica(self._root, replica)
        return replica.path

    # --- moving ---

    async def store(
        self, batch: Sequence[StoreItem], fence: Fence, *, limit: Limiter | None = None
    ) -> Sequence[Outcome]:
        """As the port; the folders are synchronised once, after the last replica."""
        if self._read_only:
            return [_READ_ONLY] * len(batch)
        return await StoreRun(self._root, self._mover(limit), batch, fence).run()

    async def verify(
        self, batch: Sequence[Member], *, limit: Limiter | None = None
    ) -> Sequence[Outcome]:
        """As the port; small members share a hop."""
        outcomes: list[Outcome] = [Unknown(detail="not reached")] * len(batch)
        chunks = iter(_chunks([member.size_bytes for member in batch]))
        mover = self._mover(limit)

        def verify_chunk(chunk: range) -> None:
            for index in chunk:
                outcomes[index] = reading.verify(self._root, batch[index], mover.copy)

        async def verify_some() -> None:
            for chunk in chunks:
                await mover.hop(verify_chunk, chunk)

        async with anyio.create_task_group() as group:
            for _ in range(VERIFYING_MAX):
                group.start_soon(verify_some)
        return outcomes

    async def drop(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        """As the port; one hop for the batch."""
        if self._read_only:
            return [_READ_ONLY] * len(batch)
        act = partial(removing.drop, self._root, batch, fence)
        return await to_thread.run_sync(act, limiter=self._moving)

    async def quarantine(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        """As the port; one hop for the batch."""
        if self._read_only:
            return [_READ_ONLY] * len(batch)
        act = partial(removing.quarantine, self._root, batch, fence)
        return await to_thread.run_sync(act, limiter=self._moving)

    @asynccontextmanager
    async def open(self, member: Member) -> AsyncIterator[RangedReader]:
        """As the port; the replica is not dropped from here while it is open."""
        opened: list[OpenReplica] = []

        def open_it() -> None:
            opened.append(_translated(reading.open_replica, self._root, member))

        def close_it() -> None:
            for replica in opened:
                reading.close_replica(self._root, replica)

        try:
            await whole_hop(open_it, self._asking)  # else a lost descriptor, and Busy for ever
            yield FileReader(opened[0], self._asking)
        finally:
            await whole_hop(close_it, self._asking)

    def _mover(self, limit: Limiter | None) -> Mover:
        return Mover(self._buffers, self._moving, limit)


class FileReader:
    """A ranged reader of an open file (`ports.RangedReader`)."""

    def __init__(self, replica: OpenReplica, limiter: CapacityLimiter) -> None:
        self._replica = replica
        self._limiter = limiter

    @property
    def size_bytes(self) -> int:
        """Size of the replica."""
        return self._replica.size_bytes

    @property
    def instance_id(self) -> str:
        """The copy that is being read."""
        return self._replica.instance_id

    async def read_into(self, offset: int, buffer: memoryview) -> None:
        """As the port."""
        read = partial(_translated, self._replica.read_into, buffer, offset)
        await whole_hop(read, self._limiter)  # the descriptor is closed right after it

    def fileno(self) -> int | None:
        """The file: local, and holds exactly the replica's bytes."""
        return self._replica.fd


def _translated(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    try:
        return call(*args, **kwargs)
    except OSError as error:
        raise error_from_os(error, "a call of the medium failed") from error


def _chunks(sizes_bytes: Sequence[int]) -> Iterator[range]:
    """Runs of neighbours of up to PIECE_BYTES together: a hop each, not a hop a member."""
    start = total_bytes = 0
    for index, size_bytes in enumerate(sizes_bytes):
        total_bytes += size_bytes
        if total_bytes >= PIECE_BYTES or index - start + 1 == CHUNK_ITEMS:
            yield range(start, index + 1)
            start, total_bytes = index + 1, 0
    if start < len(sizes_bytes):
        yield range(start, len(sizes_bytes))
