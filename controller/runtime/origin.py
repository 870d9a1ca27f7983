"""Where a store's bytes come from, watched.  Layer: runtime.

A store that fails is the fault of the tier that gives the bytes or of the one that takes them, and
its outcome does not say of which.  Seen from the source it is plain: it was not opened, a read of
it failed or never ended, or all that was asked of it was given.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType

from weightctl.controller.ports import RangedReader


class Origin:
    """The source of one item: a context manager that gives a reader, to be opened once or more."""

    def __init__(self, opened: Callable[[], AbstractAsyncContextManager[RangedReader]]) -> None:
        self._opened = opened
        self.asked = 0
        """How often something was asked of it."""
        self.given = 0
        """How often it was given."""
        self.lent = False
        """Whether its descriptor was handed on: how reading that went is not known here."""

    @property
    def failed(self) -> bool:
        """Whether something that was asked of it was not given, or not yet."""
        return self.given < self.asked

    def __call__(self) -> "_Opening":
        """Opens it."""
        return _Opening(self, self._opened())


class _Opening:
    def __init__(self, origin: Origin, opening: AbstractAsyncContextManager[RangedReader]) -> None:
        self._origin = origin
        self._opening = opening

    async def __aenter__(self) -> "_OriginReader":
        self._origin.asked += 1
        reader = await self._opening.__aenter__()
        self._origin.given += 1
        return _OriginReader(self._origin, reader)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._opening.__aexit__(kind, error, trace)


class _OriginReader:
    """`ports.RangedReader` over that of the tier."""

    def __init__(self, origin: Origin, reader: RangedReader) -> None:
        self._origin = origin
        self._reader = reader

    @property
    def size_bytes(self) -> int:
        """As the port."""
        return self._reader.size_bytes

    @property
    def instance_id(self) -> str:
        """As the port."""
        return self._reader.instance_id

    async def read_into(self, offset: int, buffer: memoryview) -> None:
        """As the port."""
        self._origin.asked += 1
        await self._reader.read_into(offset, buffer)
        self._origin.given += 1

    def fileno(self) -> int | None:
        """As the port."""
        descriptor = self._reader.fileno()
        self._origin.lent = descriptor is not None
        return descriptor
