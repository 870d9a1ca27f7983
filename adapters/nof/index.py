"""The append-only log of the index: frames in one half, each written twice.  Layer: nof tier.

A frame is whole blocks and is flushed before the next one is begun, so at most the last one can be
torn.  Each carries the digest of the one before it; frames of another use of the half name another
epoch.  Invariant: replay gives every flushed frame, in order, or raises: an invalid frame is the
end of the log only where nothing valid of this epoch lies behind it.  What one copy lost, the other
one repairs.
"""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weightctl.adapters.nof.layout import (
    BLOCK_BYTES,
    DIGEST_BYTES,
    Geometry,
    aligned_buffer,
    checksum,
    round_up,
)
from weightctl.controller.errors import TerminalError, require

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weightctl.adapters.nof.medium import Medium

COPIES = (0, 1)
_MAGIC = b"nofF"
_HEAD = struct.Struct(f"<4sIQQQ{DIGEST_BYTES}s")
_HEADER_BYTES = _HEAD.size + DIGEST_BYTES
_FRAME_BYTES_MAX = 1024 * 1024
_WINDOW_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One frame that is sound by itself; whether it belongs here its `previous` decides."""

    sequence: int
    claim: int
    previous: bytes
    digest: bytes
    payload: memoryview
    size_bytes: int


def frame_bytes_max(geometry: Geometry) -> int:
    """Bound of a frame, so that many fit into a half."""
    return min(_FRAME_BYTES_MAX, geometry.half_bytes // 8 // BLOCK_BYTES * BLOCK_BYTES)


def payload_bytes_max(geometry: Geometry) -> int:
    """Bound of a frame's payload."""
    return frame_bytes_max(geometry) - _HEADER_BYTES


def decode_frame(view: memoryview, uuid: bytes, epoch: int) -> Frame | None:
    """The sound frame of that epoch at the start of `view`, or None."""
    if len(view) < _HEADER_BYTES or view[:4] != _MAGIC:
        return None
    _, size, frame_epoch, sequence, claim, previous = _HEAD.unpack_from(view)
    if frame_epoch != epoch or _HEADER_BYTES + size > len(view):
        return None
    digest = bytes(view[_HEAD.size : _HEADER_BYTES])
    payload = view[_HEADER_BYTES : _HEADER_BYTES + size]
    if checksum(view[: _HEAD.size], payload, key=uuid) != digest:
        return None
    return Frame(
        sequence=sequence,
        claim=claim,
        previous=previous,
        digest=digest,
        payload=payload,
        size_bytes=round_up(_HEADER_BYTES + size),
    )


