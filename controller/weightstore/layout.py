"""From checked headers to payload objects and the manifest.  Layer: weightstore (pure).

Owns how an import is cut: payload objects of bounded size, each one contiguous range of one source
file, so that streaming a payload is one sequential read.  Small tensors share an object; a large
one is cut into boxes.  The same source, size and record give the same plan, byte for byte, which is
what makes an interrupted import resumable.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from weightctl.controller.core.identity import manifest_key, payload_group_id, payload_prefix
from weightctl.controller.core.manifest import (
    StoredWeightManifest,
    TensorDescriptor,
    TensorFragment,
)
from weightctl.controller.weightstore.safetensors import ITEM_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weightctl.controller.core.boxes import Box
    from weightctl.controller.core.identity import Identity
    from weightctl.controller.weightstore.safetensors import Header, TensorEntry

ROW_MAJOR = "safetensors:row-major"
SCALAR = "safetensors:scalar"
"""Fingerprint of a tensor without dimensions; the manifest holds it with the shape [1]."""
PAYLOAD_BYTES_MIN = max(ITEM_BYTES.values())
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WALL_MS_MAX = 253_402_300_799_999
"""The last millisecond that a calendar year of four digits has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """One payload object: bytes `offset:offset + nbytes` of source file number `file`."""

    key: str
    file: int
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportLayout:
    """How a source lies in payload objects, in stream order (which is key order)."""

    payloads: tuple[Payload, ...]
    tensors: tuple[TensorDescriptor, ...]
    fragments: tuple[TensorFragment, ...]

    @property
    def logical_bytes(self) -> int:
        """Sum of the payloads' sizes."""
        return sum(payload.nbytes for payload in self.payloads)


def plan_layout(identity: Identity, headers: Sequence[Header], payload_bytes: int) -> ImportLayout:
    """Cut the files' tensors into payload objects of at most `payload_bytes` each."""
    prefix = payload_prefix(identity)
    payloads: list[Payload] = []
    tensors: list[TensorDescriptor] = []
    fragments: list[TensorFragment] = []
    for number, header in enumerate(headers):
        start = end = 0
        for entry in header.entries:
            tensor = _descriptor(entry)
            tensors.append(tensor)
            for (offset, extent), nbytes in _boxes(tensor, payload_bytes):
                if end + nbytes - start > payload_bytes:
                    payloads.append(_payload(prefix, len(payloads), (number, header, start, end)))
                    start = end
                fragments.append(
                    TensorFragment(
                        fragment_id=str(len(fragments)),
                        tensor_id=entry.name,
                        global_offset=offset,
                        local_shape=extent,
                        object_key=_key(prefix, len(payloads)),
                        object_offset=end - start,
                        nbytes=nbytes,
                    )
                )
                end += nbytes
        if end > start:
            payloads.append(_payload(prefix, len(payloads), (number, header, start, end)))
    return ImportLayout(
        payloads=tuple(payloads), tensors=tuple(tensors), fragments=tuple(fragments)
    )


def build_manifest(
    identity: Identity, layout: ImportLayout, created_at_ms: int
) -> StoredWeightManifest:
    """The manifest of an import; its time is the record's, so that a retry spells it equally."""
    return StoredWeightManifest(
        namespace=identity.namespace,
        resource_id=identity.resource_id,
        revision=identity.revision,
        weight_generation=identity.weight_generation,
        group_id=payload_group_id(identity),
        manifest_key=manifest_key(identity),
        tensors=layout.tensors,
        fragments=layout.fragments,
        created_at=created_at(created_at_ms),
    )


def created_at(wall_ms: int) -> str:
    """A record's creation time as the manifest spells it."""
    time = _EPOCH + timedelta(milliseconds=min(wall_ms, _WALL_MS_MAX))
    text = time.isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _descriptor(entry: TensorEntry) -> TensorDescriptor:
    return TensorDescriptor(
        tensor_id=entry.name,
        global_shape=entry.shape or (1,),
        dtype=entry.dtype,
        itemsize=ITEM_BYTES[entry.dtype],
        layout_fingerprint=ROW_MAJOR if entry.shape else SCALAR,
    )


def _boxes(tensor: TensorDescriptor, limit: int) -> Iterator[tuple[Box, int]]:
    """Cut a tensor into boxes of at most `limit` bytes that follow each other in memory."""
    shape = tensor.global_shape
    strides = [prod(shape[dim + 1 :]) * tensor.itemsize for dim in range(len(shape))]
    dim = next(dim for dim, stride in enumerate(strides) if stride <= limit)
    step = limit // strides[dim]
    inner = shape[dim + 1 :]
    for prefix in product(*(range(size) for size in shape[:dim])):
        for start in range(0, shape[dim], step):
            extent = min(step, shape[dim] - start)
            box = (
                (*prefix, start, *(0 for _ in inner)),
                (*(1 for _ in prefix), extent, *inner),
            )
            yield box, extent * strides[dim]


def _key(prefix: str, number: int) -> str:
    return f"{prefix}{number:08d}"


def _payload(prefix: str, number: int, place: tuple[int, Header, int, int]) -> Payload:
    file, header, start, end = place
    return Payload(
        key=_key(prefix, number),
        file=file,
        offset=header.data_offset + start,
        nbytes=end - start,
    )
