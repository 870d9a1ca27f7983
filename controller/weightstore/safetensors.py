"""The safetensors format: a strict, bounded parser of headers, and an encoder.  Layer: weightstore.

Owns bytes to entries and back.  A parsed header describes each byte of the data section exactly
once: sorted entries without holes, overlaps or bytes beyond the file.  Input is hostile until then:
lengths are compared with the file's real size before anything is read or allocated for them.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, NoReturn

from weightctl.controller.core.identity import U64_MAX
from weightctl.controller.core.manifest_rules import RANK_MAX
from weightctl.controller.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LENGTH_BYTES = 8
HEADER_BYTES_MAX = 100_000_000
"""The limit that the format's own library keeps."""
BYTES_PER_BRACKET = 8
"""A tensor has three opening brackets in 50 bytes or more; texts may hold some more."""
BRACKETS_FREE = 100_000
METADATA_NAME = "__metadata__"

ITEM_BYTES: Mapping[str, int] = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "F8_E8M0": 1,
    "F8_E4M3FNUZ": 1,
    "F8_E5M2FNUZ": 1,
    "I16": 2,
    "U16": 2,
    "F16": 2,
    "BF16": 2,
    "I32": 4,
    "U32": 4,
    "F32": 4,
    "I64": 8,
    "U64": 8,
    "F64": 8,
    "C64": 8,
}
"""Bytes of one element.  Types of less than a byte (F4, F6) have none and are refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorEntry:
    """One tensor of a file; `start:stop` are its bytes within the data section."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """A checked header: entries by position, `data_offset` where the data section starts."""

    entries: tuple[TensorEntry, ...]
    data_offset: int
    metadata: Mapping[str, str]


def header_bytes(path: str, prefix: bytes, file_bytes: int) -> int:
    """Bytes of the JSON header from a file's first 8 bytes.  Raises SourceError when impossible."""
    if len(prefix) != LENGTH_BYTES or file_bytes < LENGTH_BYTES:
        _refuse(path, f"it has {file_bytes} bytes, too few for a header length")
    (size,) = struct.unpack("<Q", prefix)
    if size > HEADER_BYTES_MAX:
        _refuse(path, f"its header claims {size} bytes, more than {HEADER_BYTES_MAX}")
    if size > file_bytes - LENGTH_BYTES:
        _refuse(path, f"its header claims {size} bytes, the file ends after {file_bytes}")
    return int(size)


def parse_header(path: str, raw: bytes, file_bytes: int) -> Header:
    """Check the JSON header `raw` of a file of `file_bytes`.  Raises SourceError for any fault."""
    document = _load(path, raw)
    metadata = document.pop(METADATA_NAME, {})
    if type(metadata) is not dict or any(type(value) is not str for value in metadata.values()):
        _refuse(path, f"{METADATA_NAME} must map text to text")
    data_offset = LENGTH_BYTES + len(raw)
    entries = sorted(
        (_entry(path, name, value) for name, value in document.items()),
        key=lambda entry: (entry.start, entry.stop),
    )
    _check_layout(path, entries, file_bytes - data_offset)
    return Header(entries=tuple(entries), data_offset=data_offset, metadata=metadata)


def encode_header(entries: Sequence[TensorEntry], metadata: Mapping[str, str]) -> bytes:
    """Length and JSON header for `entries`, padded so that the data section is 8-aligned."""
    document: dict[str, object] = {METADATA_NAME: dict(metadata)} if metadata else {}
    for entry in entries:
        document[entry.name] = {
            "dtype": entry.dtype,
            "shape": entry.shape,
            "data_offsets": (entry.start, entry.stop),
        }
    raw = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % LENGTH_BYTES)
    return struct.pack("<Q", len(raw)) + raw


def _load(path: str, raw: bytes) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        document = dict(pairs)
        if len(document) != len(pairs):
            ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
            _refuse(path, f"its header names {twice[:100]!r} twice")
        return document

    if raw.count(b"[") + raw.count(b"{") > BRACKETS_FREE + len(raw) // BYTES_PER_BRACKET:
        _refuse(path, "its header is mostly brackets, which would take 25 times its size in memory")
    try:
        document = json.loads(raw.decode("utf-8"), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        _refuse(path, f"its header is not JSON in UTF-8: {str(error)[:200]}")
    if type(document) is not dict:
        _refuse(path, "its header is not a JSON object")
    return document


def _entry(path: str, name: str, value: object) -> TensorEntry:
    where = f"tensor {name[:100]!r}"
    if not name or not _is_text(name):
        _refuse(path, f"{where} has no usable name")
    if type(value) is not dict or value.keys() != {"dtype", "shape", "data_offsets"}:
        _refuse(path, f"{where} must have exactly dtype, shape and data_offsets")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if type(dtype) is not str or dtype not in ITEM_BYTES:
        _refuse(path, f"{where} has the unknown or sub-byte dtype {str(dtype)[:40]!r}")
    if not _are_sizes(shape) or len(shape) > RANK_MAX:
        _refuse(path, f"{where} must have a shape of at most {RANK_MAX} unsigned integers")
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:  # noqa: PLR2004
        _refuse(path, f"{where} must have data_offsets [start, stop]")
    if 0 in shape:
        _refuse(path, f"{where} has no elements (shape {shape}), and a manifest cannot hold it")
    needed = prod(shape) * ITEM_BYTES[dtype]
    if offsets[1] - offsets[0] != needed:
        _refuse(path, f"{where} needs {needed} bytes and claims {offsets[1] - offsets[0]}")
    return TensorEntry(
        name=name, dtype=dtype, shape=tuple(shape), start=offsets[0], stop=offsets[1]
    )


def _is_text(name: str) -> bool:
    try:
        return bool(name.encode())
    except UnicodeEncodeError:
        return False


def _are_sizes(values: object) -> bool:
    return type(values) is list and all(
        type(value) is int and 0 <= value <= U64_MAX for value in values
    )


def _check_layout(path: str, entries: Sequence[TensorEntry], data_bytes: int) -> None:
    end = 0
    for entry in entries:
        if entry.start != end:
            fault = "overlaps the tensor before it" if entry.start < end else "leaves a hole"
            _refuse(path, f"tensor {entry.name[:100]!r} at byte {entry.start} {fault}")
        end = entry.stop
        if end > data_bytes:
            _refuse(
                path,
                f"tensor {entry.name[:100]!r} ends at byte {end}, the file holds {data_bytes}",
            )
    if end != data_bytes:
        _refuse(path, f"{data_bytes - end} bytes at its end belong to no tensor")


def _refuse(path: str, why: str) -> NoReturn:
    raise SourceError(
        f"{path} cannot be imported",
        why,
        "check that the download is complete, or write the file again with its own tool",
    )
