"""Which blocks of the data region are free.  Layer: nof tier (pure).

Owns the free runs, as a sorted list by start and one by size, so that best fit, merge and largest
run are binary searches.  Invariant: a block is handed out only after `release` gave it here, and
the device releases a block only when the index entry that frees it is durable (or when the proof
at start showed that no entry claims it).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

from weightctl.controller.errors import require

if TYPE_CHECKING:
    from collections.abc import Iterable

EXTENTS_MAX = 1024
"""Pieces one replica may be split into: bounds its index record to about 12 KiB."""

Extent = tuple[int, int]
"""(first block, count of blocks)."""


def intersect(one: Extent, other: Extent) -> Extent | None:
    """The blocks that both cover, or None."""
    start = max(one[0], other[0])
    end = min(sum(one), sum(other))
    return (start, end - start) if start < end else None


class Allocator:
    """Free runs of a region of `blocks` blocks; at first nothing is free."""

    def __init__(self, blocks: int) -> None:
        self._blocks = blocks
        self._by_start: list[Extent] = []
        self._by_size: list[Extent] = []
        """(count, first block): the same runs, smallest first."""
        self._free_blocks = 0

    @property
    def free_blocks(self) -> int:
        """Blocks that are free in all."""
        return self._free_blocks

    @property
    def free_runs(self) -> int:
        """How many separate runs the free blocks form."""
        return len(self._by_start)

    def largest_blocks(self) -> int:
        """Blocks that one replica could get now, in at most `EXTENTS_MAX` pieces."""
        if len(self._by_size) <= EXTENTS_MAX:
            return self._free_blocks
        return sum(count for count, _ in self._by_size[-EXTENTS_MAX:])

    def allocate(self, blocks: int) -> tuple[Extent, ...] | None:
        """Extents of `blocks` in all: the best fitting run, else the largest ones; None if full."""
        if blocks > self.largest_blocks():
            return None
        taken: list[Extent] = []
        left = blocks
        while left:
            fit = bisect_left(self._by_size, (left, 0))
            count, start = self._by_size[min(fit, len(self._by_size) - 1)]
            self._remove(start, count)
            use = min(count, left)
            if count > use:
                self._insert(start + use, count - use)
            taken.append((start, use))
            left -= use
        return tuple(taken)

    def take(self, extent: Extent) -> list[Extent]:
        """Make the free blocks within `extent` not free; they are what is returned."""
        start, end = extent[0], extent[0] + extent[1]
        first = max(0, bisect_left(self._by_start, (start, 0)) - 1)
        taken: list[Extent] = []
        for run in [run for run in self._by_start[first:] if run[0] < end]:
            common = intersect(run, extent)
            if common is None:
                continue
            self._remove(*run)
            if run[0] < common[0]:
                self._insert(run[0], common[0] - run[0])
            if sum(run) > sum(common):
                self._insert(sum(common), sum(run) - sum(common))
            taken.append(common)
        return taken

    def release(self, extents: Iterable[Extent]) -> None:
        """Give blocks back, merging neighbours.  Refuses one that is free already."""
        for start, count in extents:
            require(
                start >= 0 and count > 0 and start + count <= self._blocks,
                f"extent {start}+{count}",
                f"it lies outside of the {self._blocks} blocks of the device",
            )
            self._merge(start, count)

    def release_unclaimed(self, claimed: Iterable[Extent]) -> None:
        """Make everything free that no extent of `claimed` covers.  They must be disjoint."""
        position = 0
        runs: list[Extent] = []
        for start, count in sorted(claimed):
            require(start >= position, f"block {start}", "two replicas claim it")
            if start > position:
                runs.append((position, start - position))
            position = start + count
        require(position <= self._blocks, f"block {position}", "it lies outside of the device")
        if position < self._blocks:
            runs.append((position, self._blocks - position))
        self._by_start = runs
        self._by_size = sorted((count, start) for start, count in runs)
        self._free_blocks = sum(count for _, count in runs)

    def _merge(self, start: int, count: int) -> None:
        end = start + count
        at = bisect_left(self._by_start, (start, 0))
        if at < len(self._by_start):
            next_start, next_count = self._by_start[at]
            require(end <= next_start, f"block {next_start}", "it was free already")
            if end == next_start:
                self._remove(next_start, next_count)
                count += next_count
        if at > 0:
            last_start, last_count = self._by_start[at - 1]
            require(last_start + last_count <= start, f"block {start}", "it was free already")
            if last_start + last_count == start:
                self._remove(last_start, last_count)
                start, count = last_start, last_count + count
        self._insert(start, count)

    def _insert(self, start: int, count: int) -> None:
        insort(self._by_start, (start, count))
        insort(self._by_size, (count, start))
        self._free_blocks += count

    def _remove(self, start: int, count: int) -> None:
        del self._by_start[bisect_left(self._by_start, (start, count))]
        del self._by_size[bisect_left(self._by_size, (count, start))]
        self._free_blocks -= count