class IndexLog:
    """The frames of one epoch in one half."""

    def __init__(
        self, medium: Medium, geometry: Geometry, *, uuid: bytes, half: int, epoch: int
    ) -> None:
        self._medium = medium
        self._geometry = geometry
        self._uuid = uuid
        self.half = half
        self.epoch = epoch
        self.sequence = 0
        """Frames so far; the next one gets this number."""
        self._position = 0
        self._last = checksum(epoch.to_bytes(8, "little"), key=uuid)
        self._repairs: list[tuple[int, int, bytes]] = []

    @property
    def free_bytes(self) -> int:
        """What is left of the half."""
        return self._geometry.half_bytes - self._position

    def fits(self, payload_bytes: int) -> bool:
        """Whether a frame with that payload fits behind the last one."""
        return round_up(_HEADER_BYTES + payload_bytes) <= self.free_bytes

    def append(self, payload: bytes, claim: int) -> None:
        """Write a frame, both copies.  It counts only after the medium's next `sync`."""
        require(self.fits(len(payload)), "nof index", "a frame does not fit into its half")
        size = round_up(_HEADER_BYTES + len(payload))
        head = _HEAD.pack(_MAGIC, len(payload), self.epoch, self.sequence, claim, self._last)
        digest = checksum(head, payload, key=self._uuid)
        buffer = aligned_buffer(size)
        buffer[: _HEADER_BYTES + len(payload)] = head + digest + payload
        for copy in COPIES:
            self._medium.write(self._offset(copy) + self._position, buffer)
        self._last = digest
        self._position += size
        self.sequence += 1

    def replay(self, sequence: int, *, exact: bool) -> Iterator[memoryview]:
        """Payloads of all flushed frames; then the log is ready to append.

        At least `sequence` frames must be there, exactly as many when `exact` (the last writer
        closed the device).  Raises TerminalError for damage, OSError when neither copy reads.
        """
        windows = [_Window(self._medium, self._offset(copy), self._geometry) for copy in COPIES]
        while (frame := self._next(windows)) is not None:
            self._last = frame.digest
            self._position += frame.size_bytes
            self.sequence += 1
            yield frame.payload
        if all(window.lost(self._position) for window in windows):
            raise OSError(errno.EIO, f"both copies of index block {self._position} cannot be read")
        if self.sequence < sequence or (exact and self.sequence != sequence):
            raise _damaged(f"{sequence} frames were written and {self.sequence} can be read")
        if not exact:
            self._refuse_later_frames(windows)

    def repair(self) -> int:
        """Rewrite what one copy lost from the other one; how many frames.  Sync afterwards."""
        for copy, position, raw in self._repairs:
            buffer = aligned_buffer(len(raw))
            buffer[:] = raw
            self._medium.write(self._offset(copy) + position, buffer)
        count = len(self._repairs)
        self._repairs = []
        return count

    def _next(self, windows: list[_Window]) -> Frame | None:
        limit = frame_bytes_max(self._geometry)
        views = [window.view(self._position, limit) for window in windows]
        frames = [self._following(view) for view in views]
        good = next((frame for frame in frames if frame is not None), None)
        if good is None:
            return None
        source = views[frames.index(good)][: good.size_bytes]
        for copy, view in enumerate(views):
            if view[: good.size_bytes] != source:
                self._repairs.append((copy, self._position, bytes(source)))
        return good

    def _following(self, view: memoryview) -> Frame | None:
        frame = decode_frame(view, self._uuid, self.epoch)
        if frame is None or frame.sequence != self.sequence or frame.previous != self._last:
            return None
        return frame

    def _refuse_later_frames(self, windows: list[_Window]) -> None:
        limit = frame_bytes_max(self._geometry)
        for window in windows:
            position = self._position
            while position < self._geometry.half_bytes:
                view = window.view(position, limit)
                frame = decode_frame(view, self._uuid, self.epoch)
                if frame is not None and frame.sequence >= self.sequence:
                    raise _damaged(f"frame {self.sequence} is broken and {frame.sequence} is not")
                position += BLOCK_BYTES

    def _offset(self, copy: int) -> int:
        return self._geometry.index_offset(self.half, copy)


class _Window:
    """Reads one copy of a half in large pieces; a block that cannot be read looks like zeros."""

    def __init__(self, medium: Medium, offset: int, geometry: Geometry) -> None:
        self._medium = medium
        self._offset = offset
        self._limit = geometry.half_bytes
        self._buffer = aligned_buffer(min(_WINDOW_BYTES, self._limit))
        self._start = self._end = 0
        self._lost: set[int] = set()

    def view(self, position: int, size: int) -> memoryview:
        """The bytes from `position` on, `size` of them or up to the end of the half."""
        end = min(position + size, self._limit)
        if position < self._start or end > self._end:
            self._load(position)
        return self._buffer[position - self._start : end - self._start]

    def lost(self, position: int) -> bool:
        """Whether the block at `position` could not be read."""
        return position in self._lost

    def _load(self, position: int) -> None:
        self._start, self._end = position, min(position + len(self._buffer), self._limit)
        self._buffer = aligned_buffer(len(self._buffer))  # views of the old one are in use
        try:
            self._medium.read_into(self._offset + position, self._buffer[: self._end - position])
        except OSError:
            self._load_blocks()

    def _load_blocks(self) -> None:
        for position in range(self._start, self._end, BLOCK_BYTES):
            at = position - self._start
            block = self._buffer[at : at + BLOCK_BYTES]
            try:
                self._medium.read_into(self._offset + position, block)
            except OSError:
                block[:] = bytes(BLOCK_BYTES)
                self._lost.add(position)


def _damaged(why: str) -> TerminalError:
    return TerminalError(
        "the index of the nof device is damaged",
        why,
        "keep the device as it is, store its replicas again elsewhere, then format it anew",
    )
