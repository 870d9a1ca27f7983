"""Readers whose bytes go wrong, or pass through somebody.  Layer: conformance."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from weightctl.controller.errors import CapacityError
from weightctl.controller.ports import RangedReader, StoreItem

Through = Callable[[Callable[[], Awaitable[None]], memoryview], Awaitable[None]]
"""Carries out the reading of one piece into a buffer, or does not."""


class PassingReader:
    """Each piece passes through `through`."""

    def __init__(self, inner: RangedReader, through: Through) -> None:
        self._inner = inner
        self._through = through
        self.size_bytes = inner.size_bytes
        self.instance_id = inner.instance_id

    async def read_into(self, offset: int, buffer: memoryview) -> None:
        """As the port."""
        await self._through(partial(self._inner.read_into, offset, buffer), buffer)

    def fileno(self) -> int | None:
        """None: the bytes must pass."""
        return None


class HurtReader:
    """Turns a bit of each piece, or finds the medium full after `full_after_bytes`."""

    def __init__(self, inner: RangedReader, full_after_bytes: float | None) -> None:
        self._inner = inner
        self._full_after_bytes = full_after_bytes
        self.size_bytes = inner.size_bytes
        self.instance_id = inner.instance_id

    async def read_into(self, offset: int, buffer: memoryview) -> None:
        """As the port, wrongly."""
        full = self._full_after_bytes
        if full is not None and offset + len(buffer) > full:
            raise CapacityError(offset + len(buffer), int(full), "injected")
        await self._inner.read_into(offset, buffer)
        if full is None and len(buffer):
            buffer[0] ^= 1

    def fileno(self) -> int | None:
        """None: the bytes must pass."""
        return None


def hurt(item: StoreItem, full_after_bytes: float | None) -> StoreItem:
    """The item with a source whose bytes go wrong."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[RangedReader]:
        async with item.open_source() as reader:
            yield HurtReader(reader, full_after_bytes)

    return StoreItem(member=item.member, open_source=opened)
