"""Small manifests for tests: build, change one field, and spell them as stored bytes."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from weightctl.controller.core.manifest import (
    ParallelAxis,
    StoredWeightManifest,
    TensorDescriptor,
    TensorFragment,
    canonical_bytes,
)

STEM = "weights/production/llama-70b/step-100/7"
PAYLOAD = f"{STEM}/payload/"


def tensor(tensor_id: str, shape: tuple[int, ...], **changes: Any) -> TensorDescriptor:
    """Describe a replicated float16 tensor, with changes."""
    base = TensorDescriptor(
        tensor_id=tensor_id,
        global_shape=shape,
        dtype="F16",
        itemsize=2,
        layout_fingerprint="test:1",
    )
    return replace(base, **changes)


def fragment(
    fragment_id: str, tensor_id: str, box: tuple[tuple[int, ...], tuple[int, ...]], **changes: Any
) -> TensorFragment:
    """Place box (offset, shape) at the start of payload object 0, two bytes an element."""
    nbytes = 2
    for size in box[1]:
        nbytes *= size
    base = TensorFragment(
        fragment_id=fragment_id,
        tensor_id=tensor_id,
        global_offset=box[0],
        local_shape=box[1],
        object_key=f"{PAYLOAD}0",
        object_offset=0,
        nbytes=nbytes,
    )
    return replace(base, **changes)


def manifest(
    tensors: tuple[TensorDescriptor, ...], fragments: tuple[TensorFragment, ...], **changes: Any
) -> StoredWeightManifest:
    """Name the manifest for one fixed identity, with changes."""
    base = StoredWeightManifest(
        namespace="production",
        resource_id="llama-70b",
        revision="step-100",
        weight_generation=7,
        group_id="weight:" + "ab" * 32,
        manifest_key=f"{STEM}/manifest",
        tensors=tensors,
        fragments=fragments,
        created_at="2026-09-14T00:00:00Z",
    )
    return replace(base, **changes)


def two_halves() -> StoredWeightManifest:
    """One 8x4 tensor, split along dimension 0 into two fragments that touch."""
    axes = (ParallelAxis(semantics="split", kind="tp", dim=0),)
    return manifest(
        (tensor("w", (8, 4), shard_dims=(0,), parallel_axes=axes),),
        (
            fragment("f0", "w", ((0, 0), (4, 4))),
            fragment("f1", "w", ((4, 0), (4, 4)), object_offset=32),
        ),
    )


def document(source: StoredWeightManifest) -> dict[str, Any]:
    """Give the JSON document of a manifest, to be changed and spelled again."""
    parsed: dict[str, Any] = json.loads(canonical_bytes(source))
    return parsed


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    """Spell the two halves after `change` was made to their document."""
    parsed = document(two_halves())
    change(parsed)
    return json.dumps(parsed).encode()
