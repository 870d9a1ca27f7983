"""Targets: the stored manifest and the safetensors header with what an import makes of it."""

import hashlib
import json
import struct
from math import prod
from typing import Any

import safetensors

from tests.fuzz import scratch
from tests.fuzz.target import Fault, Target, same
from tests.support import manifests
from weightctl.controller.core.identity import Identity
from weightctl.controller.core.manifest import (
    ParallelAxis,
    StoredWeightManifest,
    canonical_bytes,
    payload_summary,
)
from weightctl.controller.core.manifest_codec import parse_manifest, read_manifest
from weightctl.controller.core.manifest_rules import validate
from weightctl.controller.core.ranges import TensorSlice, plan_ranges
from weightctl.controller.core.records import (
    Availability,
    ManifestReference,
    Residency,
    RevisionMetadata,
)
from weightctl.controller.errors import IntegrityError, ManifestError, SourceError
from weightctl.controller.weightstore.layout import build_manifest, plan_layout
from weightctl.controller.weightstore.safetensors import (
    ITEM_BYTES,
    LENGTH_BYTES,
    Header,
    encode_header,
    header_bytes,
    parse_header,
)
from weightctl.controller.weightstore.source import _weight_map

ELEMENTS_PLANNED = 4096
DATA_BYTES_CUT = 64 * 1024
_IDENTITY = Identity(namespace="n", resource_id="r", revision="v", weight_generation=1)


# --- manifest -------------------------------------------------------------------------------------


def _manifest_seeds() -> list[bytes]:
    tied = tuple(manifests.tensor(name, (2, 2)) for name in ("a", "b"))
    alias = manifests.manifest(
        tied,
        tuple(
            manifests.fragment(
                f"f{at}", name, ((0, 0), (2, 2)), aliases=("a", "b"), object_offset=8 * at
            )
            for at, name in enumerate(("a", "b"))
        ),
    )
    axes = (
        ParallelAxis(semantics="split", kind="ep", dim=0),
        ParallelAxis(semantics="split", kind="tp", dim=1),
        ParallelAxis(semantics="ownership", kind="pp"),
        ParallelAxis(semantics="replicated", kind="dp"),
    )
    corners = [((x, y), (1, 2)) for x in (0, 1) for y in (0, 2)]
    grid = manifests.manifest(
        (manifests.tensor("g", (2, 4), shard_dims=(0, 1), parallel_axes=axes, layer_id=0),),
        tuple(
            manifests.fragment(f"f{at}", "g", box, object_offset=4 * at)
            for at, box in enumerate(corners)
        ),
    )
    return [
        canonical_bytes(manifests.manifest((), ())),
        canonical_bytes(manifests.two_halves()),
        canonical_bytes(alias),
        canonical_bytes(grid),
        json.dumps(manifests.document(manifests.two_halves()), indent=1).encode(),
    ]


def _check_manifest(value: StoredWeightManifest, raw: bytes) -> None:
    spelled = canonical_bytes(value)
    again = parse_manifest(spelled)
    same(canonical_bytes(again), spelled, "canonical bytes of what they spell")
    summary = payload_summary(value)
    if summary.payload_count > len(value.fragments) or summary.logical_bytes < 0:
        raise Fault(f"the payloads add up to {summary}")
    same(read_manifest(_published(value, spelled), spelled), again, "the manifest of its record")
    if spelled != raw:
        try:
            read_manifest(_published(value, raw), raw)
        except IntegrityError:
            pass
        else:
            raise Fault("stored bytes that are not canonical were read")
    if sum(prod(tensor.global_shape) for tensor in value.tensors) <= ELEMENTS_PLANNED:
        _check_ranges(value)


def _published(value: StoredWeightManifest, raw: bytes) -> RevisionMetadata:
    return RevisionMetadata(
        identity=Identity(
            namespace=value.namespace,
            resource_id=value.resource_id,
            revision=value.revision,
            weight_generation=value.weight_generation,
        ),
        manifest=ManifestReference(
            manifest_key=value.manifest_key,
            manifest_sha256=hashlib.sha256(raw).hexdigest(),
            payload_group_id=value.group_id,
        ),
        availability=Availability.READY,
        residency=Residency.HOT,
    )


