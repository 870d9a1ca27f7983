"""A tier in a dictionary, with faults that a test switches on.

It keeps the plugin contract for the happy path; `faults` names what goes wrong from then on.
"""

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Self

from weightctl.controller.core.observation import (
    Member,
    Members,
    MemberState,
    TierObservation,
    unknown_observation,
)
from weightctl.controller.core.tiers import Capabilities, TierCapacity, TierProfile
from weightctl.controller.errors import FencedError, TransientError
from weightctl.controller.ports import (
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
    StoreItem,
)


async def nothing(_: str) -> None:
    """Do nothing before a step."""


@dataclass
class Faults:
    """Hooks and switches; the defaults are harmless."""

    before_read: Callable[[str], Awaitable[None]] = nothing
    before_store: Callable[[str], Awaitable[None]] = nothing
    outcomes: list[Outcome] = field(default_factory=list)
    """Taken one by one instead of storing."""
    silent: bool = False
    """Observe answers nothing."""
    read_limit: int | None = None
    """Reads beyond this byte of an object fail."""


class PlainReader:
    """Reads one dictionary value."""

    def __init__(self, tier: "PlainTier", key: str) -> None:
        self._tier = tier
        self._key = key
        self._content = tier.content[key]
        self.instance_id = key

    @property
    def size_bytes(self) -> int:
        return len(self._content)

    async def read_into(self, offset: int, buffer: memoryview) -> None:
        await self._tier.faults.before_read(self._key)
        limit = self._tier.faults.read_limit
        if limit is not None and offset + len(buffer) > limit:
            raise TransientError(f"read of {self._key}", "the medium failed", "try another")
        buffer[:] = self._content[offset : offset + len(buffer)]

    def fileno(self) -> int | None:
        return None


class PlainTier:
    """Replicas by key; `content` may be changed by a test, which is what corruption is."""

    def __init__(self, name: str, *, hot: bool, capacity_bytes: int = 1 << 40) -> None:
        self.profile = TierProfile(
            name=name,
            kind="plain",
            hot=hot,
            capabilities=Capabilities(persistent=not hot, atomic_publish=True),
        )
        self.content: dict[str, bytes] = {}
        self.faults = Faults()
        self.fences: list[Fence] = []
        self._capacity_bytes = capacity_bytes
        self.used_bytes = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        pass

    async def observe(self, members: Members, *, detail: Sequence[int] = ()) -> TierObservation:
        if self.faults.silent:
            return unknown_observation(len(members), "switched off")
        states = bytes(
            MemberState.COMPLETE if key in self.content else MemberState.ABSENT
            for key in members.keys
        )
        return TierObservation(states=states, epoch="1")

    async def store(
        self, batch: Sequence[StoreItem], fence: Fence, *, limit: Limiter | None = None
    ) -> Sequence[Outcome]:
        self.fences.append(fence)
        if limit is not None:
            for item in batch:
                await limit.charge(item.member.size_bytes)
        return [await self._store(item) for item in batch]

    async def _store(self, item: StoreItem) -> Outcome:
        member = item.member
        await self.faults.before_store(member.key)
        if self.faults.outcomes:
            return self.faults.outcomes.pop(0)
        present = self.content.get(member.key)
        if present is not None:
            same = hashlib.sha256(present).digest() == member.sha256
            return NoOp(instance_id=member.key) if same else Conflict(detail="other content")
        self.used_bytes += member.size_bytes
        if self.used_bytes > self._capacity_bytes:
            return NoCapacity(needed_bytes=member.size_bytes, free_bytes=0)
        content = bytearray(member.size_bytes)
        try:
            async with item.open_source() as reader:
                await reader.read_into(0, memoryview(content))
        except FencedError as error:
            return Fenced(detail=error.why)
        got = hashlib.sha256(content).digest()
        if got != member.sha256:
            return Corrupt(expected=member.sha256, got=got)
        self.content[member.key] = bytes(content)
        return Done(instance_id=member.key, moved_bytes=len(content))

    async def drop(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        for item in batch:
            self.content.pop(item.member.key, None)
        return [Done() for _ in batch]

    async def quarantine(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        return await self.drop(batch, fence)

    def open(self, member: Member) -> AbstractAsyncContextManager[RangedReader]:
        return self._opened(member)

    @asynccontextmanager
    async def _opened(self, member: Member) -> AsyncIterator[RangedReader]:
        if member.key not in self.content:
            raise TransientError(f"open of {member.key}", "it is not there", "observe again")
        yield PlainReader(self, member.key)

    async def verify(
        self, batch: Sequence[Member], *, limit: Limiter | None = None
    ) -> Sequence[Outcome]:
        outcomes: list[Outcome] = []
        for member in batch:
            if limit is not None:
                await limit.charge(member.size_bytes)
            got = hashlib.sha256(self.content.get(member.key, b"")).digest()
            same = got == member.sha256
            outcomes.append(Done() if same else Corrupt(expected=member.sha256, got=got))
        return outcomes

    async def inventory(self, group_id: str | None = None) -> Mapping[str, Sequence[InventoryItem]]:
        return {}

    async def capacity(self) -> TierCapacity:
        return TierCapacity(
            used_bytes=self.used_bytes,
            free_bytes=self._capacity_bytes - self.used_bytes,
            total_bytes=self._capacity_bytes,
        )

    def map_path(self, member: Member) -> str | None:
        return None
