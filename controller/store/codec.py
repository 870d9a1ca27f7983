"""The op-log's payloads as bytes, version 1.  Layer: store, no I/O.

A payload is one JSON array in ASCII without spaces; its first element is the codec's version and
the rest is positional, in the order of the record's fields:

    identity   [tenant_id, namespace, resource_id, revision, weight_generation]
    reference  [manifest_key, manifest_sha256, payload_group_id, payload_keys_sha256,
                payload_count, logical_bytes]
    metadata   [identity, reference, availability, residency, operation, operation_id,
                metadata_generation, created_at_ms, updated_at_ms]
    operation  [operation_id, identity, operation, target_residency, fenced_metadata_generation,
                started_at_ms, updated_at_ms, processed_members, total_members, cursor, message]
    lease      [lease_id, identity, holder, expires_at_ms, fenced_metadata_generation]

    type  8    [1, metadata, operation or null]
    type  9    [1, identity, metadata_generation]
    type 10    [1, lease]
    type 11    [1, lease_id, identity, fenced_metadata_generation]

Text carries arbitrary bytes by surrogateescape; JSON escapes keep them.  Numbers are u64.  Decoding
is strict about shape and kinds; whether the values make a valid record is the core's business.
"""

from __future__ import annotations

import json
from sys import intern
from typing import Any, TypeVar

from weightctl.controller.core.identity import U64_MAX, Identity
from weightctl.controller.core.oplog import (
    EntryType,
    LeaseDelete,
    LeaseUpsert,
    MetadataDelete,
    MetadataUpsert,
    Payload,
)
from weightctl.controller.core.records import (
    Availability,
    ManifestReference,
    Operation,
    Residency,
    ResidencyOperation,
    RevisionLease,
    RevisionMetadata,
)

CODEC_VERSION = 1
KEY_BYTES_MAX = 4096
PAYLOAD_BYTES_MAX = 10 * 1024 * 1024
_to_text = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
_T = TypeVar("_T")


class CodecError(ValueError):
    """Bytes that are no payload of this codec; the text says what is wrong."""


# --- payloads -------------------------------------------------------------------------------------


def encode(payload: Payload) -> bytes:
    """The bytes of an entry's payload."""
    row: list[Any]
    match payload:
        case MetadataUpsert(metadata=metadata, operation=operation):
            tail = None if operation is None else operation_row(operation)
            row = [CODEC_VERSION, metadata_row(metadata), tail]
        case MetadataDelete(identity=identity, metadata_generation=generation):
            row = [CODEC_VERSION, identity_row(identity), generation]
        case LeaseUpsert(lease=lease):
            row = [CODEC_VERSION, lease_row(lease)]
        case LeaseDelete(lease_id=lease_id, identity=identity, fenced_metadata_generation=fence):
            row = [CODEC_VERSION, lease_id, identity_row(identity), fence]
    return _to_text(row).encode("ascii")


