"""From wanted tensors to the object ranges to read, and where each lands.  Layer: core (pure).

A plan names each object range once, merged where ranges touch, in object order (key, then offset),
so that a reader streams forward.  Pieces are flat arrays, not objects: a column slice of a large
matrix has one piece per row.  Every byte of every target is covered by exactly one piece, because
a valid manifest tiles its tensors exactly.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from weightctl.controller.errors import ErrorCode, WeightError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from weightctl.controller.core.manifest import (
        StoredWeightManifest,
        TensorDescriptor,
        TensorFragment,
    )

PIECES_MAX = 4 * 1024 * 1024
"""Bounds a plan to about 128 MiB; a finer slice is refused before anything is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSlice:
    """A wanted tensor: whole (`dim` None), or elements `start:stop` along dimension `dim`."""

    tensor_id: str
    dim: int | None = None
    start: int = 0
    stop: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One wanted tensor as it will lie in its buffer: row-major, `nbytes` long."""

    tensor: TensorDescriptor
    shape: tuple[int, ...]
    nbytes: int


class Piece(NamedTuple):
    """Bytes `source:source + nbytes` of the object go to `offset` of target number `target`."""

    source: int
    target: int
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectRead:
    """One range of one object; its pieces are `first_piece:end_piece` of the plan."""

    object_key: str
    offset: int
    nbytes: int
    first_piece: int
    end_piece: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RangePlan:
    """What to read, in object order, and the piece table as four parallel unsigned columns."""

    targets: tuple[Target, ...]
    reads: tuple[ObjectRead, ...]
    sources: array[int]
    target_indexes: array[int]
    target_offsets: array[int]
    sizes: array[int]

    @property
    def read_bytes(self) -> int:
        """Bytes that the reads fetch."""
        return sum(read.nbytes for read in self.reads)

    def pieces(self, read: ObjectRead) -> Iterator[Piece]:
        """The pieces that `read` brings, in source order."""
        rows = slice(read.first_piece, read.end_piece)
        return map(
            Piece,
            self.sources[rows],
            self.target_indexes[rows],
            self.target_offsets[rows],
            self.sizes[rows],
        )


def plan_ranges(
    manifest: StoredWeightManifest, wanted: Sequence[TensorSlice], *, gap_bytes: int = 0
) -> RangePlan:
    """The ranges that bring `wanted` (in that order) from the objects of a valid manifest.

    Ranges of one object merge where they touch, or lie at most `gap_bytes` apart.  Raises
    WeightError NOT_FOUND for an unknown tensor, INVALID_ARGUMENT for a slice out of bounds.
    """
    tensors = {tensor.tensor_id: tensor for tensor in manifest.tensors}
    selections = [_select(tensors, item) for item in wanted]
    users: defaultdict[str, list[int]] = defaultdict(list)
    for index, (tensor, _, _) in enumerate(selections):
        users[tensor.tensor_id].append(index)
    rows: list[tuple[str, int, int, int, int]] = []
    for fragment in manifest.fragments:
        for index in users.get(fragment.tensor_id, ()):
            rows.extend(
                (fragment.object_key, fragment.object_offset + source, index, offset, size)
                for source, offset, size in _runs(fragment, *selections[index])
            )
            if len(rows) > PIECES_MAX:
                _refuse_slice(wanted[index], f"it needs more than {PIECES_MAX} pieces")
    rows.sort()
    targets = tuple(
        Target(tensor=tensor, shape=extent, nbytes=prod(extent) * tensor.itemsize)
        for tensor, _, extent in selections
    )
    return _merge(targets, rows, gap_bytes)


Selection = tuple["TensorDescriptor", tuple[int, ...], tuple[int, ...]]
"""A tensor and the wanted box of it: offset and extent in elements."""


def _select(tensors: Mapping[str, TensorDescriptor], item: TensorSlice) -> Selection:
    tensor = tensors.get(item.tensor_id)
    if tensor is None:
        raise WeightError(
            ErrorCode.NOT_FOUND,
            f"tensor {item.tensor_id!r} is not in this revision",
            f"its manifest names {len(tensors)} other tensors",
            "`weightctl describe IDENTITY --tensors` lists them",
        )
    shape = tensor.global_shape
    if item.dim is None:
        if item.start != 0 or item.stop is not None:
            _refuse_slice(item, "a start or stop needs a dimension")
        return tensor, (0,) * len(shape), shape
    if not 0 <= item.dim < len(shape):
        _refuse_slice(item, f"the tensor has {len(shape)} dimensions")
    stop = shape[item.dim] if item.stop is None else item.stop
    if not 0 <= item.start < stop <= shape[item.dim]:
        _refuse_slice(item, f"dimension {item.dim} has {shape[item.dim]} elements")
    offset = tuple(item.start if dim == item.dim else 0 for dim in range(len(shape)))
    extent = tuple(stop - item.start if dim == item.dim else size for dim, size in enumerate(shape))
    return tensor, offset, extent


def _refuse_slice(item: TensorSlice, why: str) -> NoReturn:
    raise WeightError(
        ErrorCode.INVALID_ARGUMENT,
        f"slice {item.start}:{item.stop} along {item.dim} of tensor {item.tensor_id!r} is refused",
        why,
        "choose 0 <= start < stop <= size along one dimension, or load the tensor whole",
    )


def _runs(
    fragment: TensorFragment,
    tensor: TensorDescriptor,
    offset: tuple[int, ...],
    extent: tuple[int, ...],
) -> Iterator[tuple[int, int, int]]:
    """(byte in the fragment, byte in the target, bytes) of each contiguous run of their overlap."""
    low = [max(a, b) for a, b in zip(fragment.global_offset, offset, strict=True)]
    size = [
        min(a + n, b + m) - start
        for a, n, b, m, start in zip(
            fragment.global_offset, fragment.local_shape, offset, extent, low, strict=True
        )
    ]
    if min(size) <= 0:
        return iter(())
    sources, targets, run = [0], [0], tensor.itemsize
    source_stride = target_stride = tensor.itemsize
    contiguous = True
    for dim in reversed(range(len(size))):
        source = (low[dim] - fragment.global_offset[dim]) * source_stride
        target = (low[dim] - offset[dim]) * target_stride
        if contiguous:
            run *= size[dim]
            contiguous = size[dim] == fragment.local_shape[dim] == extent[dim]
            steps = range(1)
        else:
            steps = range(size[dim])
        if len(sources) * len(steps) > PIECES_MAX:
            _refuse_slice(TensorSlice(tensor_id=tensor.tensor_id), "it has too many pieces")
        sources = [source + step * source_stride + at for step in steps for at in sources]
        targets = [target + step * target_stride + at for step in steps for at in targets]
        source_stride *= fragment.local_shape[dim]
        target_stride *= extent[dim]
    return ((source, target, run) for source, target in zip(sources, targets, strict=True))


def _merge(
    targets: tuple[Target, ...], rows: list[tuple[str, int, int, int, int]], gap_bytes: int
) -> RangePlan:
    columns = tuple(array("Q") for _ in range(4))
    sources, owners, offsets, sizes = columns
    reads: list[ObjectRead] = []
    key, start, end, first = "", 0, 0, 0
    for row_key, source, owner, offset, size in rows:
        if row_key != key or source > end + gap_bytes:
            if sources:
                reads.append(_read(key, start, end, (first, len(sources))))
            key, start, end, first = row_key, source, source, len(sources)
        if (
            len(sources) > first
            and owners[-1] == owner
            and sources[-1] + sizes[-1] == source
            and offsets[-1] + sizes[-1] == offset
        ):
            sizes[-1] += size
        else:
            for column, value in zip(columns, (source, owner, offset, size), strict=True):
                column.append(value)
        end = max(end, source + size)
    if sources:
        reads.append(_read(key, start, end, (first, len(sources))))
    return RangePlan(
        targets=targets,
        reads=tuple(reads),
        sources=sources,
        target_indexes=owners,
        target_offsets=offsets,
        sizes=sizes,
    )


def _read(key: str, start: int, end: int, pieces: tuple[int, int]) -> ObjectRead:
    return ObjectRead(
        object_key=key,
        offset=start,
        nbytes=end - start,
        first_piece=pieces[0],
        end_piece=pieces[1],
    )
