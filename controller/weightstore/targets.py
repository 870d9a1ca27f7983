"""What a caller may load into, and the destinations in memory.  Layer: weightstore."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from weightctl.controller.errors import TargetError

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from weightctl.controller.core.ranges import Target

ALIGN_BYTES = 64
"""Start of each tensor in an arena; what vector instructions like."""
NUMPY_NAMES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "I64": "int64",
    "U64": "uint64",
    "F64": "float64",
    "C64": "complex64",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class IntoFolder:
    """Safetensors in a folder (or one file, when the path ends with `.safetensors`).

    Written beside their final names, flushed, then given their names.  Without `file_bytes` there
    is one file; with it the tensors are spread over files of about that size, with an index.  A
    file that is there with other content is left alone unless `replace` is true.
    """

    path: str | os.PathLike[str]
    file_bytes: int | None = None
    replace: bool = False
    metadata: Mapping[str, str] = field(default_factory=lambda: {"format": "pt"})

    def __post_init__(self) -> None:
        """Raises TargetError for a size that no file can have."""
        if self.file_bytes is not None and self.file_bytes <= 0:
            raise TargetError(
                f"files of {self.file_bytes} bytes cannot be written to {str(self.path)!r}",
                "file_bytes must be above zero",
                "leave it out to get one file",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class IntoBuffers:
    """The caller's memory: tensor name -> writable, contiguous buffer of exactly its bytes.

    What the buffers hold after an error is not defined.
    """

    buffers: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class IntoArrays:
    """Read-only tensors: mapped without a copy from a tier that allows it, else in new memory.

    A mapped tensor stays valid after the lease has ended, also when the replica is dropped; the
    tier's memory is given back when the last view of it is gone.
    """


Into = IntoFolder | IntoBuffers | IntoArrays


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedTensor:
    """One tensor in memory: row-major, little-endian bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: memoryview
    mapped: bool = False
    """True when `data` is the tier's own memory, not a copy."""

    def numpy(self) -> Any:  # noqa: ANN401 - numpy is optional
        """A numpy array over `data`, without a copy.  Needs numpy.

        Raises TargetError for a dtype that numpy does not have (BF16, F8).
        """
        import numpy  # noqa: ICN001, PLC0415 - an optional extra, loaded on first use

        if self.dtype not in NUMPY_NAMES:
            raise TargetError(
                f"numpy has no type for {self.dtype}",
                "the bytes are there, only their numpy type is missing",
                "use `data` with a library that knows the type",
            )
        flat = numpy.frombuffer(self.data, dtype=numpy.dtype(NUMPY_NAMES[self.dtype]))
        return flat.reshape(self.shape)


class MemoryDestination:
    """Targets in memory, one space each."""

    def __init__(self, windows: Sequence[memoryview]) -> None:
        self._windows = windows

    def locate(self, target: int) -> tuple[int, int]:
        """Each target is its own space."""
        return target, 0

    def window(self, space: int, position: int, nbytes: int) -> memoryview | None:
        """Memory is everywhere."""
        return self._windows[space][position : position + nbytes]

    def write(self, space: int, position: int, data: memoryview) -> None:
        """Copy into the window."""
        self._windows[space][position : position + len(data)] = data


def caller_windows(buffers: Mapping[str, Any], targets: Sequence[Target]) -> list[memoryview]:
    """The caller's buffers as bytes, in target order.  Raises TargetError for one that misfits."""
    windows = []
    for target in targets:
        name = target.tensor.tensor_id
        try:
            window = memoryview(buffers[name]).cast("B")
        except (KeyError, TypeError, ValueError, BufferError) as error:
            raise _misfit(name, f"there is no contiguous buffer for it: {error}") from error
        if window.readonly or len(window) != target.nbytes:
            raise _misfit(
                name, f"it needs {target.nbytes} writable bytes, the buffer has {len(window)}"
            )
        windows.append(window)
    return windows


def arena_windows(targets: Sequence[Target]) -> list[memoryview]:
    """New memory for every target: one anonymous mapping, paged in as it is written.

    Raises TargetError when there is not so much.
    """
    starts, end = [], 0
    for target in targets:
        starts.append(end)
        end += -(-target.nbytes // ALIGN_BYTES) * ALIGN_BYTES
    try:
        arena = memoryview(mmap.mmap(-1, max(end, 1)))
    except (OSError, OverflowError) as error:
        raise TargetError(
            f"{len(targets)} tensors cannot be loaded into new memory",
            f"{end} bytes are needed: {error}",
            "load fewer tensors at a time, or into a folder",
        ) from error
    return [
        arena[start : start + target.nbytes] for start, target in zip(starts, targets, strict=True)
    ]


def _misfit(name: str, why: str) -> TargetError:
    return TargetError(
        f"tensor {name!r} cannot be loaded into the given buffer",
        why,
        "pass a writable, C-contiguous buffer of exactly the tensor's bytes",
    )
