"""An open replica of the nof tier.  Layer: a tier; runs on the loop, touches no medium itself.

Bytes are read by a data worker from where the index said that they lie.  Invariant: they are given
out only if the replica is there afterwards, too; what was dropped meanwhile may have been written
over while it was read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weightctl.adapters.nof.device import instance_id
from weightctl.adapters.nof.pieces import Span
from weightctl.adapters.nof.transfers import read_stored
from weightctl.controller.errors import TransientError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from weightctl.adapters.nof.layout import Superblock
    from weightctl.adapters.nof.records import Replica
    from weightctl.adapters.shared.workers import WorkerPool


class Reader:
    """`ports.RangedReader` of one replica; `lives` asks the index whether it is still there."""

    def __init__(
        self,
        superblock: Superblock,
        replica: Replica,
        *,
        pool: WorkerPool,
        lives: Callable[[], Awaitable[Sequence[bool]]],
    ) -> None:
        self._superblock = superblock
        self._replica = replica
        self._pool = pool
        self._lives = lives
        self.size_bytes = replica.size_bytes
        self.instance_id = instance_id(superblock.uuid, replica.serial)

    async def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill `buffer` wholly from byte `offset`.  Raises a ReconcileError."""
        replica = self._replica
        if offset < 0 or offset + len(buffer) > replica.size_bytes:
            raise TransientError(
                f"bytes {offset}+{len(buffer)} of {replica.key!r} cannot be read",
                f"it has {replica.size_bytes} bytes",
                "observe again",
            )
        if not buffer:
            return
        span = Span(replica.serial, replica.size_bytes, replica.extents)
        async with self._pool.lease() as lease:
            await read_stored(lease, self._superblock, span, offset, buffer)
        (alive,) = await self._lives()
        if not alive:
            raise TransientError(
                f"{replica.key!r} cannot be read", "it was dropped meanwhile", "observe again"
            )

    def fileno(self) -> int | None:
        """None: reads of the device may hang."""
        return None