def decode(entry_type: int, raw: bytes) -> Payload:
    """Inverse of `encode`.  Raises CodecError for anything that `encode` does not write."""
    try:
        row = json.loads(raw.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise CodecError(f"it is not JSON in ASCII: {error}") from error
    if type(row) is not list or not row or type(row[0]) is not int or row[0] != CODEC_VERSION:
        raise CodecError(f"it is not a payload of codec version {CODEC_VERSION}")
    match entry_type:
        case EntryType.METADATA_UPSERT:
            _, metadata, operation = _array(row, 3, "payload")
            return MetadataUpsert(
                metadata=metadata_from(metadata),
                operation=None if operation is None else operation_from(operation),
            )
        case EntryType.METADATA_DELETE:
            _, identity, generation = _array(row, 3, "payload")
            return MetadataDelete(
                identity=identity_from(identity), metadata_generation=_number(generation)
            )
        case EntryType.LEASE_UPSERT:
            return LeaseUpsert(lease=lease_from(_array(row, 2, "payload")[1]))
        case EntryType.LEASE_DELETE:
            _, lease_id, identity, fence = _array(row, 4, "payload")
            return LeaseDelete(
                lease_id=_number(lease_id),
                identity=identity_from(identity),
                fenced_metadata_generation=_number(fence),
            )
        case _:
            raise CodecError(f"entry type {entry_type} is not known")


# --- records as rows ------------------------------------------------------------------------------


def identity_row(identity: Identity) -> list[Any]:
    """The five fields, in the contract's order."""
    return [
        identity.tenant_id,
        identity.namespace,
        identity.resource_id,
        identity.revision,
        identity.weight_generation,
    ]


def metadata_row(record: RevisionMetadata) -> list[Any]:
    """One metadata record; enums as their numbers."""
    manifest = record.manifest
    return [
        identity_row(record.identity),
        [
            manifest.manifest_key,
            manifest.manifest_sha256,
            manifest.payload_group_id,
            manifest.payload_keys_sha256,
            manifest.payload_count,
            manifest.logical_bytes,
        ],
        int(record.availability),
        int(record.residency),
        int(record.operation),
        record.operation_id,
        record.metadata_generation,
        record.created_at_ms,
        record.updated_at_ms,
    ]


def operation_row(operation: ResidencyOperation) -> list[Any]:
    """One operation record."""
    return [
        operation.operation_id,
        identity_row(operation.identity),
        int(operation.operation),
        int(operation.target_residency),
        operation.fenced_metadata_generation,
        operation.started_at_ms,
        operation.updated_at_ms,
        operation.processed_members,
        operation.total_members,
        operation.cursor,
        operation.message,
    ]


def lease_row(lease: RevisionLease) -> list[Any]:
    """One lease."""
    return [
        lease.lease_id,
        identity_row(lease.identity),
        lease.holder,
        lease.expires_at_ms,
        lease.fenced_metadata_generation,
    ]


# --- rows as records ------------------------------------------------------------------------------


def identity_from(row: object) -> Identity:
    """Inverse of `identity_row`.  Raises CodecError."""
    tenant, namespace, resource, revision, generation = _array(row, 5, "identity")
    return Identity(
        tenant_id=intern(_text(tenant)),  # shared by many revisions, so kept once
        namespace=intern(_text(namespace)),
        resource_id=intern(_text(resource)),
        revision=_text(revision),
        weight_generation=_number(generation),
    )


def metadata_from(row: object) -> RevisionMetadata:
    """Inverse of `metadata_row`.  Raises CodecError."""
    fields = _array(row, 9, "metadata")
    manifest = _array(fields[1], 6, "reference")
    return RevisionMetadata(
        identity=identity_from(fields[0]),
        manifest=ManifestReference(
            manifest_key=_text(manifest[0]),
            manifest_sha256=_text(manifest[1]),
            payload_group_id=_text(manifest[2]),
            payload_keys_sha256=_text(manifest[3]),
            payload_count=_number(manifest[4]),
            logical_bytes=_number(manifest[5]),
        ),
        availability=_enum(_AVAILABILITY, fields[2], "availability"),
        residency=_enum(_RESIDENCY, fields[3], "residency"),
        operation=_enum(_OPERATION, fields[4], "operation"),
        operation_id=_number(fields[5]),
        metadata_generation=_number(fields[6]),
        created_at_ms=_number(fields[7]),
        updated_at_ms=_number(fields[8]),
    )


def operation_from(row: object) -> ResidencyOperation:
    """Inverse of `operation_row`.  Raises CodecError."""
    fields = _array(row, 11, "operation")
    return ResidencyOperation(
        operation_id=_number(fields[0]),
        identity=identity_from(fields[1]),
        operation=_enum(_OPERATION, fields[2], "operation"),
        target_residency=_enum(_RESIDENCY, fields[3], "target_residency"),
        fenced_metadata_generation=_number(fields[4]),
        started_at_ms=_number(fields[5]),
        updated_at_ms=_number(fields[6]),
        processed_members=_number(fields[7]),
        total_members=_number(fields[8]),
        cursor=_text(fields[9]),
        message=_text(fields[10]),
    )


def lease_from(row: object) -> RevisionLease:
    """Inverse of `lease_row`.  Raises CodecError."""
    fields = _array(row, 5, "lease")
    return RevisionLease(
        lease_id=_number(fields[0]),
        identity=identity_from(fields[1]),
        holder=_text(fields[2]),
        expires_at_ms=_number(fields[3]),
        fenced_metadata_generation=_number(fields[4]),
    )


_AVAILABILITY = {int(value): value for value in Availability}
_RESIDENCY = {int(value): value for value in Residency}
_OPERATION = {int(value): value for value in Operation}


def _array(value: object, count: int, what: str) -> list[Any]:
    if type(value) is not list or len(value) != count:
        raise CodecError(f"{what} is not an array of {count} elements")
    return value


def _text(value: object) -> str:
    if type(value) is not str:
        raise CodecError(f"{value!r:.80} is not a text")
    return value


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value <= U64_MAX:
        raise CodecError(f"{value!r:.80} is not an unsigned 64-bit number")
    return value


def _enum(known: dict[int, _T], value: object, what: str) -> _T:
    if type(value) is not int or value not in known:
        raise CodecError(f"{value!r:.80} is no {what} that this version knows")
    return known[value]
