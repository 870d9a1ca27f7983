"""Exact tiling of a box by boxes, without comparing pairs.  Layer: core (pure).

A box is (offset, shape), both in elements, of the rank of the whole.  Boxes tile the whole exactly
when their signed corners add up to the whole's own corners: a sum of box indicators is fixed by its
mixed difference, and that difference is +1 or -1 at the corners and 0 elsewhere.  So a gap, an
overlap or a repeated box is found with one dictionary of corners, in time linear in the boxes.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import product
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

Box = tuple[tuple[int, ...], tuple[int, ...]]

SPLIT_DIMS_MAX = 8
"""Dimensions along which one tensor may be split; bounds the corners of a box to 256."""


def tiling_problem(shape: tuple[int, ...], boxes: Sequence[Box]) -> str | None:
    """Why the boxes, each within the whole, do not tile `shape` exactly; None when they do."""
    if len(set(boxes)) != len(boxes):
        return "repeats one offset and shape"
    covered = sum(prod(extent) for _, extent in boxes)
    if covered != prod(shape):
        return f"is covered by {covered} of {prod(shape)} elements"
    dims = [
        dim for dim, size in enumerate(shape) if any(extent[dim] != size for _, extent in boxes)
    ]
    if len(dims) > SPLIT_DIMS_MAX:
        return f"is split along {len(dims)} dimensions, more than {SPLIT_DIMS_MAX}"
    if len(dims) == 1:
        return None if _tiles_line(shape[dims[0]], boxes, dims[0]) else "has overlapping fragments"
    return None if _corners_cancel(shape, boxes, dims) else "has overlapping fragments"


def _tiles_line(size: int, boxes: Sequence[Box], dim: int) -> bool:
    """The ordinary case, one split dimension: each interval starts where the last one ended."""
    position = 0
    for start, extent in sorted((offset[dim], extent[dim]) for offset, extent in boxes):
        if start != position:
            return False
        position += extent
    return position == size


def _corners_cancel(shape: tuple[int, ...], boxes: Sequence[Box], dims: Sequence[int]) -> bool:
    corners: defaultdict[tuple[int, ...], int] = defaultdict(int)
    signs = [prod(steps) for steps in product((1, -1), repeat=len(dims))]
    for offset, extent in boxes:
        edges = [(offset[dim], offset[dim] + extent[dim]) for dim in dims]
        for corner, sign in zip(product(*edges), signs, strict=True):
            corners[corner] += sign
    for corner, sign in zip(product(*((0, shape[dim]) for dim in dims)), signs, strict=True):
        corners[corner] -= sign
    return not any(corners.values())
