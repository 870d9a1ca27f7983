"""Cutting replicas into pieces, against a byte-by-byte map of the device."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weightctl.adapters.nof.layout import Geometry, round_up
from weightctl.adapters.nof.pieces import SEGMENTS_MAX, Span, covering, cut, groups, merged, runs_of
from weightctl.controller.errors import InvariantViolationError

GEOMETRY = Geometry.of_size(64 << 20)
PIECE = 16 * 4096


def _span(serial: int, counts: list[int], cut_off: int) -> Span:
    extents, start = [], serial * 1000
    for count in counts:
        extents.append((start, count))
        start += count + 3
    size = max(0, 4096 * sum(counts) - cut_off) if counts else 0
    return Span(serial, size, tuple(extents))


SPANS = st.lists(
    st.tuples(st.lists(st.integers(1, 20), max_size=4), st.integers(0, 4095)), max_size=5
).map(lambda rows: [_span(serial, *row) for serial, row in enumerate(rows)])


def _blocks(span: Span) -> list[int]:
    return [start + i for start, count in span.extents for i in range(count)]


@given(SPANS)
def test_pieces_cover_every_replica_once_and_in_order(spans: list[Span]) -> None:
    position = {span.serial: 0 for span in spans}
    for piece in cut(GEOMETRY, spans, PIECE):
        used = 0
        for segment in piece:
            assert segment.offset == position[segment.serial]
            assert segment.offset % 4096 == 0
            assert segment.buffer_offset == used
            position[segment.serial] += segment.size_bytes
            used += round_up(segment.size_bytes)
            span = next(span for span in spans if span.serial == segment.serial)
            first = segment.offset // 4096
            blocks = _blocks(span)[first : first + round_up(segment.size_bytes) // 4096]
            runs = [offset + i for offset, size in segment.runs for i in range(0, size, 4096)]
            assert runs == [GEOMETRY.block_offset(block) for block in blocks]
        assert used <= PIECE
        assert len(piece) <= SEGMENTS_MAX
    assert position == {span.serial: span.size_bytes for span in spans}


def test_every_replica_has_a_segment_even_an_empty_one() -> None:
    pieces = list(cut(GEOMETRY, [Span(serial, 0, ()) for serial in range(600)], PIECE))
    assert [len(piece) for piece in pieces] == [256, 256, 88]
    assert [part.serial for piece in pieces for part in piece] == list(range(600))


@given(st.data())
def test_a_range_is_covered_exactly(data: st.DataObject) -> None:
    span = _span(1, [7, 20, 9], 100)
    offset = data.draw(st.integers(0, span.size_bytes))
    size = data.draw(st.integers(0, span.size_bytes - offset))
    got = 0
    for segment, start, end in covering(GEOMETRY, span, (offset, size), PIECE):
        assert segment.offset + start == offset + got
        assert segment.buffer_offset == 0
        assert sum(run for _, run in segment.runs) == round_up(segment.size_bytes) <= PIECE
        got += end - start
    assert got == size


def test_extents_that_are_too_short_are_refused() -> None:
    with pytest.raises(InvariantViolationError):
        runs_of(GEOMETRY, Span(1, 9000, ((0, 2),)), 0, 9000)
    with pytest.raises(InvariantViolationError):
        runs_of(GEOMETRY, Span(1, 9000, ((0, 3),)), 1, 10)


def test_neighbours_are_merged() -> None:
    assert merged([(5, 2), (0, 3), (3, 2), (9, 1)]) == [(0, 7), (9, 1)]


@pytest.mark.parametrize(
    "sizes, expected",
    [
        ([], []),
        ([1 << 40], [[0]]),
        ([200 << 20, 56 << 20, 1, 300 << 20, 0], [[0, 1], [2], [3], [4]]),
        ([0] * 1025, [list(range(1024)), [1024]]),
    ],
)
def test_a_batch_is_committed_in_bounded_groups(
    sizes: list[int], expected: list[list[int]]
) -> None:
    assert list(groups(sizes)) == expected
