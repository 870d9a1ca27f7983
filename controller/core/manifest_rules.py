"""Every rule a stored manifest must keep, in the contract's order.  Layer: core (pure).

Of the two variants this is the managed one: the manifest key ends with `/manifest`, each payload
key starts with that stem + `/payload/`, the group id is free.  Sorting replaces comparing pairs
throughout, so 50,000 tensors are checked in well under a second.  The first broken rule raises
ManifestError.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, NoReturn

from weightctl.controller.core.boxes import Box, tiling_problem
from weightctl.controller.core.identity import U64_MAX, is_u64
from weightctl.controller.core.manifest import (
    AXIS_KINDS,
    MANIFEST_SUFFIX,
    PAYLOAD_INFIX,
    RESOURCE_KIND,
    ParallelAxis,
    StoredWeightManifest,
    TensorDescriptor,
    TensorFragment,
)
from weightctl.controller.errors import ManifestError

if TYPE_CHECKING:
    from collections.abc import Mapping

RANK_MAX = 64
"""More dimensions than any array library has; bounds the products below."""
ALIASES_MIN = 2


def validate(manifest: StoredWeightManifest) -> None:
    """Check every rule.  Raises ManifestError for the first broken rule."""
    _check_fields(manifest)
    _check_keys(manifest)
    tensors = _check_references(manifest)
    _check_aliases(manifest, tensors)
    _check_coverage(manifest, tensors)
    _check_object_ranges(manifest)


def refuse(where: str, why: str) -> NoReturn:
    """Raise the one error of this module, in three parts."""
    raise ManifestError(
        f"manifest: {where or 'the document'} is not acceptable",
        why,
        "publish the revision again from its source; nothing of this manifest may be loaded",
    )


# --- 1. field rules -------------------------------------------------------------------------------


def _check_fields(manifest: StoredWeightManifest) -> None:
    if manifest.resource_kind != RESOURCE_KIND:
        refuse("resource_kind", f"it must be {RESOURCE_KIND!r}")
    for name in (
        "namespace",
        "resource_id",
        "revision",
        "group_id",
        "manifest_key",
        "created_at",
    ):
        _check_text(getattr(manifest, name), name)
    if not is_u64(manifest.weight_generation):
        refuse("weight_generation", f"it must be an integer from 0 to {U64_MAX}")
    if type(manifest.tensors) is not tuple or type(manifest.fragments) is not tuple:
        refuse("", "tensors and fragments must be arrays")
    for index, tensor in enumerate(manifest.tensors):
        if type(tensor) is not TensorDescriptor:
            refuse(f"tensors[{index}]", "it is not a tensor descriptor")
        _check_tensor(tensor, f"tensors[{index}]")
    for index, fragment in enumerate(manifest.fragments):
        if type(fragment) is not TensorFragment:
            refuse(f"fragments[{index}]", "it is not a stored fragment")
        _check_fragment(fragment, f"fragments[{index}]")


def _check_tensor(tensor: TensorDescriptor, where: str) -> None:
    _check_text(tensor.tensor_id, f"{where}.tensor_id")
    _check_text(tensor.dtype, f"{where}.dtype")
    _check_text(tensor.layout_fingerprint, f"{where}.layout_fingerprint")
    _check_numbers(tensor.global_shape, 1, f"{where}.global_shape")
    _check_number(tensor.itemsize, 1, f"{where}.itemsize")
    for name in ("layer_id", "expert_id"):
        if getattr(tensor, name) is not None:
            _check_number(getattr(tensor, name), 0, f"{where}.{name}")
    if tensor.shard_dims != ():
        _check_numbers(tensor.shard_dims, 0, f"{where}.shard_dims")
        if any(low >= high for low, high in pairwise(tensor.shard_dims)):
            refuse(f"{where}.shard_dims", "it must be sorted without repeats")
        if tensor.shard_dims[-1] >= len(tensor.global_shape):
            refuse(f"{where}.shard_dims", "it names a dimension that the tensor does not have")
    _check_axes(tensor, where)


def _check_axes(tensor: TensorDescriptor, where: str) -> None:
    where = f"{where}.parallel_axes"
    if type(tensor.parallel_axes) is not tuple:
        refuse(where, "it must be an array")
    dims: list[int] = []
    for axis in tensor.parallel_axes:
        _check_axis(axis, tensor, where)
        if axis.dim is not None:
            dims.append(axis.dim)
    kinds = [axis.kind for axis in tensor.parallel_axes]
    if len(set(kinds)) != len(kinds):
        refuse(where, "it has more than one axis of a kind")
    if tuple(sorted(dims)) != tensor.shard_dims:
        refuse(where, "the dimensions of its split axes must be exactly shard_dims")


def _check_axis(axis: ParallelAxis, tensor: TensorDescriptor, where: str) -> None:
    if type(axis) is not ParallelAxis:
        refuse(where, "it holds something that is not an axis")
    if type(axis.semantics) is not str or type(axis.kind) is not str:
        refuse(where, "semantics and kind must be text")
    if axis.semantics in {"replicated", "ownership"}:
        if axis.kind not in AXIS_KINDS or axis.dim is not None:
            refuse(where, f"a {axis.semantics} axis has a kind of {AXIS_KINDS} and no dim")
        return
    if axis.semantics != "split" or axis.kind not in {"ep", "tp"}:
        refuse(where, "an axis is split (ep or tp), replicated or ownership")
    _check_number(axis.dim, 0, f"{where}.dim")
    if axis.kind == "ep" and axis.dim != 0:
        refuse(where, "an ep axis splits dimension 0 only")
    if axis.kind == "ep" and tensor.expert_id is not None:
        refuse(where, "a tensor of one expert cannot be split over experts")


def _check_fragment(fragment: TensorFragment, where: str) -> None:
    _check_text(fragment.fragment_id, f"{where}.fragment_id")
    _check_text(fragment.tensor_id, f"{where}.tensor_id")
    _check_numbers(fragment.global_offset, 0, f"{where}.global_offset")
    _check_numbers(fragment.local_shape, 1, f"{where}.local_shape")
    _check_text(fragment.object_key, f"{where}.object_key")
    _check_number(fragment.object_offset, 0, f"{where}.object_offset")
    _check_number(fragment.nbytes, 1, f"{where}.nbytes")
    if type(fragment.aliases) is not tuple:
        refuse(f"{where}.aliases", "it must be an array")
    for alias in fragment.aliases:
        _check_text(alias, f"{where}.aliases")


def _check_text(value: object, where: str) -> None:
    if type(value) is not str or not value:
        refuse(where, "it must be text and not empty")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            refuse(where, "it is not well-formed Unicode")


def _check_number(value: object, least: int, where: str) -> None:
    # The exact type: True is an int to Python, and 8.0 equals 8, yet neither is a number here.
    if type(value) is not int or not least <= value <= U64_MAX:
        refuse(where, f"it must be an integer from {least} to {U64_MAX}")


def _check_numbers(values: object, least: int, where: str) -> None:
    if type(values) is not tuple or not 1 <= len(values) <= RANK_MAX:
        refuse(where, f"it must be an array of 1 to {RANK_MAX} integers")
    for value in values:
        _check_number(value, least, where)


# --- 2. key binding -------------------------------------------------------------------------------


def _check_keys(manifest: StoredWeightManifest) -> None:
    if not manifest.manifest_key.endswith(MANIFEST_SUFFIX):
        refuse("manifest_key", f"it must end with {MANIFEST_SUFFIX!r}")
    prefix = manifest.manifest_key.removesuffix(MANIFEST_SUFFIX) + PAYLOAD_INFIX
    for index, fragment in enumerate(manifest.fragments):
        if not fragment.object_key.startswith(prefix):
            refuse(f"fragments[{index}].object_key", f"it must start with {prefix!r}")


# --- 3. references and sizes ----------------------------------------------------------------------


def _check_references(manifest: StoredWeightManifest) -> Mapping[str, TensorDescriptor]:
    tensors = {tensor.tensor_id: tensor for tensor in manifest.tensors}
    if len(tensors) != len(manifest.tensors):
        refuse("tensors", "a tensor_id is used twice")
    if len({fragment.fragment_id for fragment in manifest.fragments}) != len(manifest.fragments):
        refuse("fragments", "a fragment_id is used twice")
    for index, fragment in enumerate(manifest.fragments):
        where = f"fragments[{index}]"
        tensor = tensors.get(fragment.tensor_id)
        if tensor is None:
            refuse(f"{where}.tensor_id", f"no tensor is called {fragment.tensor_id!r}")
        rank = len(tensor.global_shape)
        if len(fragment.global_offset) != rank or len(fragment.local_shape) != rank:
            refuse(where, f"its rank differs from the {rank} of {fragment.tensor_id!r}")
        for start, extent, size in zip(
            fragment.global_offset, fragment.local_shape, tensor.global_shape, strict=True
        ):
            if start + extent > size:
                refuse(where, f"it reaches beyond {fragment.tensor_id!r}")
        if fragment.nbytes != prod(fragment.local_shape) * tensor.itemsize:
            refuse(f"{where}.nbytes", "it is not the product of local_shape and itemsize")
    return tensors


# --- 4. alias groups ------------------------------------------------------------------------------


def _check_aliases(manifest: StoredWeightManifest, tensors: Mapping[str, TensorDescriptor]) -> None:
    groups: defaultdict[frozenset[str], defaultdict[object, set[str]]]
    groups = defaultdict(lambda: defaultdict(set))
    for index, fragment in enumerate(manifest.fragments):
        if not fragment.aliases:
            continue
        where = f"fragments[{index}].aliases"
        names = frozenset(fragment.aliases)
        if len(names) < ALIASES_MIN or len(names) != len(fragment.aliases):
            refuse(where, "it must name two or more different tensors")
        if fragment.tensor_id not in names:
            refuse(where, "it must name the fragment's own tensor")
        if not tensors.keys() >= names:
            refuse(where, "it names a tensor that does not exist")
        box = (fragment.global_offset, fragment.local_shape, fragment.nbytes)
        groups[names][box].add(fragment.tensor_id)
    for names, boxes in groups.items():
        if any(owners != names for owners in boxes.values()):
            refuse("fragments", f"the aliases {sorted(names)} do not all hold the same boxes")
        if len({_alias_shape(tensors[name]) for name in names}) != 1:
            refuse("tensors", f"the aliases {sorted(names)} have different descriptors")


def _alias_shape(tensor: TensorDescriptor) -> tuple[object, ...]:
    return (
        tensor.global_shape,
        tensor.dtype,
        tensor.itemsize,
        tensor.shard_dims,
        frozenset(tensor.parallel_axes),
        tensor.layer_id,
        tensor.expert_id,
        tensor.layout_fingerprint,
    )


# --- 5. coverage, 6. object ranges ----------------------------------------------------------------


def _check_coverage(
    manifest: StoredWeightManifest, tensors: Mapping[str, TensorDescriptor]
) -> None:
    boxes: dict[str, list[Box]] = {name: [] for name in tensors}
    for fragment in manifest.fragments:
        boxes[fragment.tensor_id].append((fragment.global_offset, fragment.local_shape))
    for name, tensor in tensors.items():
        problem = tiling_problem(tensor.global_shape, boxes[name])
        if problem is not None:
            refuse(f"tensor {name!r}", f"it {problem}")


def _check_object_ranges(manifest: StoredWeightManifest) -> None:
    ranges = sorted(
        (fragment.object_key, fragment.object_offset, fragment.nbytes)
        for fragment in manifest.fragments
    )
    for (key, start, size), (next_key, next_start, _) in pairwise(ranges):
        if key == next_key and start + size > next_start:
            refuse(f"object {key!r}", f"two fragments share its byte {next_start}")
