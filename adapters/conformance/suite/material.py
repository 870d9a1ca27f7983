"""What the cases of the suite are made of: members, contents, sources, fences.  Layer: conformance.

Everything is derived from its arguments, so that two runs ask for the same bytes.
"""

import hashlib
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from weightctl.controller.clock import SystemClock, SystemEntropy
from weightctl.controller.core.observation import Member, Members, MemberState
from weightctl.controller.errors import TransientError
from weightctl.controller.ports import (
    DropItem,
    Fence,
    Outcome,
    RangedReader,
    StoreItem,
    Tier,
    TierContext,
)

GROUP = "weight:" + "5a" * 32
HOLDER = "store-a"
"""The store that `TierHarness.tier` is for."""


def context(state_dir: Path, *, read_only: bool = False, holder: str = HOLDER) -> TierContext:
    """A context as the host gives it."""
    return TierContext(
        clock=SystemClock(),
        entropy=SystemEntropy(),
        state_dir=str(state_dir),
        read_only=read_only,
        holder=holder,
    )


def content_of(size_bytes: int, seed: int = 0) -> bytes:
    """Bytes that differ for each seed and do not repeat within a piece."""
    return hashlib.shake_128(f"{seed}:{size_bytes}".encode()).digest(size_bytes)


def member_of(key: str, content: bytes, group_id: str = GROUP) -> Member:
    """The member that `content` under `key` is."""
    return Member(
        group_id=group_id,
        key=key,
        size_bytes=len(content),
        sha256=hashlib.sha256(content).digest(),
    )


def members_of(members: Sequence[Member]) -> Members:
    """The table of some members of one group."""
    return Members(
        group_id=members[0].group_id if members else GROUP,
        keys=[member.key for member in members],
        sizes_bytes=array("Q", [member.size_bytes for member in members]),
        sha256=b"".join(member.sha256 for member in members),
        data_types=bytes(member.data_type for member in members),
    )


def fence(term: int = 1, holder: str = "store-a") -> Fence:
    return Fence(holder=holder, term=term, operation_id=1, generation=1)


@dataclass(slots=True)
class BytesReader:
    """A ranged reader over bytes, without a descriptor; `before_read` may wait or fail."""

    content: bytes
    size_bytes: int
    before_read: Callable[[], Awaitable[None]] | None = None
    instance_id: str = "source"

    async def read_into(self, offset: int, buffer: memoryview) -> None:
        if self.before_read is not None:
            await self.before_read()
        part = self.content[offset : offset + len(buffer)]
        if len(part) != len(buffer):
            raise TransientError("the source", "it is too short")
        buffer[:] = part

    def fileno(self) -> int | None:
        return None


def source_of(
    content: bytes,
    size_bytes: int | None = None,
    before_read: Callable[[], Awaitable[None]] | None = None,
) -> Callable[[], AbstractAsyncContextManager[RangedReader]]:
    """An `open_source` that reads `content` and says that it has `size_bytes`."""
    size = len(content) if size_bytes is None else size_bytes
    return opened_with(BytesReader(content, size, before_read))


def opened_with(reader: RangedReader) -> Callable[[], AbstractAsyncContextManager[RangedReader]]:
    """An `open_source` that gives this reader."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[RangedReader]:
        yield reader

    return opened


def failing_source(
    content: bytes, error: Exception, when: str
) -> Callable[[], AbstractAsyncContextManager[RangedReader]]:
    """An `open_source` that raises `error` when it is `opened`, `read` or `closed`."""

    async def fail() -> None:
        raise error

    @asynccontextmanager
    async def opened() -> AsyncIterator[RangedReader]:
        if when == "opened":
            raise error
        yield BytesReader(content, len(content), fail if when == "read" else None)
        if when == "closed":
            raise error

    return opened


@asynccontextmanager
async def no_source() -> AsyncIterator[RangedReader]:
    """A source that cannot be opened."""
    raise TransientError("the source", "it has gone")
    yield  # type: ignore[unreachable]


def item_of(member: Member, content: bytes) -> StoreItem:
    return StoreItem(member=member, open_source=source_of(content))


async def store(tier: Tier, contents: dict[str, bytes], group_id: str = GROUP) -> list[Member]:
    """Store every content under its key; their members."""
    members = [member_of(key, content, group_id) for key, content in contents.items()]
    batch = [item_of(member, contents[member.key]) for member in members]
    outcomes = await tier.store(batch, fence())
    assert [type(outcome).__name__ for outcome in outcomes] == ["Done"] * len(members), outcomes
    return members


async def store_one(tier: Tier, key: str, content: bytes) -> Member:
    return (await store(tier, {key: content}))[0]


async def states(tier: Tier, *members: Member) -> list[MemberState]:
    observation = await tier.observe(members_of(members))
    assert len(observation.states) == len(members)
    return [MemberState(state) for state in observation.states]


async def instance(tier: Tier, member: Member) -> str:
    """The instance id of the member's replica, as it is observed."""
    observation = await tier.observe(members_of([member]), detail=[0])
    return observation.details[0].instance_id


async def drop_item(tier: Tier, member: Member) -> DropItem:
    return DropItem(member=member, instance_id=await instance(tier, member))


async def read_all(tier: Tier, member: Member) -> bytes:
    async with tier.open(member) as reader:
        buffer = bytearray(reader.size_bytes)
        await reader.read_into(0, memoryview(buffer))
        return bytes(buffer)


def kinds(outcomes: Sequence[Outcome]) -> list[str]:
    """Names of the outcomes, which read best in an assertion."""
    return [type(outcome).__name__ for outcome in outcomes]


@dataclass(slots=True)
class CountingLimiter:
    """A limiter that lets everything pass and keeps what it was charged."""

    charged: list[int] = field(default_factory=list)

    async def charge(self, size_bytes: int) -> None:
        self.charged.append(size_bytes)
