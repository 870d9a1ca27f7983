"""The reference tier: the whole contract in memory, in a page or two.  Layer: conformance.

For plugin authors to read and for tests to use where a medium does not matter.  `ReferenceMedium`
is what would be the disk: it outlives the tier objects over it.  Invariant: the same as every
tier's; the contract suite runs against it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Self

from weightctl.adapters.shared.ownership import is_foreign, refuse_foreign
from weightctl.adapters.shared.sources import opened_source
from weightctl.adapters.shared.translate import outcome_from_error
from weightctl.controller.core.observation import (
    Member,
    Members,
    MemberState,
    ReplicaDetail,
    TierObservation,
    unknown_observation,
)
from weightctl.controller.core.tiers import Capabilities, TierCapacity, TierProfile
from weightctl.controller.errors import (
    FencedError,
    ReconcileError,
    TransientError,
    WeightctlError,
)
from weightctl.controller.ports import (
    PIECE_BYTES,
    Busy,
    Conflict,
    Corrupt,
    Done,
    DropItem,
    Fence,
    InventoryItem,
    Limiter,
    NoCapacity,
    NoOp,
    Outcome,
    RangedReader,
    StoreItem,
)

Name = tuple[str, str]


@dataclass(slots=True, eq=False)
class Stored:
    """One replica."""

    instance_id: str
    content: bytearray
    sha256: bytes
    hidden: bool = False


@dataclass(slots=True)
class ReferenceMedium:
    """What is stored, by group and key; `away` is a medium that gives no answer."""

    limit_bytes: int = 2**40
    epoch: str = "reference"
    owner: str = ""
    """The store that it belongs to; empty while none has used it."""
    away: bool = False
    stored: dict[Name, list[Stored]] = field(default_factory=dict)
    writing: dict[Name, int] = field(default_factory=dict)
    """Sizes that are reserved by writers."""
    terms: dict[str, int] = field(default_factory=dict)
    made: int = 0

    def seen(self, member: Member) -> Stored | None:
        """The replica of a member that is in sight."""
        found = self.stored.get((member.group_id, member.key), [])
        return next((stored for stored in found if not stored.hidden), None)

    def add(self, name: Name, stored: Stored) -> None:
        """A finished replica comes into sight."""
        self.stored.setdefault(name, []).append(stored)

    def remove(self, name: Name, stored: Stored) -> None:
        """A replica is gone, with its bytes."""
        found = self.stored[name]
        found.remove(stored)
        if not found:
            del self.stored[name]

    def hide(self, name: Name, stored: Stored) -> None:  # noqa: ARG002 - for media that watch
        """A replica goes out of sight; its bytes stay."""
        stored.hidden = True

    def listed(self) -> Mapping[Name, Sequence[Stored]]:
        """What a listing shows; a medium whose lists are behind shows what was."""
        return self.stored

    def check(self) -> None:
        """Raises TransientError while the medium is away."""
        if self.away:
            raise TransientError("the reference medium is away", "a test took it", "put it back")

    def admit(self, fence: Fence) -> None:
        """Raises FencedError for an older term."""
        self.check()
        if self.terms.setdefault(fence.holder, fence.term) > fence.term:
            raise FencedError(f"term {fence.term} of {fence.holder}", "a newer one was served")
        self.terms[fence.holder] = fence.term


class ReferenceTier:
    """`ports.Tier` over a ReferenceMedium."""

    def __init__(
        self,
        name: str,
        medium: ReferenceMedium,
        *,
        hot: bool = False,
        holder: str = "",
        adopt: bool = False,
    ) -> None:
        self._medium = medium
        self._holder = holder
        self._adopt = adopt
        self._readers: Counter[str] = Counter()
        capabilities = Capabilities(persistent=not hot, atomic_publish=True, checksum=True)
        self.profile = TierProfile(name=name, kind="reference", hot=hot, capabilities=capabilities)

    async def __aenter__(self) -> Self:
        """A fresh tier object stands for a fresh process: no writer of before lives."""
        if self._adopt or not self._medium.owner:
            self._medium.owner = self._holder
        if not is_foreign(self._medium.owner, self._holder):
            self._medium.writing.clear()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Nothing is held."""

    async def observe(self, members: Members, *, detail: Sequence[int] = ()) -> TierObservation:
        """As the port."""
        try:
            self._check()
        except ReconcileError as error:
            return unknown_observation(len(members), f"{error.what}: {error.why}")
        every = [members.member(index) for index in range(len(members))]
        details = {
            index: ReplicaDetail(
                instance_id=stored.instance_id,
                size_bytes=len(stored.content),
                sha256=stored.sha256,
            )
            for index in detail
            if (stored := self._medium.seen(every[index]))
        }
        states = bytes(map(self._state, every))
        return TierObservation(states=states, epoch=self._medium.epoch, details=details)

    def _check(self) -> None:
        self._medium.check()
        refuse_foreign("the reference medium", self._medium.owner, self._holder)

    def _admit(self, fence: Fence) -> None:
        self._check()
        self._medium.admit(fence)

    def _state(self, member: Member) -> MemberState:
        if self._medium.seen(member):
            return MemberState.COMPLETE
        written = (member.group_id, member.key) in self._medium.writing
        return MemberState.PARTIAL if written else MemberState.ABSENT

    async def store(
        self, batch: Sequence[StoreItem], fence: Fence, *, limit: Limiter | None = None
    ) -> Sequence[Outcome]:
        """As the port."""
        return [await self._store_one(item, fence, limit) for item in batch]

    async def _store_one(self, item: StoreItem, fence: Fence, limit: Limiter | None) -> Outcome:
        member, medium = item.member, self._medium
        name = (member.group_id, member.key)
        try:
            self._admit(fence)
            if found := medium.seen(member):
                same = found.sha256 == member.sha256
                other = Conflict(detail=f"replica {found.instance_id} has other content")
                return NoOp(instance_id=found.instance_id) if same else other
            if name in medium.writing:
                return Busy(detail="it is being written")
            if member.size_bytes > (free_bytes := self._free_bytes()):
                return NoCapacity(needed_bytes=member.size_bytes, free_bytes=free_bytes)
            medium.writing[name] = member.size_bytes
            try:
                content = await _read(item, limit)
            finally:
                medium.writing.pop(name, None)
            got = hashlib.sha256(content).digest()
            if got != member.sha256:
                return Corrupt(expected=member.sha256, got=got)
            self._admit(fence)
        except (WeightctlError, OSError) as error:
            return outcome_from_error(error, expected_sha256=member.sha256)
        medium.made += 1
        instance_id = f"r{medium.made}"
        medium.add(name, Stored(instance_id, content, got))
        return Done(instance_id=instance_id, moved_bytes=len(content))

    async def drop(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        """As the port."""
        return [self._remove(item, fence, hide=False) for item in batch]

    async def quarantine(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        """As the port."""
        return [self._remove(item, fence, hide=True) for item in batch]

    def _remove(self, item: DropItem, fence: Fence, *, hide: bool) -> Outcome:
        name = (item.member.group_id, item.member.key)
        try:
            self._admit(fence)
        except WeightctlError as error:
            return outcome_from_error(error)
        found = self._medium.stored.get(name, [])
        named = [stored for stored in found if stored.instance_id == item.instance_id]
        if not named:
            seen = self._medium.seen(item.member)
            return Conflict(detail=f"{seen.instance_id} is there") if seen else NoOp()
        if hide:
            if named[0].hidden:
                return NoOp()
            self._medium.hide(name, named[0])
            return Done(instance_id=item.instance_id)
        if self._readers[item.instance_id]:
            return Busy(detail="it is open for reading")
        self._medium.remove(name, named[0])
        return Done(instance_id=item.instance_id)

    @asynccontextmanager
    async def open(self, member: Member) -> AsyncIterator[RangedReader]:
        """As the port."""
        self._check()
        stored = self._medium.seen(member)
        if stored is None:
            raise TransientError(f"{member.key!r} is not there", "no replica", "observe again")
        self._readers[stored.instance_id] += 1
        try:
            yield ReferenceReader(stored)
        finally:
            self._readers[stored.instance_id] -= 1

    async def verify(
        self, batch: Sequence[Member], *, limit: Limiter | None = None
    ) -> Sequence[Outcome]:
        """As the port."""
        return [await self._verify_one(member, limit) for member in batch]

    async def _verify_one(self, member: Member, limit: Limiter | None) -> Outcome:
        try:
            self._check()
        except ReconcileError as error:
            return outcome_from_error(error)
        stored = self._medium.seen(member)
        if stored is None:
            return Conflict(detail="no complete replica is there")
        if limit is not None:
            await limit.charge(len(stored.content))
        got = hashlib.sha256(stored.content).digest()
        if got != member.sha256:
            return Corrupt(expected=member.sha256, got=got, instance_id=stored.instance_id)
        return Done(instance_id=stored.instance_id, moved_bytes=len(stored.content))

    async def inventory(self, group_id: str | None = None) -> Mapping[str, Sequence[InventoryItem]]:
        """As the port."""
        self._check()
        found: dict[str, list[InventoryItem]] = {}
        for (group, key), replicas in sorted(self._medium.listed().items()):
            for stored in replicas:
                item = InventoryItem(
                    key=key,
                    instance_id=stored.instance_id,
                    size_bytes=len(stored.content),
                    state="quarantined" if stored.hidden else "complete",
                )
                found.setdefault(group, []).append(item)
        return {group: items for group, items in found.items() if group_id in (None, group)}

    async def capacity(self) -> TierCapacity:
        """As the port."""
        self._check()
        total_bytes, free_bytes = self._medium.limit_bytes, self._free_bytes()
        return TierCapacity(
            used_bytes=total_bytes - free_bytes, free_bytes=free_bytes, total_bytes=total_bytes
        )

    def map_path(self, member: Member) -> str | None:  # noqa: ARG002 - the port's signature
        """Not mappable."""
        return None

    def _free_bytes(self) -> int:
        replicas = [stored for found in self._medium.stored.values() for stored in found]
        used_bytes = sum(len(stored.content) for stored in replicas)
        return self._medium.limit_bytes - used_bytes - sum(self._medium.writing.values())


class ReferenceReader:
    """`ports.RangedReader` over bytes; has no descriptor, as a remote tier has none."""

    def __init__(self, stored: Stored) -> None:
        self._content = stored.content
        self.instance_id = stored.instance_id
        self.size_bytes = len(stored.content)

    async def read_into(self, offset: int, buffer: memoryview) -> None:
        """As the port."""
        part = self._content[offset : offset + len(buffer)]
        if len(part) != len(buffer):
            raise TransientError("a read past the end", f"there are {self.size_bytes} bytes")
        buffer[:] = part

    def fileno(self) -> int | None:
        """None: memory of this process only."""
        return None


async def _read(item: StoreItem, limit: Limiter | None) -> bytearray:
    content = bytearray(item.member.size_bytes)
    async with opened_source(item) as reader:
        if reader.size_bytes != len(content):
            return bytearray()
        for offset in range(0, len(content), PIECE_BYTES):
            piece = memoryview(content)[offset : offset + PIECE_BYTES]
            if limit is not None:
                await limit.charge(len(piece))
            await reader.read_into(offset, piece)
    return content
