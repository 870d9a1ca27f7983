"""The file that `snapshot save` writes: one JSON document of sections.  Layer: store; blocking.

    {"apiVersion": "weightctl/v1", "kind": "Snapshot", "holder": store uuid, "sequence": number,
     "createdMs": wall time,
     "sections": {
       "objects":         {"sha256": hex, "body": {"rows": [...]}},
       "weight_metadata": {"sha256": hex, "body": {"schemaVersion": 1, "metadata": [...],
                           "leases": [...], "operations": [...], "nextLeaseId": number,
                           "nextOperationId": number}}}}

Records are rows of the codec; an object is [tenant, group id, key, data type, size, sha256 hex,
hard pin]. The digest is over the body as compact JSON with sorted keys in ASCII. A missing section
is empty; one that is damaged or invalid makes the whole file unusable.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from weightctl.controller.core.identity import (
    is_valid_sha256,
    text_bytes,
)
from weightctl.controller.core.records import Snapshot
from weightctl.controller.core.refusals import invalid
from weightctl.controller.core.snapshot import validate_snapshot
from weightctl.controller.errors import StateDirectoryError, WeightError
from weightctl.controller.store import codec
from weightctl.controller.store.codec import CodecError
from weightctl.controller.store.drafts import draft_of, open_draft, sweep_drafts
from weightctl.controller.store.rows import ObjectRow, object_problem

if TYPE_CHECKING:
    from collections.abc import Callable

API_VERSION = "weightctl/v1"
KIND = "Snapshot"
WEIGHTS = "weight_metadata"
OBJECTS = "objects"
_READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_numbers = itertools.count()
_RETRY = "use another snapshot file; nothing was changed"

T = TypeVar("T")
StoredObject = tuple[str, str, ObjectRow]
"""Tenant, group id, row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """What a snapshot file holds: the weight state and the object directory of one moment."""

    weights: Snapshot
    objects: tuple[StoredObject, ...] = ()
    holder: str = ""
    sequence: int = 0
    created_ms: int = 0


def encode_archive(archive: Archive) -> bytes:
    """The bytes of a snapshot file."""
    weights = archive.weights
    sections: dict[str, dict[str, Any]] = {
        OBJECTS: {"rows": [_object_values(*stored) for stored in archive.objects]},
        WEIGHTS: {
            "schemaVersion": weights.schema_version,
            "metadata": [codec.metadata_row(record) for record in weights.metadata],
            "leases": [codec.lease_row(lease) for lease in weights.leases],
            "operations": [codec.operation_row(operation) for operation in weights.operations],
            "nextLeaseId": weights.next_lease_id,
            "nextOperationId": weights.next_operation_id,
        },
    }
    document = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "holder": archive.holder,
        "sequence": archive.sequence,
        "createdMs": archive.created_ms,
        "sections": {
            name: {"sha256": _digest(body), "body": body} for name, body in sections.items()
        },
    }
    return json.dumps(document, separators=(",", ":")).encode("ascii") + b"\n"


