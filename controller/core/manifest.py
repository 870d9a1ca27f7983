"""The stored weight manifest: records, canonical bytes, digest, summary.  Layer: core (pure).

Owns its shape: which tensors a revision holds and which byte range of which payload object holds
each box of them.  An instance may be invalid; `manifest_rules.validate` says why.  The canonical
bytes are the identity of a manifest: equal meaning gives equal bytes.  It holds no tenant, no
address and no lifecycle state.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weightctl.controller.core.identity import payload_keys_digest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RESOURCE_KIND = "model_weight"
MANIFEST_SUFFIX = "/manifest"
PAYLOAD_INFIX = "/payload/"
AXIS_KINDS = ("dp", "pp", "ep", "tp")
"""Every axis kind, in canonical order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelAxis:
    """How one parallel axis treats a tensor; `dim` only for `split`."""

    semantics: str
    kind: str
    dim: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorDescriptor:
    """One logical tensor; `dtype` and `layout_fingerprint` are opaque to the manifest."""

    tensor_id: str
    global_shape: tuple[int, ...]
    dtype: str
    itemsize: int
    layout_fingerprint: str
    layer_id: int | None = None
    expert_id: int | None = None
    shard_dims: tuple[int, ...] = ()
    parallel_axes: tuple[ParallelAxis, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFragment:
    """One box of a tensor (elements, row-major) and the object bytes that hold it."""

    fragment_id: str
    tensor_id: str
    global_offset: tuple[int, ...]
    local_shape: tuple[int, ...]
    object_key: str
    object_offset: int
    nbytes: int
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWeightManifest:
    """The immutable description of one revision; tensor and fragment order is significant."""

    namespace: str
    resource_id: str
    revision: str
    weight_generation: int
    group_id: str
    manifest_key: str
    tensors: tuple[TensorDescriptor, ...]
    fragments: tuple[TensorFragment, ...]
    created_at: str
    resource_kind: str = RESOURCE_KIND


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadSummary:
    """The payload objects a manifest needs: key -> bytes, in key order."""

    object_bytes: Mapping[str, int]

    @property
    def payload_count(self) -> int:
        """Distinct payload objects."""
        return len(self.object_bytes)

    @property
    def logical_bytes(self) -> int:
        """Sum of the objects' sizes."""
        return sum(self.object_bytes.values())

    @property
    def payload_keys_sha256(self) -> str:
        """Digest of the sorted payload keys."""
        return payload_keys_digest(self.object_bytes)


def payload_summary(manifest: StoredWeightManifest) -> PayloadSummary:
    """Each object's bytes are max(offset + nbytes) over its fragments: no tail padding."""
    ends: dict[str, int] = {}
    for fragment in manifest.fragments:
        end = fragment.object_offset + fragment.nbytes
        if end > ends.get(fragment.object_key, 0):
            ends[fragment.object_key] = end
    return PayloadSummary(
        object_bytes=dict(sorted(ends.items(), key=lambda item: item[0].encode()))
    )


def canonical_bytes(manifest: StoredWeightManifest) -> bytes:
    """The one spelling of a valid manifest; the stored object holds exactly it."""
    document = {
        "resource_kind": manifest.resource_kind,
        "namespace": manifest.namespace,
        "resource_id": manifest.resource_id,
        "revision": manifest.revision,
        "weight_generation": manifest.weight_generation,
        "group_id": manifest.group_id,
        "manifest_key": manifest.manifest_key,
        "tensors": [_tensor_fields(tensor) for tensor in manifest.tensors],
        "fragments": [_fragment_fields(fragment) for fragment in manifest.fragments],
        "created_at": manifest.created_at,
    }
    text = json.dumps(
        document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()


def manifest_digest(manifest: StoredWeightManifest) -> str:
    """SHA-256 hex of the canonical bytes: the `manifest_sha256` of a reference."""
    return hashlib.sha256(canonical_bytes(manifest)).hexdigest()


def _tensor_fields(tensor: TensorDescriptor) -> dict[str, object]:
    return {
        "tensor_id": tensor.tensor_id,
        "global_shape": tensor.global_shape,
        "dtype": tensor.dtype,
        "itemsize": tensor.itemsize,
        "layer_id": tensor.layer_id,
        "expert_id": tensor.expert_id,
        "layout_fingerprint": tensor.layout_fingerprint,
        "shard_dims": tensor.shard_dims,
        "parallel_axes": _axes_fields(tensor.parallel_axes),
    }


def _axes_fields(axes: Sequence[ParallelAxis]) -> list[dict[str, object]]:
    fields: list[dict[str, object]] = []
    for axis in sorted(axes, key=lambda axis: AXIS_KINDS.index(axis.kind)):
        entry: dict[str, object] = {"semantics": axis.semantics, "kind": axis.kind}
        if axis.dim is not None:
            entry["dim"] = axis.dim
        fields.append(entry)
    return fields


def _fragment_fields(fragment: TensorFragment) -> dict[str, object]:
    return {
        "fragment_id": fragment.fragment_id,
        "tensor_id": fragment.tensor_id,
        "global_offset": fragment.global_offset,
        "local_shape": fragment.local_shape,
        "object_key": fragment.object_key,
        "object_offset": fragment.object_offset,
        "nbytes": fragment.nbytes,
        "aliases": sorted(fragment.aliases),
    }
