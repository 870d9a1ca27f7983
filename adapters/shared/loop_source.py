"""Reading from a tier that only answers on the loop, one piece ahead.  Layer: adapters, shared.

`LoopSource.read` runs in a worker thread: while it hands out one piece, the loop fetches the next,
so a copy costs the slower of reading and writing.  Invariant: nothing is handed out that was not
wholly read; the buffers belong to this copy alone, because a cancelled read may still fill its own
for a moment.
"""

from __future__ import annotations

from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING

from anyio import from_thread

from weightctl.controller.errors import InvariantViolationError, TransientError, require
from weightctl.controller.ports import PIECE_BYTES

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from weightctl.controller.ports import RangedReader


class LoopSource:
    """The bytes of `reader` from first to last, for one thread."""

    def __init__(self, reader: RangedReader, portal: BlockingPortal, size_bytes: int) -> None:
        self._reader = reader
        self._portal = portal
        self._size_bytes = size_bytes
        self._spare = [memoryview(bytearray(min(PIECE_BYTES, size_bytes))) for _ in range(2)]
        self._piece = memoryview(b"")
        self._piece_at = -1
        self._ahead: Future[None] | None = None
        self._ahead_view = self._piece

    def read(self, view: memoryview, offset: int) -> None:
        """Fill `view`, which lies in one piece; offsets only grow.  Raises ReconcileError."""
        piece_at = offset - offset % PIECE_BYTES
        if piece_at != self._piece_at:
            self._next(piece_at)
        start = offset - piece_at
        view[:] = self._piece[start : start + len(view)]

    def _next(self, piece_at: int) -> None:
        if self._ahead is None:
            self._fetch(piece_at)
        self._wait()
        done, self._piece, self._piece_at = self._piece, self._ahead_view, piece_at
        if len(done):
            self._spare.append(done)
        if piece_at + PIECE_BYTES < self._size_bytes:
            self._fetch(piece_at + PIECE_BYTES)

    def _fetch(self, piece_at: int) -> None:
        require(self._spare, "a piece is fetched while both buffers are in use")
        self._ahead_view = self._spare.pop()[: self._size_bytes - piece_at]
        self._ahead = self._portal.start_task_soon(
            self._reader.read_into, piece_at, self._ahead_view
        )

    def _wait(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            raise InvariantViolationError("a piece is awaited that was not asked for")
        try:
            ahead.result()
        except CancelledError:
            from_thread.check_cancelled()
            raise TransientError("reading the source", "it was cancelled", "try again") from None
