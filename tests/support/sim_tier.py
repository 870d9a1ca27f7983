"""A whole tier in memory with faults that a test switches on; keeps the plugin contract otherwise.

Every primitive that changes a replica is written to `history` with the fence that it came under, so
that a test can judge what was done and in which order.
"""

import hashlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Self, TypeVar

import anyio

from weightctl.controller.core.observation import (
    Member,
    Members,
    MemberState,
    ReplicaDetail,
    TierObservation,
    unknown_observation,
)
from weightctl.controller.core.tiers import Capabilities, TierCapacity, TierProfile
from weightctl.controller.errors import TransientError
from weightctl.controller.ports import (
    Busy,
    Conflict,
    Corrupt,
    Done,
    DropItem,
    Fence,
    Fenced,
    InventoryItem,
    Limiter,
    NoCapacity,
    NoOp,
    Outcome,
    RangedReader,
    Retry,
    StoreItem,
    Unknown,
)

PIECE = 1 << 20
ENDLESS = 1 << 50
Item = TypeVar("Item")


@dataclass
class Replica:
    """One stored copy; `content` may be changed by a test, which is what corruption is."""

    instance_id: str
    content: bytearray
    sha256: bytes
    quarantined: bool = False
    partial: bool = False


@dataclass
class Faults:
    """What goes wrong; consumed or persistent as each says.  The defaults are harmless."""

    silent: bool = False
    """Observe answers UNKNOWN."""
    hang: bool = False
    """Every call hangs until it is cancelled."""
    short: bool = False
    """Observe answers for one member too few."""
    lose_answers: int = 0
    """So many batches are carried out and answered Unknown."""
    cut_batches: int = 0
    """So many batches are carried out for their first half, then raise."""
    refuse_batches: int = 0
    """So many batches do nothing and answer Retry."""
    back_in_s: float = 0.0
    """When that Retry says that the tier will be back."""
    busy_until_ms: int | None = None
    """Drops are refused until then."""


@dataclass(frozen=True)
class Event:
    """One change of a replica."""

    tier: str
    verb: str
    key: str
    fence: Fence


@dataclass
class World:
    """What the tiers of one test share."""

    history: list[Event] = field(default_factory=list)


class _Reader:
    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self.instance_id = replica.instance_id

    @property
    def size_bytes(self) -> int:
        return len(self._replica.content)

    async def read_into(self, offset: int, buffer: memoryview) -> None:
        await anyio.lowlevel.checkpoint()
        buffer[:] = self._replica.content[offset : offset + len(buffer)]

    def fileno(self) -> int | None:
        return None


