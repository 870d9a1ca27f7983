"""Tiers, members and sources for tests of the dfs tier on an ordinary folder."""

import hashlib
from array import array
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import anyio

from weightctl.adapters.dfs.options import parse
from weightctl.adapters.dfs.tier import DfsTier
from weightctl.controller.clock import SystemClock, SystemEntropy
from weightctl.controller.core.observation import Member, Members, MemberState, TierObservation
from weightctl.controller.ports import Clock, Done, DropItem, Fence, Retry, StoreItem, TierContext

FENCE = Fence(holder="store", term=1, operation_id=1, generation=1)
GROUP = "weight:" + "0" * 64
PATIENCE_S = 240.0
R = TypeVar("R")


async def away(call: Callable[..., R], *args: object) -> R:
    """Do what blocks off the loop."""
    return await anyio.to_thread.run_sync(lambda: call(*args))


def dfs(
    folder: Path,
    *,
    host: str = "one",
    clock: Clock | None = None,
    read_only: bool = False,
    holder: str = "store",
    **options: object,
) -> DfsTier:
    """A tier of the controller `host`, which serves the store `holder`, on `folder/shared`."""
    context = TierContext(
        clock=clock or SystemClock(),
        entropy=SystemEntropy(),
        state_dir=str(folder / host),
        read_only=read_only,
        holder=holder,
    )
    given = {"path": str(folder / "shared"), **options}
    return DfsTier("dfs", parse("dfs", given, context), context)


def member(key: str, content: bytes) -> Member:
    digest = hashlib.sha256(content).digest()
    return Member(group_id=GROUP, key=key, size_bytes=len(content), sha256=digest)


class Source:
    """A replica in memory; `gate` holds its reads back, `error` fails them."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.size_bytes = len(content)
        self.instance_id = "source"
        self.gate: anyio.Event | None = None
        self.reading = anyio.Event()
        self.error: Exception | None = None

    async def read_into(self, offset: int, buffer: memoryview) -> None:
        self.reading.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        buffer[:] = self.content[offset : offset + len(buffer)]

    def fileno(self) -> int | None:
        return None


def item(key: str, source: bytes | Source, wanted: bytes | None = None) -> StoreItem:
    """Store `source` as the member that has the content `wanted`."""
    reader = Source(source) if isinstance(source, bytes) else source

    @asynccontextmanager
    async def opened() -> AsyncIterator[Source]:
        yield reader

    return StoreItem(
        member=member(key, reader.content if wanted is None else wanted), open_source=opened
    )


async def store(tier: DfsTier, key: str, content: bytes) -> str:
    """Store one replica that must succeed, in the end; its instance id."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            (outcome,) = await tier.store([item(key, content)], FENCE)
            if not isinstance(outcome, Retry):  # a shared file system may just be away
                break
            await anyio.sleep(0.05)
    assert isinstance(outcome, Done), outcome
    return outcome.instance_id


async def read(tier: DfsTier, key: str, content: bytes) -> bytes:
    async with tier.open(member(key, content)) as reader:
        buffer = bytearray(reader.size_bytes)
        await reader.read_into(0, memoryview(buffer))
    return bytes(buffer)


def dropping(key: str, instance_id: str, content: bytes = b"") -> DropItem:
    return DropItem(member=member(key, content), instance_id=instance_id)


async def observe(tier: DfsTier, *keys: str, detail: Sequence[int] = ()) -> TierObservation:
    count = len(keys)
    members = Members(
        group_id=GROUP,
        keys=keys,
        sizes_bytes=array("Q", bytes(8 * count)),
        sha256=bytes(32 * count),
        data_types=bytes(count),
    )
    return await tier.observe(members, detail=detail)


async def states(tier: DfsTier, *keys: str) -> list[MemberState]:
    return [MemberState(state) for state in (await observe(tier, *keys)).states]
