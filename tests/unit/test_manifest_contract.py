"""Every rule of a stored manifest, as tables over small manifests."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.manifests import (
    PAYLOAD,
    changed,
    document,
    fragment,
    manifest,
    tensor,
    two_halves,
)
from weightctl.controller.core.identity import payload_keys_digest
from weightctl.controller.core.manifest import (
    ParallelAxis,
    StoredWeightManifest,
    TensorFragment,
    canonical_bytes,
    manifest_digest,
    payload_summary,
)
from weightctl.controller.core.manifest_codec import MANIFEST_BYTES_MAX, parse_manifest
from weightctl.controller.core.manifest_rules import validate
from weightctl.controller.errors import ManifestError

VECTORS = json.loads(
    (Path(__file__).parents[1] / "data" / "golden_vectors.json").read_text("utf-8")
)["manifests"]

Document = dict[str, Any]


def refused(source: StoredWeightManifest | bytes, why: str) -> None:
    check: Callable[[Any], object] = parse_manifest if isinstance(source, bytes) else validate
    with pytest.raises(ManifestError, match=why) as caught:
        check(source)
    assert caught.value.what
    assert caught.value.why
    assert caught.value.todo


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_golden_manifest_is_reproduced_byte_for_byte(vector: Document) -> None:
    raw = vector["canonical_json"].encode()
    parsed = parse_manifest(raw)
    assert canonical_bytes(parsed) == raw
    assert len(raw) == vector["canonical_bytes"]
    assert manifest_digest(parsed) == vector["manifest_sha256"] == hashlib.sha256(raw).hexdigest()
    summary = payload_summary(parsed)
    assert list(summary.object_bytes) == vector["summary"]["payload_keys"]
    assert summary.payload_count == vector["summary"]["payload_count"]
    assert summary.logical_bytes == vector["summary"]["logical_bytes"]
    assert summary.payload_keys_sha256 == vector["summary"]["payload_keys_sha256"]


def test_summary_counts_each_object_to_its_last_used_byte() -> None:
    source = replace(
        two_halves(),
        fragments=(
            fragment("f0", "w", ((0, 0), (4, 4)), object_offset=8),
            fragment("f1", "w", ((4, 0), (4, 4)), object_key=f"{PAYLOAD}1"),
        ),
    )
    validate(source)
    summary = payload_summary(source)
    assert summary.object_bytes == {f"{PAYLOAD}0": 40, f"{PAYLOAD}1": 32}
    assert summary.logical_bytes == 72
    assert summary.payload_keys_sha256 == payload_keys_digest([f"{PAYLOAD}1", f"{PAYLOAD}0"])


# --- rows 130 to 136 ------------------------------------------------------------------------------

TP0 = ParallelAxis(semantics="split", kind="tp", dim=0)
TP1 = ParallelAxis(semantics="split", kind="tp", dim=1)
EP0 = ParallelAxis(semantics="split", kind="ep", dim=0)
PP = ParallelAxis(semantics="ownership", kind="pp")
DP = ParallelAxis(semantics="replicated", kind="dp")


@pytest.mark.acceptance(130)
@pytest.mark.parametrize(
    "dims, axes",
    [((), ()), ((0,), (TP0,)), ((0, 1), (TP1, EP0)), ((1,), (TP1, PP, DP))],
    ids=["none", "single", "multi", "with-owners"],
)
def test_round_trip_keeps_shard_dims_and_axes_and_names_no_address(
    dims: tuple[int, ...], axes: tuple[ParallelAxis, ...]
) -> None:
    source = replace(
        two_halves(), tensors=(tensor("w", (8, 4), shard_dims=dims, parallel_axes=axes),)
    )
    raw = canonical_bytes(source)
    parsed = parse_manifest(raw)
    assert canonical_bytes(parsed) == raw
    assert parsed.tensors[0].shard_dims == dims
    assert set(parsed.tensors[0].parallel_axes) == set(axes)
    kinds = [axis["kind"] for axis in document(source)["tensors"][0]["parallel_axes"]]
    assert kinds == sorted(kinds, key=["dp", "pp", "ep", "tp"].index)
    assert not {"address", "endpoint", "ptr", "tenant", "tenant_id"} & set(document(source))


def _fragment_1(**changes: Any) -> StoredWeightManifest:
    source = two_halves()
    return replace(source, fragments=(source.fragments[0], replace(source.fragments[1], **changes)))


@pytest.mark.acceptance(131)
@pytest.mark.parametrize(
    "source, why",
    [
        (_fragment_1(tensor_id="other"), "no tensor is called"),
        (_fragment_1(global_offset=(5, 0)), "reaches beyond"),
        (_fragment_1(global_offset=(4, 1)), "reaches beyond"),
        (_fragment_1(nbytes=31), "not the product"),
        (_fragment_1(nbytes=33), "not the product"),
        (_fragment_1(global_offset=(4,), local_shape=(4,)), "rank differs"),
        (_fragment_1(fragment_id="f0"), "fragment_id is used twice"),
    ],
)
def test_fragment_must_fit_its_tensor(source: StoredWeightManifest, why: str) -> None:
    refused(source, why)


@pytest.mark.acceptance(132)
@pytest.mark.parametrize(
    "source, why",
    [
        (replace(two_halves(), fragments=two_halves().fragments[:1]), "16 of 32 elements"),
        (replace(two_halves(), fragments=()), "0 of 32 elements"),
        (_fragment_1(global_offset=(0, 0)), "repeats"),
        (_fragment_1(global_offset=(3, 0)), "overlapping"),
    ],
)
def test_fragments_must_tile_their_tensor(source: StoredWeightManifest, why: str) -> None:
    refused(source, why)


@pytest.mark.acceptance(133)
@pytest.mark.parametrize(
    "key, offset, overlaps",
    [
        ("0", 0, True),
        ("0", 16, True),
        ("0", 31, True),
        ("0", 32, False),
        ("0", 64, False),
        ("1", 0, False),
        ("1", 16, False),
    ],
)
def test_object_ranges_may_touch_but_not_overlap(key: str, offset: int, overlaps: bool) -> None:
    source = _fragment_1(object_key=f"{PAYLOAD}{key}", object_offset=offset)
    if overlaps:
        refused(source, "share its byte")
    else:
        validate(source)


@dataclass(frozen=True)
class RuntimeFragment(TensorFragment):
    """What a serving runtime might pass by mistake: a stored fragment with a live address."""

    address: int = 0


@pytest.mark.acceptance(134)
def test_runtime_fragment_is_refused() -> None:
    plain = two_halves().fragments
    live = RuntimeFragment(
        **{name: getattr(plain[1], name) for name in TensorFragment.__dataclass_fields__},
        address=0x7F00,
    )
    refused(replace(two_halves(), fragments=(plain[0], live)), "not a stored fragment")


NUMBERS: list[Callable[[Document, object], object]] = [
    lambda doc, value: doc.update(weight_generation=value),
    lambda doc, value: doc["tensors"][0].update(itemsize=value),
    lambda doc, value: doc["tensors"][0].update(global_shape=[8, value]),
    lambda doc, value: doc["tensors"][0].update(shard_dims=[value]),
    lambda doc, value: doc["tensors"][0].update(layer_id=value),
    lambda doc, value: doc["tensors"][0].update(expert_id=value),
    lambda doc, value: doc["tensors"][0]["parallel_axes"][0].update(dim=value),
    lambda doc, value: doc["fragments"][1].update(global_offset=[4, value]),
    lambda doc, value: doc["fragments"][1].update(local_shape=[4, value]),
    lambda doc, value: doc["fragments"][1].update(object_offset=value),
    lambda doc, value: doc["fragments"][1].update(nbytes=value),
]


@pytest.mark.acceptance(134)
@pytest.mark.parametrize("value", [True, False, 8.0, 1e3, -1, 2**64, "8", [8], {}])
@pytest.mark.parametrize("put", NUMBERS)
def test_number_must_be_a_true_integer(
    put: Callable[[Document, object], object], value: object
) -> None:
    refused(changed(lambda doc: put(doc, value)), "integer|array|product")


def _field(name: str, value: object) -> bytes:
    return changed(lambda doc: doc.update({name: value}))


@pytest.mark.acceptance(135)
@pytest.mark.parametrize(
    "raw, why",
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b"\xff", "JSON"),
        (b"\xef\xbb\xbf{}", "JSON"),
        (b"[]", "must be an object"),
        (b"null", "must be an object"),
        (b'"text"', "must be an object"),
        (b'{"a":1,"a":1}', "stands twice"),
        (b'{"a":{"b":1,"b":2}}', "stands twice"),
        (_field("weight_generation", float("nan")), "NaN"),
        (_field("weight_generation", float("inf")), "Infinity"),
        (_field("weight_generation", float("-inf")), "Infinity"),
        (b'{"a":-0.0}', "not an integer"),
        (_field("tenant_id", "default"), "unknown fields"),
        (changed(lambda doc: doc.pop("created_at")), "missing fields"),
        (changed(lambda doc: doc["tensors"][0].pop("layer_id")), "missing fields"),
        (changed(lambda doc: doc["tensors"][0].update(extra=1)), "unknown fields"),
        (changed(lambda doc: doc["fragments"][0].pop("aliases")), "missing fields"),
        (changed(lambda doc: doc["fragments"][0].update(address=1)), "unknown fields"),
        (changed(lambda doc: doc["tensors"][0]["parallel_axes"][0].pop("dim")), "missing fields"),
        (_field("tensors", {}), "must be an array"),
        (_field("fragments", None), "must be an array"),
        (_field("tensors", [1]), "must be an object"),
        (_field("resource_kind", "optimizer"), "must be 'model_weight'"),
        (_field("created_at", ""), "not empty"),
        (_field("namespace", 1), "must be text"),
        (_field("revision", "\ud800"), "well-formed"),
    ],
)
def test_document_must_be_strict_json_with_exactly_the_fields(raw: bytes, why: str) -> None:
    refused(raw, why)


@pytest.mark.acceptance(136)
@pytest.mark.parametrize(
    "change, why",
    [
        ({"manifest_key": "weights/production/llama-70b/step-100/7"}, "must end with"),
        ({"manifest_key": "weights/production/llama-70b/step-100/8/manifest"}, "must start with"),
        ({"manifest_key": "manifest"}, "must end with"),
    ],
)
def test_manifest_key_must_name_the_payloads_stem(change: Document, why: str) -> None:
    refused(replace(two_halves(), **change), why)


@pytest.mark.acceptance(136)
@pytest.mark.parametrize(
    "key", ["weights/production/llama-70b/step-100/8/payload/1", "payload/1", PAYLOAD[:-1]]
)
def test_payload_key_must_lie_under_the_manifests_stem(key: str) -> None:
    refused(_fragment_1(object_key=key), "must start with")


def test_group_id_is_free_of_the_manifest_key() -> None:
    validate(replace(two_halves(), group_id="anything"))


# --- the other rules ------------------------------------------------------------------------------


def _axes(*axes: ParallelAxis, dims: tuple[int, ...], **changes: Any) -> StoredWeightManifest:
    described = tensor("w", (8, 4), shard_dims=dims, parallel_axes=axes, **changes)
    return replace(two_halves(), tensors=(described,))


def _axis(**fields: Any) -> ParallelAxis:
    return ParallelAxis(**fields)


@pytest.mark.parametrize(
    "source, why",
    [
        (_axes(TP0, dims=()), "exactly shard_dims"),
        (_axes(dims=(0,)), "exactly shard_dims"),
        (_axes(TP0, TP1, dims=(0, 1)), "more than one axis"),
        (_axes(TP0, EP0, dims=(0,)), "exactly shard_dims"),
        (_axes(TP1, dims=(1, 0)), "sorted"),
        (_axes(TP1, dims=(1, 1)), "sorted"),
        (_axes(_axis(semantics="split", kind="tp", dim=2), dims=(2,)), "does not have"),
        (_axes(_axis(semantics="split", kind="tp", dim=2), dims=()), "exactly shard_dims"),
        (_axes(_axis(semantics="split", kind="ep", dim=1), dims=(1,)), "dimension 0 only"),
        (_axes(_axis(semantics="split", kind="dp", dim=0), dims=(0,)), "an axis is"),
        (_axes(_axis(semantics="split", kind="tp"), dims=()), "must be an integer"),
        (_axes(_axis(semantics="replicated", kind="tp", dim=0), dims=(0,)), "no dim"),
        (_axes(_axis(semantics="ownership", kind="zz"), dims=()), "no dim"),
        (_axes(_axis(semantics="other", kind="tp"), dims=()), "an axis is"),
        (_axes(EP0, dims=(0,), expert_id=0), "cannot be split over experts"),
    ],
)
def test_axes_must_agree_with_shard_dims(source: StoredWeightManifest, why: str) -> None:
    refused(source, why)


def _aliased(
    names: tuple[str, ...], *, other: Document | None = None, count: int = 2
) -> StoredWeightManifest:
    tensors = (tensor("a", (4,)), tensor("b", (4,), **(other or {})))
    fragments = tuple(
        fragment(f"f{index}", name, ((0,), (4,)), object_offset=8 * index, aliases=names)
        for index, name in enumerate(("a", "b")[:count])
    )
    if count == 1:
        fragments += (fragment("f1", "b", ((0,), (4,)), object_offset=8),)
    return manifest(tensors, fragments)


def test_aliases_store_their_own_bytes_and_are_sorted_in_the_canonical_form() -> None:
    source = _aliased(("b", "a"))
    validate(source)
    assert document(source)["fragments"][0]["aliases"] == ["a", "b"]
    assert payload_summary(source).logical_bytes == 16


@pytest.mark.parametrize(
    "source, why",
    [
        (_aliased(("a",)), "two or more"),
        (_aliased(("a", "a")), "two or more"),
        (_aliased(("b", "c")), "own tensor"),
        (_aliased(("a", "b", "c")), "does not exist"),
        (_aliased(("a", "b"), count=1), "do not all hold"),
        (_aliased(("a", "b"), other={"dtype": "BF16"}), "different descriptors"),
        (_aliased(("a", "b"), other={"layer_id": 3}), "different descriptors"),
        (_aliased(("a", "b"), other={"layout_fingerprint": "x"}), "different descriptors"),
    ],
)
def test_alias_group_must_be_whole_and_alike(source: StoredWeightManifest, why: str) -> None:
    refused(source, why)


def test_aliases_may_not_share_object_bytes() -> None:
    source = _aliased(("a", "b"))
    shared = tuple(replace(part, object_offset=0) for part in source.fragments)
    refused(replace(source, fragments=shared), "share its byte")


@pytest.mark.parametrize(
    "raw",
    [
        b"[" * 200_000,
        b'{"a":' * 200_000,
        b'{"weight_generation":' + b"9" * 100_000 + b"}",
        changed(lambda doc: doc["tensors"][0].update(global_shape=[2**64 - 1] * 1000)),
    ],
    ids=["arrays", "objects", "digits", "rank"],
)
def test_hostile_sizes_are_refused_and_not_followed(raw: bytes) -> None:
    with pytest.raises(ManifestError):
        parse_manifest(raw)


def test_document_beyond_the_limit_is_refused_unread() -> None:
    with pytest.raises(ManifestError, match="more than"):
        parse_manifest(bytes(MANIFEST_BYTES_MAX + 1))


def test_empty_manifest_parses_and_has_no_payload() -> None:
    empty = manifest((), ())
    assert parse_manifest(canonical_bytes(empty)) == empty
    assert payload_summary(empty).payload_count == 0


def test_records_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        two_halves().tensors[0].dtype = "F32"  # type: ignore[misc]