def decode_archive(raw: bytes) -> Archive:
    """Inverse of `encode_archive`, wholly checked.  Raises INVALID_ARGUMENT."""
    try:
        document = json.loads(raw, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise _refused(f"it is not JSON: {error}") from error
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise _refused(f"it is no document of kind {KIND}")
    if document.get("apiVersion") != API_VERSION:
        raise _refused(f"its apiVersion is not {API_VERSION}")
    sections = document.get("sections")
    if not isinstance(sections, dict) or not sections.keys() <= {OBJECTS, WEIGHTS}:
        raise _refused("its sections are not those that this version knows")
    try:
        archive = Archive(
            weights=_section(sections, WEIGHTS, _weights) or Snapshot(),
            objects=_section(sections, OBJECTS, _objects) or (),
            holder=_field(document, "holder", str),
            sequence=_field(document, "sequence", int),
            created_ms=_field(document, "createdMs", int),
        )
        validate_snapshot(archive.weights)
    except (CodecError, RecursionError) as error:
        raise _refused(str(error)) from error
    except WeightError as error:
        raise _refused(error.why) from error
    return archive


def read_archive(path: str | os.PathLike[str]) -> Archive:
    """Read and check a snapshot file; blocking.

    Raises INVALID_ARGUMENT for what is no valid snapshot, StateDirectoryError for unreadable ones.
    """
    try:
        raw = _read(path)
    except OSError as error:
        raise _file_error(Path(path), "read", error) from error
    return decode_archive(raw)


def _read(path: str | os.PathLike[str]) -> bytes:
    """A regular file as long as it is now; of anything else the end may never come."""
    # O_NONBLOCK: opening a pipe by mistake must not wait for a writer.
    descriptor = os.open(path, _READ_FLAGS)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise _refused(f"{os.fspath(path)} is no regular file")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(found.st_size)
    except MemoryError:
        raise _refused(f"{os.fspath(path)} is larger than the memory") from None
    finally:
        os.close(descriptor)


def write_archive(path: Path, archive: Archive) -> None:
    """Write a snapshot file, durable and whole or not at all; blocking."""
    raw = encode_archive(archive)
    draft = draft_of(path, f"{os.getpid():08x}{next(_numbers):08x}")
    try:
        sweep_drafts(path)
        with open(open_draft(draft), "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
            draft.replace(path)  # while its lock is held: nobody takes it for a leftover
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise _file_error(path, "written", error) from error


def _file_error(path: Path, verb: str, error: OSError) -> StateDirectoryError:
    return StateDirectoryError(
        f"snapshot file {path} cannot be {verb}",
        f"SnapshotFile: {error.strerror}",
        "check the path, its permissions and the free space, then try again",
    )


def _section(
    sections: dict[str, Any], name: str, decode: Callable[[dict[str, Any]], T]
) -> T | None:
    if name not in sections:
        return None
    body = _field(sections[name], "body", dict)
    if _field(sections[name], "sha256", str) != _digest(body):
        raise CodecError(f"section {name} does not have its digest")
    return decode(body)


def _weights(body: dict[str, Any]) -> Snapshot:
    return Snapshot(
        schema_version=_field(body, "schemaVersion", int),
        metadata=tuple(map(codec.metadata_from, _field(body, "metadata", list))),
        leases=tuple(map(codec.lease_from, _field(body, "leases", list))),
        operations=tuple(map(codec.operation_from, _field(body, "operations", list))),
        next_lease_id=_field(body, "nextLeaseId", int),
        next_operation_id=_field(body, "nextOperationId", int),
    )


def _objects(body: dict[str, Any]) -> tuple[StoredObject, ...]:
    objects = tuple(map(_object_from, _field(body, "rows", list)))
    if len({(tenant, row.key) for tenant, _, row in objects}) != len(objects):
        raise CodecError("a tenant has two objects of one key")
    return objects


def _object_values(tenant_id: str, group_id: str, row: ObjectRow) -> list[Any]:
    key = row.key.decode("utf-8", "surrogateescape")
    digest = row.sha256.hex()
    return [tenant_id, group_id, key, row.data_type, row.size_bytes, digest, row.hard_pin]


def _object_from(values: object) -> StoredObject:
    if not isinstance(values, list) or [type(value) for value in values] != _OBJECT_TYPES:
        raise CodecError("an object is not [tenant, group id, key, type, size, sha256, pin]")
    tenant_id, group_id, key, data_type, size_bytes, digest, hard_pin = values
    if not is_valid_sha256(digest):
        raise CodecError(f"object {key!r:.80}: its digest is not 64 hexadecimal characters")
    row = ObjectRow(text_bytes(key), data_type, size_bytes, bytes.fromhex(digest), hard_pin)
    problem = object_problem(tenant_id, group_id, row)
    if problem is not None:
        raise CodecError(f"object {key!r:.80}: {problem}")
    return tenant_id, group_id, row


_OBJECT_TYPES = [str, str, str, int, int, str, int]


def _field(section: object, name: str, kind: type[T]) -> T:
    value = section.get(name) if isinstance(section, dict) else None
    if type(value) is not kind:
        raise CodecError(f"field {name} is missing or no {kind.__name__}")
    return value


def _digest(body: dict[str, Any]) -> str:
    text = json.dumps(body, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a field is named twice")
    return fields


def _refused(why: str) -> WeightError:
    return invalid("the snapshot file cannot be used", why, _RETRY)
