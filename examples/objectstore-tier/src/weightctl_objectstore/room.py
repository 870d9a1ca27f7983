"""How much is used: counted by one listing, then kept by what this process does.

An object store has no end, and the Tier API no word for that: without `capacity_bytes` the tier
says that it has UNBOUNDED bytes in all.
"""

from collections.abc import Awaitable, Callable

from anyio import Lock

from weightctl.controller.core.tiers import TierCapacity
from weightctl.controller.errors import CapacityError
from weightctl.controller.ports import Clock

UNBOUNDED = 2**60
RECOUNT_S = 900.0
"""After that long the bucket is listed again: somebody else may have removed something."""


class Room:
    """The bytes of one tier; `count` lists the bucket."""

    def __init__(
        self, limit_bytes: int | None, count: Callable[[], Awaitable[int]], clock: Clock
    ) -> None:
        self._limit_bytes = limit_bytes
        self._count = count
        self._clock = clock
        self._counting = Lock()
        self._used_bytes = 0
        self._reserved_bytes = 0
        self._counted_s = float("-inf")
        self._changes = 0

    async def capacity(self) -> TierCapacity:
        """Raises ReconcileError when it had to count and could not."""
        async with self._counting:
            if self._clock.monotonic_s() - self._counted_s >= RECOUNT_S:
                await self._recount()
        total_bytes = self._limit_bytes or UNBOUNDED
        used_bytes = self._used_bytes
        free_bytes = max(total_bytes - used_bytes - self._reserved_bytes, 0)
        return TierCapacity(used_bytes=used_bytes, free_bytes=free_bytes, total_bytes=total_bytes)

    async def _recount(self) -> None:
        changes = self._changes
        self._used_bytes = await self._count()
        if changes == self._changes:  # else what was listed may hold a part of the changes
            self._counted_s = self._clock.monotonic_s()

    async def reserve(self, size_bytes: int) -> None:
        """Keep room for a replica that is about to be stored.  Raises CapacityError."""
        if self._limit_bytes is not None:
            free_bytes = (await self.capacity()).free_bytes
            if size_bytes > free_bytes:
                raise CapacityError(size_bytes, free_bytes, "it does not fit")
        self._reserved_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        """The opposite of `reserve`."""
        self._reserved_bytes -= size_bytes

    def changed(self, size_bytes: int) -> None:
        """So many bytes were stored, or removed where it is negative."""
        self._used_bytes += size_bytes
        self._changes += 1

    def forget(self) -> None:
        """An answer was lost: count again."""
        self._counted_s = float("-inf")
        self._changes += 1
