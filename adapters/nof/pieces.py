"""Cutting replicas into pieces that fill a buffer.  Layer: nof tier (pure).

Owns how logical bytes map onto device bytes.  Invariant: a segment begins at a block of its replica
and of the buffer, so that every transfer fits direct I/O; many small replicas share one piece.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weightctl.adapters.nof.layout import BLOCK_BYTES, round_up
from weightctl.controller.errors import require

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from weightctl.adapters.nof.allocator import Extent
    from weightctl.adapters.nof.layout import Geometry

SEGMENTS_MAX = 256
"""Segments in one piece: bounds a request's size where replicas are tiny."""

GROUP_ITEMS_MAX = 1024
GROUP_BYTES_MAX = 256 * 1024 * 1024
"""One commit carries replicas of at most so much, except a single one that is larger."""

Run = tuple[int, int]
"""(byte offset on the device, bytes), both whole blocks."""


class Span(NamedTuple):
    """A replica's bytes on the device."""

    serial: int
    size_bytes: int
    extents: tuple[Extent, ...]


class Segment(NamedTuple):
    """Consecutive bytes of one replica, and where they go in a buffer and on the device."""

    serial: int
    offset: int
    """First byte within the replica; a multiple of the block size."""
    size_bytes: int
    buffer_offset: int
    runs: tuple[Run, ...]


def runs_of(geometry: Geometry, span: Span, offset: int, size_bytes: int) -> tuple[Run, ...]:
    """Device bytes of `[offset, offset + size_bytes)` of a replica, widened to whole blocks."""
    require(offset % BLOCK_BYTES == 0, "nof segment", "it does not begin at a block")
    skip, left = offset // BLOCK_BYTES, round_up(size_bytes) // BLOCK_BYTES
    runs: list[Run] = []
    for start, count in span.extents:
        if skip >= count:
            skip -= count
            continue
        use = min(count - skip, left)
        if use:
            runs.append((geometry.block_offset(start + skip), use * BLOCK_BYTES))
        left -= use
        skip = 0
        if not left:
            break
    require(not left, f"replica {span.serial:x}", "its extents are shorter than its size")
    return tuple(runs)


def cut(geometry: Geometry, spans: Iterable[Span], piece_bytes: int) -> Iterator[list[Segment]]:
    """Pieces of at most `piece_bytes` of buffer that cover the replicas in order.

    An empty replica gets one empty segment, so that it is digested like any other one.
    """
    piece: list[Segment] = []
    used = 0
    for span in spans:
        offset = 0
        while True:
            if used == piece_bytes or len(piece) == SEGMENTS_MAX:
                yield piece
                piece, used = [], 0
            size = min(span.size_bytes - offset, piece_bytes - used)
            runs = runs_of(geometry, span, offset, size)
            piece.append(Segment(span.serial, offset, size, used, runs))
            used += round_up(size)
            offset += size
            if offset == span.size_bytes:
                break
    if piece:
        yield piece


def groups(sizes_bytes: Sequence[int]) -> Iterator[list[int]]:
    """Indexes of a batch, in order, in groups that are committed together."""
    group: list[int] = []
    total = 0
    for index, size in enumerate(sizes_bytes):
        if group and (total + size > GROUP_BYTES_MAX or len(group) == GROUP_ITEMS_MAX):
            yield group
            group, total = [], 0
        group.append(index)
        total += size
    if group:
        yield group


def merged(extents: Iterable[Extent]) -> list[Extent]:
    """The same blocks as few runs, in order."""
    runs: list[Extent] = []
    for start, count in sorted(extents):
        if runs and sum(runs[-1]) == start:
            runs[-1] = (runs[-1][0], runs[-1][1] + count)
        else:
            runs.append((start, count))
    return runs


def covering(
    geometry: Geometry, span: Span, window: tuple[int, int], piece_bytes: int
) -> Sequence[tuple[Segment, int, int]]:
    """Segments that cover bytes `[offset, offset + size)` of one replica, one a piece.

    Each with the range of its buffer bytes that was asked for: (segment, from, to).
    """
    offset, size_bytes = window
    end = offset + size_bytes
    parts: list[tuple[Segment, int, int]] = []
    start = offset - offset % BLOCK_BYTES
    while start < end:
        size = min(piece_bytes, end - start)
        runs = runs_of(geometry, span, start, size)
        segment = Segment(span.serial, start, size, 0, runs)
        parts.append((segment, max(0, offset - start), size))
        start += size
    return parts
