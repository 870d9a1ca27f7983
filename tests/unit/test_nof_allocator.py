"""The nof allocator against a set of block numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weightctl.adapters.nof.allocator import EXTENTS_MAX, Allocator, Extent, intersect
from weightctl.controller.errors import InvariantViolationError

BLOCKS = 64


def _blocks(extents: tuple[Extent, ...] | list[Extent]) -> list[int]:
    return [block for start, count in extents for block in range(start, start + count)]


@given(
    st.lists(
        st.tuples(st.sampled_from(["get", "free", "take"]), st.integers(0, BLOCKS)), max_size=60
    )
)
def test_every_block_is_free_or_given_out_once(steps: list[tuple[str, int]]) -> None:
    allocator = Allocator(BLOCKS)
    allocator.release_unclaimed([])
    held: list[tuple[Extent, ...]] = []
    free = set(range(BLOCKS))
    for verb, number in steps:
        if verb == "get":
            extents = allocator.allocate(number)
            assert (extents is None) == (number > len(free))
            if extents is not None:
                got = _blocks(extents)
                assert len(got) == number
                assert set(got) <= free
                free -= set(got)
                held.append(extents)
        elif verb == "free" and held:
            extents = held.pop(number % len(held))
            allocator.release(extents)
            free |= set(_blocks(extents))
        elif verb == "take" and number < BLOCKS:
            taken = allocator.take((number, 5))
            assert set(_blocks(taken)) == free & set(range(number, number + 5))
            free -= set(_blocks(taken))
            held.append(tuple(taken))
        assert allocator.free_blocks == len(free) == allocator.largest_blocks()
        runs = sum(1 for block in free if block - 1 not in free)
        assert allocator.free_runs == runs


@given(st.sets(st.integers(0, BLOCKS - 1)))
def test_what_no_replica_claims_is_free(claimed: set[int]) -> None:
    allocator = Allocator(BLOCKS)
    allocator.release_unclaimed([(block, 1) for block in claimed])
    assert allocator.free_blocks == BLOCKS - len(claimed)
    got = allocator.allocate(allocator.free_blocks)
    assert got is not None
    assert set(_blocks(got)) == set(range(BLOCKS)) - claimed


def test_the_smallest_run_that_fits_is_used() -> None:
    allocator = Allocator(BLOCKS)
    allocator.release([(0, 10), (20, 4), (40, 6)])
    assert allocator.allocate(4) == ((20, 4),)
    assert allocator.allocate(5) == ((40, 5),)


def test_a_replica_larger_than_any_run_gets_the_largest_ones() -> None:
    allocator = Allocator(BLOCKS)
    allocator.release([(0, 10), (20, 4), (40, 6)])
    assert allocator.allocate(18) == ((0, 10), (40, 6), (20, 2))


def test_pieces_of_one_replica_are_bounded() -> None:
    allocator = Allocator(4 * EXTENTS_MAX)
    allocator.release((block, 1) for block in range(0, 4 * EXTENTS_MAX, 2))
    assert allocator.free_blocks == 2 * EXTENTS_MAX
    assert allocator.largest_blocks() == EXTENTS_MAX
    assert allocator.allocate(EXTENTS_MAX + 1) is None
    got = allocator.allocate(EXTENTS_MAX)
    assert got is not None
    assert len(got) == EXTENTS_MAX


@pytest.mark.parametrize("extent", [(3, 2), (0, 1), (9, 1), (8, 5), (-1, 1), (60, 9)])
def test_a_free_or_foreign_block_cannot_be_freed(extent: Extent) -> None:
    allocator = Allocator(BLOCKS)
    allocator.release([(0, 10)])
    with pytest.raises(InvariantViolationError):
        allocator.release([extent])


def test_a_block_claimed_twice_is_refused() -> None:
    with pytest.raises(InvariantViolationError):
        Allocator(BLOCKS).release_unclaimed([(0, 10), (9, 3)])


@pytest.mark.parametrize(
    "one, other, common",
    [((0, 5), (5, 2), None), ((0, 5), (4, 2), (4, 1)), ((3, 9), (4, 2), (4, 2))],
)
def test_intersection(one: Extent, other: Extent, common: Extent | None) -> None:
    assert intersect(one, other) == intersect(other, one) == common
