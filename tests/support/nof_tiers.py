"""Sources, members and tiers for tests of the nof tier on real files."""

from array import array
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ParamSpec, TypeVar

import anyio
import anyio.lowlevel
from anyio import to_thread

from tests.support.nof_media import GROUP, member
from weightctl.adapters.nof.options import build
from weightctl.adapters.nof.tier import NofTier
from weightctl.controller.clock import SystemClock, SystemEntropy
from weightctl.controller.core.observation import Members, MemberState, TierObservation
from weightctl.controller.ports import DropItem, StoreItem, TierContext

MIB = 1024 * 1024
P = ParamSpec("P")
R = TypeVar("R")


async def away(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Do what blocks off the loop."""
    return await to_thread.run_sync(lambda: call(*args, **kwargs))


async def until(tier: NofTier, key: str, state: MemberState) -> None:
    """Observe until the key has that state: worker processes come and go in their own time."""
    with anyio.fail_after(240):
        while await states(tier, key) != [state]:
            await anyio.lowlevel.checkpoint()


class BytesReader:
    """A source in memory; `gate` holds its reads back, `error` fails them."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self._view = memoryview(content)
        self.size_bytes = len(content)
        self.instance_id = "source"
        self.gate: anyio.Event | None = None
        self.reading = anyio.Event()
        self.error: Exception | None = None
        self.open = 0

    async def read_into(self, offset: int, buffer: memoryview) -> None:
        self.reading.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        buffer[:] = self._view[offset : offset + len(buffer)]

    def fileno(self) -> int | None:
        return None


def item(key: str, source: bytes | BytesReader, wanted: bytes | None = None) -> StoreItem:
    """Store `source` as the member that has the content `wanted`."""
    reader = BytesReader(source) if isinstance(source, bytes) else source

    @asynccontextmanager
    async def opened() -> AsyncIterator[BytesReader]:
        reader.open += 1
        try:
            yield reader
        finally:
            reader.open -= 1

    content = reader.content if wanted is None else wanted
    return StoreItem(member=member(key, content), open_source=opened)


def dropping(key: str, instance_id: str) -> DropItem:
    return DropItem(member=member(key, b""), instance_id=instance_id)


def nof(
    folder: Path,
    *,
    read_only: bool = False,
    state: str = "state",
    holder: str = "store",
    **options: object,
) -> NofTier:
    """A tier on `folder/n.img`, a plain file of 64 MiB unless the options say otherwise."""
    context = TierContext(
        clock=SystemClock(),
        entropy=SystemEntropy(),
        state_dir=str(folder / state),
        read_only=read_only,
        holder=holder,
    )
    return build("n", {"path": str(folder / "n.img"), "size_bytes": 64 * MIB} | options, context)


async def observe(tier: NofTier, *keys: str, detail: Sequence[int] = ()) -> TierObservation:
    count = len(keys)
    members = Members(
        group_id=GROUP,
        keys=keys,
        sizes_bytes=array("Q", bytes(8 * count)),
        sha256=bytes(32 * count),
        data_types=bytes(count),
    )
    return await tier.observe(members, detail=detail)


async def states(tier: NofTier, *keys: str) -> list[MemberState]:
    return [MemberState(state) for state in (await observe(tier, *keys)).states]