def _check_ranges(value: StoredWeightManifest) -> None:
    """Every byte of every tensor is read exactly once."""
    plan = plan_ranges(value, [TensorSlice(tensor_id=one.tensor_id) for one in value.tensors])
    ends = [0] * len(plan.targets)
    pieces = [piece for read in plan.reads for piece in plan.pieces(read)]
    for piece in sorted(pieces, key=lambda piece: (piece.target, piece.offset)):
        same(piece.offset, ends[piece.target], "where a piece begins")
        ends[piece.target] += piece.nbytes
    same(ends, [target.nbytes for target in plan.targets], "bytes of the targets")


def _many_tensors(n: int) -> bytes:
    tensors = tuple(manifests.tensor(f"t{at}", (1,)) for at in range(n))
    fragments = tuple(
        manifests.fragment(f"f{at}", f"t{at}", ((0,), (1,)), object_offset=2 * at)
        for at in range(n)
    )
    return canonical_bytes(manifests.manifest(tensors, fragments))


def _many_fragments(n: int) -> bytes:
    fragments = tuple(
        manifests.fragment(f"f{at}", "t", ((at, 0), (1, 1)), object_offset=2 * at)
        for at in range(n)
    )
    return canonical_bytes(manifests.manifest((manifests.tensor("t", (n, 1)),), fragments))


def _many_aliases(n: int) -> bytes:
    names = tuple(f"t{at}" for at in range(n))
    tensors = tuple(manifests.tensor(name, (1,)) for name in names)
    fragments = tuple(
        manifests.fragment(f"f{name}", name, ((0,), (1,)), aliases=names, object_offset=2 * at)
        for at, name in enumerate(names)
    )
    return canonical_bytes(manifests.manifest(tensors, fragments))


def _many_dimensions(n: int) -> bytes:
    rank = min(n, 64)
    one = manifests.tensor("t", (1,) * rank)
    box = ((0,) * rank, (1,) * rank)
    return canonical_bytes(manifests.manifest((one,), (manifests.fragment("f", "t", box),)))


# --- safetensors ----------------------------------------------------------------------------------


def _file(header: object, data_bytes: int = 0) -> bytes:
    raw = json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + bytes(data_bytes)


def _entry(dtype: str, shape: list[int], start: int) -> dict[str, Any]:
    stop = start + prod(shape) * ITEM_BYTES.get(dtype, 1)
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


def _safetensors_seeds() -> list[bytes]:
    many = {f"t{at}": _entry(dtype, [1], 8 * at) for at, dtype in enumerate(("I64", "F64", "C64"))}
    return [
        _file({}),
        _file({"__metadata__": {"format": "pt"}, "w": _entry("F16", [4, 8], 0)}, 64),
        _file({"a": _entry("F32", [2], 0), "b": _entry("U8", [], 8)}, 9),
        _file(many, 24),
        _file({"x": _entry("F8_E4M3", [0], 0)}),
    ]  # fmt: skip


def _parse_safetensors(raw: bytes) -> Header:
    size = header_bytes("fuzz", raw[:LENGTH_BYTES], len(raw))
    return parse_header("fuzz", raw[LENGTH_BYTES : LENGTH_BYTES + size], len(raw))


def _mend_safetensors(raw: bytes) -> bytes:
    """The header is what stands before the last bracket; the data is as long as it says."""
    end = raw.rfind(b"}") + 1
    header = raw[min(LENGTH_BYTES, end) : end]
    claimed = 0
    try:
        for value in json.loads(header).values():
            if isinstance(value, dict) and isinstance(value.get("data_offsets"), list):
                offsets = [one for one in value["data_offsets"] if type(one) is int]
                claimed = max(claimed, *offsets, 0)
    except (ValueError, AttributeError, RecursionError):
        pass
    data = bytes(claimed) if claimed <= DATA_BYTES_CUT else b""
    return struct.pack("<Q", len(header)) + header + data


