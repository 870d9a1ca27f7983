"""What the import hands to tiers to read from.  Layer: weightstore.

A payload is read straight from its range of the source file; small payloads and the manifest come
from memory.  Every piece is read under a guard that knows whether the import still goes on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING

from anyio import to_thread

from weightctl.controller.ports import StoreItem
from weightctl.controller.weightstore.parallel import finished
from weightctl.controller.weightstore.source import ModelSource

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from weightctl.controller.core.observation import Member
    from weightctl.controller.weightstore.layout import Payload

Fetch = Callable[[int, memoryview], Awaitable[None]]
Guard = Callable[[], Awaitable[None]]
SMALL_BYTES = 64 * 1024
"""A payload up to this size costs less to copy than to ask a thread for."""


@asynccontextmanager
async def opened(path: str | os.PathLike[str]) -> AsyncIterator[ModelSource]:
    """The checked source; its descriptors are closed in every case.  Raises SourceError."""
    source = ModelSource(path)

    async def enter() -> None:
        await to_thread.run_sync(source.__enter__)

    try:
        await finished(enter)
        yield source
    finally:
        await finished(lambda: to_thread.run_sync(source.close))


class Reader:
    """A `RangedReader` over a fetch; before each piece the guard may stop the writing.

    The guard runs when the tier has claimed the key, so a writer whose import was aborted meanwhile
    cannot bring in an object that the deletion has already seen as absent.
    """

    instance_id = ""

    def __init__(self, size_bytes: int, fetch: Fetch, guard: Guard) -> None:
        self.size_bytes = size_bytes
        self._fetch = fetch
        self._guard = guard

    async def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill `buffer` from byte `offset`.  Raises SourceError, or FencedError from the guard."""
        await self._guard()
        await self._fetch(offset, buffer)

    def fileno(self) -> int | None:
        """None: no descriptor starts at byte 0 of the object."""
        return None


def payload_reader(
    source: ModelSource, payload: Payload, guard: Guard, on_read: Callable[[int], None]
) -> Reader:
    """Reads a payload object from its source file; `on_read` hears of each piece."""

    async def fetch(offset: int, buffer: memoryview) -> None:
        file = source.files[payload.file]
        await to_thread.run_sync(source.read_into, file, payload.offset + offset, buffer)
        on_read(len(buffer))

    return Reader(payload.nbytes, fetch, guard)


def bytes_reader(content: bytes, guard: Guard) -> Reader:
    """Reads from memory."""

    async def fetch(offset: int, buffer: memoryview) -> None:
        buffer[:] = memoryview(content)[offset : offset + len(buffer)]

    return Reader(len(content), fetch, guard)


def read_small(source: ModelSource, payloads: Sequence[Payload]) -> dict[str, bytes]:
    """The content of the small ones among `payloads`, by key: one thread hop for a whole batch."""
    contents: dict[str, bytes] = {}
    for payload in payloads:
        if payload.nbytes <= SMALL_BYTES:
            content = bytearray(payload.nbytes)
            source.read_into(source.files[payload.file], payload.offset, memoryview(content))
            contents[payload.key] = bytes(content)
    return contents


def item(member: Member, reader: Reader) -> StoreItem:
    """One replica to bring in from `reader`."""
    return StoreItem(member=member, open_source=lambda: nullcontext(reader))