class SimTier:
    """Replicas by (group, key)."""

    def __init__(
        self,
        name: str,
        *,
        hot: bool,
        world: World | None = None,
        capacity_bytes: int = ENDLESS,
        bandwidth_bytes_per_s: int = 0,
    ) -> None:
        self.profile = TierProfile(
            name=name,
            kind="sim",
            hot=hot,
            capabilities=Capabilities(persistent=not hot, atomic_publish=True, checksum=True),
            bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        )
        self.world = world or World()
        self.replicas: dict[tuple[str, str], list[Replica]] = {}
        self.faults = Faults()
        self.epoch = 1
        self.capacity_bytes = capacity_bytes
        self.observed_count = 0
        self._terms: dict[str, int] = {}
        self._instances = itertools.count(1)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        pass

    # --- for tests --------------------------------------------------------------------------------

    def find(self, key: str) -> Replica | None:
        """The visible finished replica of a key."""
        for (_, known), copies in self.replicas.items():
            if known == key:
                return next((c for c in copies if not c.quarantined and not c.partial), None)
        return None

    def put(self, member: Member, content: bytes, *, partial: bool = False) -> Replica:
        """Place a replica without a primitive."""
        instance_id = f"{self.profile.name}-{next(self._instances)}"
        replica = Replica(instance_id, bytearray(content), member.sha256, partial=partial)
        self.replicas.setdefault((member.group_id, member.key), []).append(replica)
        return replica

    def wipe(self, *, new_epoch: bool = True) -> None:
        """Lose everything."""
        self.replicas.clear()
        self.epoch += new_epoch

    def contents(self) -> dict[tuple[str, str], list[tuple[str, bytes, bool]]]:
        """Everything held, for comparing before and after."""
        return {
            key: [(c.instance_id, bytes(c.content), c.quarantined) for c in copies]
            for key, copies in self.replicas.items()
            if copies
        }

    # --- the contract -----------------------------------------------------------------------------

    async def observe(self, members: Members, *, detail: Sequence[int] = ()) -> TierObservation:
        await self._pause()
        self.observed_count += 1
        if self.faults.silent:
            return unknown_observation(len(members), "switched off")
        states = bytes(self._state(members.group_id, key) for key in members.keys)
        details = {
            index: ReplicaDetail(
                instance_id=replica.instance_id,
                size_bytes=len(replica.content),
                sha256=replica.sha256,
            )
            for index in detail
            if (replica := self._visible(members.group_id, members.keys[index])) is not None
        }
        states = states[:-1] if self.faults.short else states
        return TierObservation(states=states, epoch=str(self.epoch), details=details)

    async def store(
        self, batch: Sequence[StoreItem], fence: Fence, *, limit: Limiter | None = None
    ) -> Sequence[Outcome]:
        async def one(item: StoreItem) -> Outcome:
            return await self._store(item, fence, limit)

        return await self._batch(batch, fence, one)

    async def drop(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        async def one(item: DropItem) -> Outcome:
            return self._drop(item, fence)

        return await self._batch(batch, fence, one)

    async def quarantine(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        async def one(item: DropItem) -> Outcome:
            replica = self._visible(item.member.group_id, item.member.key)
            if replica is None:
                return NoOp()
            if replica.instance_id != item.instance_id:
                return Conflict(detail="another instance")
            replica.quarantined = True
            self._log("quarantine", item.member.key, fence)
            return Done(instance_id=item.instance_id)

        return await self._batch(batch, fence, one)

    def open(self, member: Member) -> AbstractAsyncContextManager[RangedReader]:
        return self._open(member)

    async def verify(
        self, batch: Sequence[Member], *, limit: Limiter | None = None
    ) -> Sequence[Outcome]:
        await self._pause()
        outcomes: list[Outcome] = []
        for member in batch:
            replica = self._visible(member.group_id, member.key)
            if replica is None:
                outcomes.append(Conflict(detail="not there"))
                continue
            if limit is not None:
                await limit.charge(len(replica.content))
            got = hashlib.sha256(replica.content).digest()
            named = replica.instance_id
            good = got == member.sha256
            wrong = Corrupt(expected=member.sha256, got=got, instance_id=named)
            outcomes.append(Done(instance_id=named) if good else wrong)
        return outcomes

    async def inventory(self, group_id: str | None = None) -> Mapping[str, Sequence[InventoryItem]]:
        await self._pause()
        if self.faults.silent:
            raise TransientError("inventory", "switched off")
        listed: dict[str, list[InventoryItem]] = {}
        for (group, key), copies in self.replicas.items():
            if group_id in (None, group):
                listed.setdefault(group, []).extend(self._item(key, copy) for copy in copies)
        return listed

    async def capacity(self) -> TierCapacity:
        await self._pause()
        if self.capacity_bytes >= ENDLESS:  # summing is slow, and pointless without a bound
            return TierCapacity(used_bytes=0, free_bytes=ENDLESS, total_bytes=ENDLESS)
        used = sum(len(copy.content) for copies in self.replicas.values() for copy in copies)
        free = max(self.capacity_bytes - used, 0)
        return TierCapacity(used_bytes=used, free_bytes=free, total_bytes=self.capacity_bytes)

    def map_path(self, member: Member) -> str | None:
        return None

    # --- inside -----------------------------------------------------------------------------------

    async def _pause(self) -> None:
        await anyio.lowlevel.checkpoint()
        if self.faults.hang:
            await anyio.sleep_forever()

    async def _batch(
        self, batch: Sequence[Item], fence: Fence, one: Callable[[Item], Awaitable[Outcome]]
    ) -> Sequence[Outcome]:
        await self._pause()
        if fence.term < self._terms.get(fence.holder, 0):
            return [Fenced(detail="older term")] * len(batch)
        self._terms[fence.holder] = fence.term
        if self.faults.refuse_batches:
            self.faults.refuse_batches -= 1
            return [Retry(after_s=self.faults.back_in_s, detail="refused")] * len(batch)
        if self.faults.cut_batches:
            self.faults.cut_batches -= 1
            for item in batch[: len(batch) // 2]:
                await one(item)
            raise TransientError("batch", "cut in the middle")
        outcomes = [await one(item) for item in batch]
        if self.faults.lose_answers:
            self.faults.lose_answers -= 1
            return [Unknown(detail="answer lost")] * len(batch)
        return outcomes

    async def _store(self, item: StoreItem, fence: Fence, limit: Limiter | None) -> Outcome:
        member = item.member
        present = self._visible(member.group_id, member.key)
        if present is not None:
            same = present.sha256 == member.sha256
            return NoOp(instance_id=present.instance_id) if same else Conflict(detail="other")
        free = (await self.capacity()).free_bytes
        if member.size_bytes > free:
            return NoCapacity(needed_bytes=member.size_bytes, free_bytes=free)
        content = bytearray(member.size_bytes)
        async with item.open_source() as reader:
            for offset in range(0, member.size_bytes, PIECE):
                piece = memoryview(content)[offset : offset + PIECE]
                if limit is not None:
                    await limit.charge(len(piece))
                await reader.read_into(offset, piece)
        got = hashlib.sha256(content).digest()
        if got != member.sha256:
            return Corrupt(expected=member.sha256, got=got)
        replica = self.put(member, bytes(content))
        self._log("store", member.key, fence)
        return Done(instance_id=replica.instance_id, moved_bytes=len(content))

    def _drop(self, item: DropItem, fence: Fence) -> Outcome:
        if self.faults.busy_until_ms is not None:
            return Busy(until_ms=self.faults.busy_until_ms)
        copies = self.replicas.get((item.member.group_id, item.member.key), [])
        for copy in copies:
            if copy.instance_id == item.instance_id:
                copies.remove(copy)
                self._log("drop", item.member.key, fence)
                return Done(instance_id=item.instance_id)
        return Conflict(detail="another instance") if copies else NoOp()

    @asynccontextmanager
    async def _open(self, member: Member) -> AsyncIterator[RangedReader]:
        await self._pause()
        replica = self._visible(member.group_id, member.key)
        if replica is None:
            raise TransientError(f"replica {member.key}", "it is not there")
        yield _Reader(replica)

    def _visible(self, group_id: str, key: str) -> Replica | None:
        copies = self.replicas.get((group_id, key), ())
        return next((c for c in copies if not c.quarantined and not c.partial), None)

    def _state(self, group_id: str, key: str) -> MemberState:
        copies = self.replicas.get((group_id, key))
        if not copies:
            return MemberState.ABSENT
        if any(not copy.quarantined and not copy.partial for copy in copies):
            return MemberState.COMPLETE
        return MemberState.PARTIAL if any(c.partial for c in copies) else MemberState.ABSENT

    def _item(self, key: str, copy: Replica) -> InventoryItem:
        states = {copy.quarantined: "quarantined", copy.partial: "partial"}
        return InventoryItem(
            key=key,
            instance_id=copy.instance_id,
            size_bytes=len(copy.content),
            state=states.get(True, "complete"),
        )

    def _log(self, verb: str, key: str, fence: Fence) -> None:
        self.world.history.append(Event(self.profile.name, verb, key, fence))
