"""What the import hands to tiers to read from.  Layer: weightstore.

A payload is read straight from its range of the source file, the manifest from memory.  Neither
offers a descriptor: a payload does not start at byte 0 of its file.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from weightctl.controller.ports import StoreItem
from weightctl.controller.weightstore.source import ModelSource

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from weightctl.controller.core.observation import Member
    from weightctl.controller.weightstore.layout import Payload

SMALL_BYTES = 64 * 1024
"""A payload up to this size costs less to copy than to ask a thread for."""


@asynccontextmanager
async def opened(path: str | os.PathLike[str]) -> AsyncIterator[ModelSource]:
    """The checked source; its descriptors are closed in every case.  Raises SourceError."""
    source = ModelSource(path)
    await to_thread.run_sync(source.__enter__)
    try:
        yield source
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(source.close)


class PayloadReader:
    """Reads one payload object from its source file; `on_read` hears of each piece."""

    instance_id = ""

    def __init__(
        self, source: ModelSource, payload: Payload, on_read: Callable[[int], None]
    ) -> None:
        self._source = source
        self._payload = payload
        self._on_read = on_read

    @property
    def size_bytes(self) -> int:
        """Size of the payload object."""
        return self._payload.nbytes

    async def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill `buffer` from byte `offset` of the payload.  Raises SourceError."""
        file = self._source.files[self._payload.file]
        at = self._payload.offset + offset
        await to_thread.run_sync(self._source.read_into, file, at, buffer)
        self._on_read(len(buffer))

    def fileno(self) -> int | None:
        """None: the descriptor's byte 0 is the file's, not the payload's."""
        return None


class BytesReader:
    """Reads from memory."""

    instance_id = ""

    def __init__(self, content: bytes) -> None:
        self._content = memoryview(content)

    @property
    def size_bytes(self) -> int:
        """Size of the content."""
        return len(self._content)

    async def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill `buffer` from byte `offset`."""
        buffer[:] = self._content[offset : offset + len(buffer)]

    def fileno(self) -> int | None:
        """None: there is no file."""
        return None


def read_small(source: ModelSource, payloads: Sequence[Payload]) -> dict[str, bytes]:
    """The content of the small ones among `payloads`, by key: one thread hop for a whole batch."""
    contents: dict[str, bytes] = {}
    for payload in payloads:
        if payload.nbytes <= SMALL_BYTES:
            content = bytearray(payload.nbytes)
            source.read_into(source.files[payload.file], payload.offset, memoryview(content))
            contents[payload.key] = bytes(content)
    return contents


def item(member: Member, reader: PayloadReader | BytesReader) -> StoreItem:
    """One replica to bring in from `reader`."""
    return StoreItem(member=member, open_source=lambda: nullcontext(reader))
