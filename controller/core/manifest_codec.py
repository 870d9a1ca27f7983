"""Stored bytes to a checked manifest, and the reader's check.  Layer: core (pure).

Owns the strict parse and the check before use.  A parsed manifest has passed every rule, so nobody
checks it again.  Input is hostile until then: its size, nesting and numbers are bounded, and
nothing but ManifestError comes out.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NoReturn

from weightctl.controller.core import manifest_rules
from weightctl.controller.core.manifest import (
    ParallelAxis,
    StoredWeightManifest,
    TensorDescriptor,
    TensorFragment,
    manifest_digest,
)
from weightctl.controller.core.manifest_rules import refuse
from weightctl.controller.core.records import Availability
from weightctl.controller.errors import ErrorCode, IntegrityError, WeightError

if TYPE_CHECKING:
    from weightctl.controller.core.records import RevisionMetadata

MANIFEST_BYTES_MAX = 256 * 1024 * 1024
"""About half a million tensors; a larger document is refused unread."""

_TOP = frozenset(field.name for field in fields(StoredWeightManifest))
_TENSOR = frozenset(field.name for field in fields(TensorDescriptor))
_FRAGMENT = frozenset(field.name for field in fields(TensorFragment))
_AXIS = frozenset({"semantics", "kind"})
_SPLIT_AXIS = _AXIS | {"dim"}


def parse_manifest(raw: bytes) -> StoredWeightManifest:
    """The manifest that `raw` spells, checked whole.  Raises ManifestError."""
    document = _object(_load(raw), _TOP, "")
    document["tensors"] = tuple(
        _tensor(value, f"tensors[{index}]")
        for index, value in enumerate(_items(document["tensors"], "tensors"))
    )
    document["fragments"] = tuple(
        _fragment(value, f"fragments[{index}]")
        for index, value in enumerate(_items(document["fragments"], "fragments"))
    )
    manifest = StoredWeightManifest(**document)
    manifest_rules.validate(manifest)
    return manifest


def read_manifest(record: RevisionMetadata, raw: bytes) -> StoredWeightManifest:
    """The manifest of a READY record from its stored bytes, checked before use.

    Both the stored bytes and the canonical bytes must have the recorded digest.  Raises WeightError
    NOT_READY, IntegrityError for another manifest than the recorded one, or ManifestError.
    """
    if record.availability is not Availability.READY:
        raise WeightError(
            ErrorCode.NOT_READY,
            f"revision {record.identity} cannot be read",
            f"it is {record.availability.name}, and only a READY revision is complete",
            "wait until it is READY; `weightctl explain` shows what it waits for",
        )
    expected = record.manifest.manifest_sha256
    found = hashlib.sha256(raw).hexdigest()
    if found != expected:
        _differs(record, f"its stored bytes have SHA-256 {found}, recorded is {expected}")
    manifest = parse_manifest(raw)
    if manifest_digest(manifest) != expected:
        _differs(record, "its stored bytes are not its canonical bytes")
    _check_names(record, manifest)
    return manifest


def _check_names(record: RevisionMetadata, manifest: StoredWeightManifest) -> None:
    identity, reference = record.identity, record.manifest
    for name, found, expected in (
        ("namespace", manifest.namespace, identity.namespace),
        ("resource_id", manifest.resource_id, identity.resource_id),
        ("revision", manifest.revision, identity.revision),
        ("weight_generation", manifest.weight_generation, identity.weight_generation),
        ("group_id", manifest.group_id, reference.payload_group_id),
        ("manifest_key", manifest.manifest_key, reference.manifest_key),
    ):
        if found != expected:
            _differs(record, f"its {name} is {found!r}, recorded is {expected!r}")


def _differs(record: RevisionMetadata, why: str) -> NoReturn:
    raise IntegrityError(
        f"manifest {record.manifest.manifest_key!r} of {record.identity} is not the published one",
        why,
        "verify the manifest's replicas and repair the revision from a good one",
    )


# --- strict JSON ----------------------------------------------------------------------------------


def _load(raw: bytes) -> Any:  # noqa: ANN401 - JSON is untyped until its fields are checked
    if len(raw) > MANIFEST_BYTES_MAX:
        refuse("", f"it has {len(raw)} bytes, more than {MANIFEST_BYTES_MAX}")
    try:
        return json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_float=_no_float,
            parse_constant=_no_float,
        )
    except (ValueError, RecursionError) as error:
        # ValueError covers bad JSON, bad UTF-8 and integers beyond the interpreter's digit limit.
        refuse("", f"it is not strict JSON: {str(error)[:200]}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        refuse("", "a field name stands twice in one object")
    return document


def _no_float(text: str) -> NoReturn:
    refuse("", f"{text[:40]} is not an integer")


# --- fields ---------------------------------------------------------------------------------------


def _object(value: Any, names: frozenset[str], where: str) -> dict[str, Any]:  # noqa: ANN401
    if type(value) is not dict:
        refuse(where, "it must be an object")
    if value.keys() != names:
        missing, unknown = sorted(names - value.keys()), sorted(value.keys() - names)
        refuse(where, f"missing fields {missing}, unknown fields {unknown[:10]}")
    return value


def _tuple(value: Any) -> Any:  # noqa: ANN401
    """Arrays become tuples; anything else is left for the field rules to refuse."""
    return tuple(value) if type(value) is list else value


def _items(value: Any, where: str) -> list[Any]:  # noqa: ANN401
    if type(value) is not list:
        refuse(where, "it must be an array")
    return value


def _tensor(value: Any, where: str) -> TensorDescriptor:  # noqa: ANN401
    document = _object(value, _TENSOR, where)
    document["global_shape"] = _tuple(document["global_shape"])
    document["shard_dims"] = _tuple(document["shard_dims"])
    where = f"{where}.parallel_axes"
    document["parallel_axes"] = tuple(
        _axis(axis, where) for axis in _items(document["parallel_axes"], where)
    )
    return TensorDescriptor(**document)


def _axis(value: Any, where: str) -> ParallelAxis:  # noqa: ANN401
    split = type(value) is dict and value.get("semantics") == "split"
    return ParallelAxis(**_object(value, _SPLIT_AXIS if split else _AXIS, where))


def _fragment(value: Any, where: str) -> TensorFragment:  # noqa: ANN401
    document = _object(value, _FRAGMENT, where)
    for name in ("global_offset", "local_shape", "aliases"):
        document[name] = _tuple(document[name])
    return TensorFragment(**document)
