"""Moving replica bytes between a shared buffer and the device, in a worker.  Layer: nof tier.

Runs beside the index worker and never reads the index.  Invariant: bytes are written only into
extents that this worker has locked under the claim that is on the device: it locks first and reads
the claim then, while a new index writer claims first and looks for locks then, so one of the two
always sees the other.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from weightctl.adapters.nof.header import read_superblock
from weightctl.adapters.nof.layout import BLOCK_BYTES, Geometry, round_up
from weightctl.adapters.nof.medium import FileMedium, open_medium
from weightctl.adapters.shared.translate import error_from_os
from weightctl.controller.errors import ConfigError, TransientError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weightctl.adapters.nof.allocator import Extent
    from weightctl.adapters.nof.pieces import Segment


class _Digest(Protocol):
    def update(self, data: memoryview, /) -> None: ...

    def digest(self) -> bytes: ...


class DataEngine:
    """One worker's hands on the device.  Methods raise ReconcileError."""

    def __init__(self, buffer: memoryview, *, path: str, writable: bool) -> None:
        self._buffer = buffer
        self._path = path
        self._writable = writable
        self._medium: FileMedium | None = None
        self._locked: list[Extent] = []
        self._writing = False
        self._geometry: Geometry | None = None
        self._digests: dict[int, _Digest] = {}
        self._digesting: Future[None] | None = None
        self._digested: Sequence[Segment] = ()
        """What the thread may still be reading."""
        self._thread = ThreadPoolExecutor(1, "weightctl-nof-digest")

    def begin(self, uuid: bytes, claim: int, extents: Sequence[Extent]) -> None:
        """Lock extents for writing.  Raises TransientError where the claim is over."""
        self.end()
        with self._guard():
            medium, geometry = self._opened(uuid)
            for start, count in extents:
                if not medium.lock(geometry.block_offset(start), count * BLOCK_BYTES):
                    self.end()
                    raise _lost("another writer has not ended in these blocks")
                self._locked.append((start, count))
            self._writing = True
            now = read_superblock(medium)
        if now.uuid != uuid or now.claim != claim:
            self.end()
            raise _lost("the index was opened anew since the blocks were reserved")

    def write(self, segments: Sequence[Segment]) -> None:
        """Write each segment's buffer bytes to its runs, digesting them meanwhile."""
        self._digest(segments)
        with self._guard():
            medium = self._medium
            if medium is None or not self._writing:
                raise _lost("no blocks are locked")
            for segment in segments:
                end = segment.buffer_offset + segment.size_bytes
                padded_end = segment.buffer_offset + round_up(segment.size_bytes)
                self._buffer[end:padded_end] = bytes(padded_end - end)
                position = segment.buffer_offset
                for offset, size in segment.runs:
                    medium.write(offset, self._buffer[position : position + size])
                    position += size
        self._settle()

    def read(self, uuid: bytes, segments: Sequence[Segment], *, digest: bool = False) -> None:
        """Fill the buffer from the medium; `digest` digests it while the next piece is read, which
        must go into the other half of the buffer for that.
        """
        if not _apart(segments, self._digested):
            self._settle()
        with self._guard():
            medium, _ = self._opened(uuid)
            for segment in segments:
                position = segment.buffer_offset
                for offset, size in segment.runs:
                    medium.read_into(offset, self._buffer[position : position + size])
                    position += size
        self._settle()
        if digest:
            self._digest(segments)

    def digests(self) -> dict[int, bytes]:
        """Raw SHA-256 by serial of what was written or read for it since the last call."""
        self._settle()
        digests = {serial: state.digest() for serial, state in self._digests.items()}
        self._digests.clear()
        return digests

    def end(self) -> None:
        """Let the locked extents go and forget digests.  Never fails."""
        self._settle()
        self._digests.clear()
        self._writing = False
        if self._medium is None or self._geometry is None:
            return
        for start, count in self._locked:
            self._medium.unlock(self._geometry.block_offset(start), count * BLOCK_BYTES)
        self._locked = []

    def _opened(self, uuid: bytes) -> tuple[FileMedium, Geometry]:
        """The medium, opened anew where the path names another one or it has another uuid."""
        if self._medium is not None and self._geometry is not None and not self._medium.replaced():
            return self._medium, self._geometry
        if self._medium is not None:
            self._medium.close()
            self._medium = None
        medium = open_medium(self._path, writable=self._writable)
        superblock = read_superblock(medium)
        if superblock.uuid != uuid:
            medium.close()
            raise _lost(f"device {superblock.uuid.hex()} is there in place of {uuid.hex()}")
        self._medium, self._geometry = medium, superblock.geometry
        return self._medium, self._geometry

    def _digest(self, segments: Sequence[Segment]) -> None:
        self._settle()
        views = [
            (s.serial, self._buffer[s.buffer_offset : s.buffer_offset + s.size_bytes])
            for s in segments
        ]
        self._digested = segments
        self._digesting = self._thread.submit(self._update, views)

    def _update(self, views: Sequence[tuple[int, memoryview]]) -> None:
        for serial, view in views:
            self._digests.setdefault(serial, hashlib.sha256()).update(view)

    def _settle(self) -> None:
        digesting, self._digesting = self._digesting, None
        if digesting is not None:
            digesting.result()
        self._digested = ()

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """Translate OSError; the medium is opened anew after one."""
        try:
            yield
        except OSError as error:
            self._settle()
            medium, self._medium = self._medium, None
            self._locked, self._writing = [], False
            if medium is not None:
                medium.close()
            raise error_from_os(error, f"nof device {self._path!r}") from error
        except ConfigError as error:
            raise _lost(f"{error.what}: {error.why}") from error


def _apart(one: Sequence[Segment], other: Sequence[Segment]) -> bool:
    """Whether two pieces, each contiguous in the buffer, have no byte of it in common."""
    if not one or not other:
        return True
    low, high = sorted((one, other), key=lambda piece: piece[0].buffer_offset)
    return low[-1].buffer_offset + low[-1].size_bytes <= high[0].buffer_offset


def _lost(why: str) -> TransientError:
    return TransientError("the nof device cannot be used for this", why, "it is tried again")


def make(buffer: memoryview, *, path: str, writable: bool) -> DataEngine:
    """Engine factory for the worker pool; touches nothing."""
    return DataEngine(buffer, path=path, writable=writable)
