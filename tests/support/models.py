"""Models for tests: small ones, written with the project's own encoder, and the demos' real one."""

import random
from collections.abc import Mapping
from math import prod
from pathlib import Path

from tests.support.mounts import cannot
from weightctl.controller.cli.demo.model import find_model
from weightctl.controller.errors import SourceError
from weightctl.controller.weightstore.safetensors import ITEM_BYTES, TensorEntry, encode_header

Tensors = Mapping[str, tuple[str, tuple[int, ...], bytes]]
"""Name -> dtype, shape, bytes."""


def random_tensors(seed: int = 7, rows: int = 64) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Make a few tensors of several types and ranks, a scalar among them; the same for a seed."""
    chance = random.Random(seed)
    kinds: dict[str, tuple[str, tuple[int, ...]]] = {
        "embed": ("F32", (rows, 48)),
        "layers.0.w": ("BF16", (40, 3, 5)),
        "layers.0.b": ("F16", (40,)),
        "größe·é": ("I64", (7, 1)),
        "mask": ("BOOL", (13,)),
        "scale": ("F32", ()),
        "layers.1.w": ("F8_E4M3", (rows, 16)),
    }
    return {
        name: (dtype, shape, chance.randbytes(prod(shape) * ITEM_BYTES[dtype]))
        for name, (dtype, shape) in kinds.items()
    }


def write_model(path: Path, tensors: Tensors, metadata: Mapping[str, str] | None = None) -> Path:
    """Write one file in the order given."""
    entries, start = [], 0
    for name, (dtype, shape, content) in tensors.items():
        stop = start + len(content)
        entries.append(TensorEntry(name=name, dtype=dtype, shape=shape, start=start, stop=stop))
        start = stop
    header = encode_header(entries, {"format": "pt"} if metadata is None else metadata)
    path.write_bytes(header + b"".join(content for _, _, content in tensors.values()))
    return path


def real_model() -> Path:
    """The demos' model; where its package is not installed the test is skipped, in CI it fails."""
    try:
        return find_model(None)
    except SourceError as error:
        cannot(str(error))