def _check_safetensors(value: Header, raw: bytes) -> None:
    names = {entry.name: entry for entry in value.entries}
    if len(names) != len(value.entries):
        raise Fault("a tensor is named twice")
    head = encode_header(value.entries, value.metadata)
    data = raw[value.data_offset :]
    again = _parse_safetensors(head + data)
    same((again.entries, again.metadata), (value.entries, value.metadata), "header read back")
    if b"-0" not in raw[: value.data_offset]:  # zero here, no integer there
        read: Any = safetensors.deserialize
        peer = {name: (one["dtype"], one["shape"]) for name, one in read(raw)}
        ours = {entry.name: (entry.dtype, list(entry.shape)) for entry in value.entries}
        same(peer, ours, "what the format's own library reads")
    if len(data) <= DATA_BYTES_CUT:
        for payload_bytes in (8, 1024):
            _check_layout(value, len(data), payload_bytes)


def _check_layout(value: Header, data_bytes: int, payload_bytes: int) -> None:
    plan = plan_layout(_IDENTITY, [value], payload_bytes)
    same(plan.logical_bytes, data_bytes, "bytes of all payloads")
    manifest = build_manifest(_IDENTITY, plan, 0)
    validate(manifest)
    same(
        payload_summary(manifest).object_bytes,
        {payload.key: payload.nbytes for payload in plan.payloads},
        "payloads of the manifest",
    )


# --- the index of several files -------------------------------------------------------------------


def _parse_index(raw: bytes) -> dict[str, str]:
    return _weight_map(scratch.written("model.safetensors.index.json", raw))


def _check_index(value: dict[str, str], raw: bytes) -> None:
    for name in value.values():
        if "/" in name or name in {".", ".."} or not name.endswith(".safetensors"):
            raise Fault(f"the index names {name!r}")


def _index_seeds() -> list[bytes]:
    parts = {f"t{at}": f"model-0000{at}-of-00002.safetensors" for at in (1, 2)}
    whole = {"metadata": {"total_size": 1}, "weight_map": parts}
    return [
        json.dumps(whole).encode(),
        b'{"weight_map":{}}',
        b'{"weight_map":{"a":"../x.safetensors"}}',
    ]


TARGETS = (
    Target(
        name="manifest",
        parse=parse_manifest,
        check=_check_manifest,
        refusals=(ManifestError,),
        seeds=_manifest_seeds,
        form="json",
        words=(b"/manifest", b"/payload/", b"split", b"replicated", b"ownership", b"ep", b"tp",
               b"dp", b"pp", b"model_weight", b"aliases", b"shard_dims"),
        shapes={
            "tensors": _many_tensors,
            "fragments": _many_fragments,
            "aliases": _many_aliases,
            "dimensions": _many_dimensions,
        },
    ),
    Target(
        name="safetensors",
        parse=_parse_safetensors,
        check=_check_safetensors,
        mend=_mend_safetensors,
        refusals=(SourceError,),
        seeds=_safetensors_seeds,
        words=(*(name.encode() for name in ITEM_BYTES), b"__metadata__", b"dtype", b"shape",
               b"data_offsets", b'":{"', b"[0,8]"),
        shapes={
            "tensors": lambda n: _file({f"t{at}": _entry("U8", [1], at) for at in range(n)}, n),
            "twice": lambda n: bytes(8) + b"{" + b",".join([b'"a":1'] * n) + b"}",
            "brackets": lambda n: bytes(8) + b'{"a":[' + b"[]," * n + b"1]}",
            "dimensions": lambda n: _file({"t": _entry("U8", [1] * n, 0)}, 1),
        },
    ),
    Target(
        name="safetensors-index",
        parse=_parse_index,
        check=_check_index,
        refusals=(SourceError,),
        seeds=_index_seeds,
        form="json",
        words=(b"weight_map", b".safetensors", b"../", b"/"),
        shapes={
            "names": lambda n: json.dumps(
                {"weight_map": {f"t{at}": f"m{at}.safetensors" for at in range(n)}}
            ).encode(),
        },
    ),
)  # fmt: skip
