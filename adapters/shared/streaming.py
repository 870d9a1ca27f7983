"""Moving bytes while they are digested.  Layer: adapters, shared; blocking, runs in worker threads.

Reading and writing happen in the calling thread, SHA-256 in a second one, over a ring of pooled
buffers, so a copy costs the slower of the two and not their sum.  The digest is taken of the very
buffers that are written.  The kernel's own copy calls are not used: the digest needs every byte in
user space anyway, so they were measured to be slower here, and a reflink would make two replicas
share one block of the medium.  Invariant: memory is bounded by the pool; a buffer is filled again
only after it was both written and digested.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TYPE_CHECKING, Protocol, Self

from weightctl.adapters.shared.files import read_at
from weightctl.controller.errors import TransientError
from weightctl.controller.ports import PIECE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK_BYTES = 1024 * 1024
"""Unit of one system call: still in the processor's cache when it is written and digested."""

_RING = PIECE_BYTES // BLOCK_BYTES


class Gate(Protocol):
    """Called before `size_bytes` more are moved: waits for bandwidth, raises to stop the work."""

    def __call__(self, size_bytes: int, /) -> None:
        """Return when they may flow."""


Move = Callable[[memoryview, int], None]
"""`move(view, offset)`: read or write the whole view at that byte, or raise."""
Copy = Callable[[Move, Move, int], bytes]
"""`copy(read, write, size_bytes)`: move that many bytes and give their raw SHA-256."""


class Buffers:
    """A bounded pool of buffers of PIECE_BYTES each; taking one waits until one is free."""

    def __init__(self, count: int) -> None:
        self._free: SimpleQueue[memoryview | None] = SimpleQueue()
        for _ in range(count):
            self._free.put(None)  # made when first used

    @contextmanager
    def taken(self) -> Iterator[memoryview]:
        """One buffer of PIECE_BYTES; what it holds is left over from its last use."""
        buffer = self._free.get() or memoryview(bytearray(PIECE_BYTES))
        try:
            yield buffer
        finally:
            self._free.put(buffer)


class DigestThread:
    """SHA-256 in a thread of its own; use as a context manager.

    `feed` blocks while all blocks of the ring are in use; `result` waits for what was fed.
    """

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._fed: SimpleQueue[memoryview | None] = SimpleQueue()
        self.done: SimpleQueue[memoryview] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="weightctl-digest", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._fed.put(None)
        self._thread.join()

    def feed(self, block: memoryview) -> None:
        """Digest `block` next; it comes back through `done`."""
        self._fed.put(block)

    def result(self) -> bytes:
        """Raw digest of all that was fed; nothing can be fed after it."""
        self.__exit__()
        return self._digest.digest()

    def _run(self) -> None:
        while (block := self._fed.get()) is not None:
            self._digest.update(block)
            self.done.put(block)


def copy_digested(
    read: Move, write: Move, size_bytes: int, *, buffers: Buffers, gate: Gate
) -> bytes:
    """Move `size_bytes` from `read` to `write`; their raw SHA-256.  A `Copy` with the rest bound.

    `gate` is asked before each PIECE_BYTES.
    """
    with buffers.taken() as buffer:
        if size_bytes <= BLOCK_BYTES:
            return _copy_one(read, write, buffer[:size_bytes], gate)
        with DigestThread() as digest:
            for block in range(_RING):
                digest.done.put(buffer[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES])
            for offset in range(0, size_bytes, BLOCK_BYTES):
                if offset % PIECE_BYTES == 0:
                    gate(min(PIECE_BYTES, size_bytes - offset))
                # The oldest block was written long ago and digested just now.
                view = digest.done.get()
                view = view[: min(BLOCK_BYTES, size_bytes - offset)]
                read(view, offset)
                digest.feed(view)
                write(view, offset)
            return digest.result()


def _copy_one(read: Move, write: Move, view: memoryview, gate: Gate) -> bytes:
    gate(len(view))
    if view:
        read(view, 0)
        write(view, 0)
    return hashlib.sha256(view).digest()


def reader_of(fd: int, what: str) -> Move:
    """`read(view, offset)` of an open file.  A file that is too short is TransientError."""

    def read(view: memoryview, offset: int) -> None:
        if read_at(fd, view, offset) != len(view):
            raise TransientError(what, f"it ends before byte {offset + len(view)}", "look again")

    return read
