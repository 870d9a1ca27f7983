"""Rows of the object tables: values, checksums, and whole groups read back.  Layer: store.

Everything here runs in a connection's thread. A group keeps the number of its objects and the sum
of their checksums; a group that does not match is damaged and is never shown as if it were whole.
"""

from __future__ import annotations

import sqlite3
import struct
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import xxhash

from weightctl.controller.core.identity import (
    OBJECT_KEY_BYTES_MAX,
    is_u64,
    is_valid_component,
    is_valid_object_key,
    is_valid_tenant,
    text_bytes,
)
from weightctl.controller.core.observation import SHA256_BYTES, Members
from weightctl.controller.core.records import DataType
from weightctl.controller.errors import StateDirectoryError
from weightctl.controller.store.database import BAD_FILE, INTEGER_MAX
from weightctl.controller.store.statements import load

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

OBJECTS = load("objects")
SIZE_BYTES_MAX = INTEGER_MAX
"""No object comes near."""
_SUM_MASK = INTEGER_MAX
_CHUNK_ROWS = 4096
_NO_GROUP = 0
"""Numbers begin at 1."""
_DATA_TYPES = frozenset(map(int, DataType))
_FIXED = struct.Struct(">BQ?")


class ObjectRow(NamedTuple):
    """One object without its group."""

    key: bytes
    data_type: int
    size_bytes: int
    sha256: bytes
    hard_pin: int

    def checksum(self) -> int:
        """XXH64 over key, NUL, type, size, pin and digest; keys hold no NUL."""
        return _checksum(*self)


def _checksum(key: bytes, data_type: int, size_bytes: int, sha256: bytes, hard_pin: int) -> int:
    fixed = _FIXED.pack(data_type, size_bytes, bool(hard_pin))
    return xxhash.xxh64_intdigest(b"%b\0%b%b" % (key, fixed, sha256))


def group_values(tenant_id: str, group_id: str, group: GroupRow) -> tuple[object, ...]:
    """Values of a group's row, with the checksum that protects its name too."""
    values = (
        group.number,
        text_bytes(tenant_id),
        text_bytes(group_id),
        group.objects,
        group.digest,
    )
    return (*values, _group_checksum(*values))


def _group_checksum(*values: object) -> int:
    return xxhash.xxh32_intdigest(repr(values).encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """A group's number, how many objects it has and the sum of their checksums."""

    number: int
    objects: int = 0
    digest: int = 0

    def changed(self, added: Iterable[ObjectRow], removed: Iterable[ObjectRow] = ()) -> GroupRow:
        """The group after rows were added and removed."""
        objects, digest = self.objects, self.digest
        for row in added:
            objects, digest = objects + 1, digest + row.checksum()
        for row in removed:
            objects, digest = objects - 1, digest - row.checksum()
        return GroupRow(number=self.number, objects=objects, digest=digest & _SUM_MASK)


def check_directory(connection: sqlite3.Connection, path: Path) -> int:
    """Refuse a directory that has lost or changed a group; gives the highest group number.

    A group that cannot be found would look like one without members, and its delete would finish.
    Raises StateDirectoryError.
    """
    groups = checksums = last = 0
    whole = True
    for *values, checksum in connection.execute(OBJECTS["read_groups"]):
        groups, checksums, last = groups + 1, checksums + checksum, max(last, values[0])
        whole = whole and _group_checksum(*values) == checksum
    recorded = connection.execute(OBJECTS["read_directory"]).fetchone()
    found = [text for (text,) in connection.execute(OBJECTS["check_groups"])]
    if not whole or recorded != (groups, checksums) or found != ["ok"]:
        raise StateDirectoryError(
            f"the object directory in {path} is damaged",
            "DamagedDirectory: its groups are not those that were written",
            "keep a copy of the directory, then restore a snapshot into a fresh one",
        )
    return last


def find_group(connection: sqlite3.Connection, tenant_id: str, group_id: str) -> GroupRow | None:
    """The group's row, or None when nothing is registered in it."""
    row = connection.execute(
        OBJECTS["find_group"], (text_bytes(group_id), text_bytes(tenant_id))
    ).fetchone()
    return None if row is None else GroupRow(number=row[0], objects=row[1], digest=row[2])


def read_members(connection: sqlite3.Connection, tenant_id: str, group_id: str) -> Members:
    """Every member in key order; empty for an unknown group.  Raises StateDirectoryError."""
    try:
        group = find_group(connection, tenant_id, group_id)
        if group is None:
            group = GroupRow(number=_NO_GROUP)
        members, digest = _read_group(connection, group, group_id)
    except BAD_FILE as error:
        raise damaged_group(group_id) from error
    if (len(members), digest) != (group.objects, group.digest):
        raise damaged_group(group_id)
    return members


def _read_group(
    connection: sqlite3.Connection, group: GroupRow, group_id: str
) -> tuple[Members, int]:
    """The members of a group and the sum of their checksums."""
    keys: list[str] = []
    sizes = array("Q")
    digests, types, pins = bytearray(), bytearray(), bytearray()
    checksums = 0
    cursor = connection.execute(OBJECTS["read_group"], (group.number,))
    while rows := cursor.fetchmany(_CHUNK_ROWS):
        raw_keys, raw_types, raw_sizes, raw_digests, raw_pins = zip(*rows, strict=True)
        keys.extend(key.decode("utf-8", "surrogateescape") for key in raw_keys)
        types += bytes(raw_types)
        sizes.extend(raw_sizes)
        digests += b"".join(raw_digests)
        pins += bytes(raw_pins)
        checksums += sum(ObjectRow(*row).checksum() for row in rows)
    members = Members(
        group_id=group_id,
        keys=keys,
        sizes_bytes=sizes,
        sha256=bytes(digests),
        data_types=bytes(types),
        hard_pin=bytes(pins),
    )
    return members, checksums & _SUM_MASK


def digest_of(rows: Iterable[tuple[bytes, int, int, bytes, int]]) -> int:
    """The sum of the checksums of objects, given as the fields of `ObjectRow`."""
    return sum([_checksum(*row) for row in rows]) & _SUM_MASK


def all_groups(connection: sqlite3.Connection) -> list[tuple[int, str, str]]:
    """Number, tenant and group id of every group, ordered by the latter two."""
    return [
        (number, _text(tenant), _text(group_id))
        for number, tenant, group_id in connection.execute(OBJECTS["all_groups"])
    ]


def objects_of(
    connection: sqlite3.Connection, groups: Iterable[tuple[int, str, str]]
) -> list[tuple[str, str, ObjectRow]]:
    """Tenant, group id and row of every object of some groups, in their order, then by key."""
    return [
        (tenant_id, group_id, ObjectRow(*row))
        for number, tenant_id, group_id in groups
        for row in connection.execute(OBJECTS["read_group"], (number,))
    ]


def all_objects(connection: sqlite3.Connection) -> list[tuple[str, str, ObjectRow]]:
    """Every object."""
    return objects_of(connection, all_groups(connection))


def object_problem(tenant_id: str, group_id: str, row: ObjectRow) -> str | None:
    """The first broken rule of an object's names and values, or None."""
    if not is_valid_tenant(tenant_id):
        return "its tenant_id is not valid"
    if group_id and not is_valid_component(group_id):
        return "its group id must be 1 to 1024 bytes without control bytes"
    if not is_valid_object_key(_text(row.key)):
        return f"its key must be 1 to {OBJECT_KEY_BYTES_MAX} bytes without control bytes"
    if not is_u64(row.size_bytes) or row.size_bytes > SIZE_BYTES_MAX:
        return "its size must be an integer from 0 to 2^63-1"
    if type(row.sha256) is not bytes or len(row.sha256) != SHA256_BYTES:
        return f"its digest must be {SHA256_BYTES} bytes"
    if row.data_type not in _DATA_TYPES or row.hard_pin not in {0, 1}:
        return "its data type or pin is not known"
    return None


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def damaged_group(group_id: str) -> StateDirectoryError:
    """The error for a group whose rows are not those that were written."""
    return StateDirectoryError(
        f"the members of group {group_id} cannot be read",
        "DamagedDirectory: their rows do not have the recorded count and checksum",
        "nothing is moved for this group; restore a snapshot into a fresh state directory",
    )


def find_objects(
    connection: sqlite3.Connection, tenant_id: str, keys: Iterable[bytes]
) -> dict[bytes, tuple[str, ObjectRow]]:
    """Group id and row of those objects of a tenant that exist, by key."""
    tenant = text_bytes(tenant_id)
    found: dict[bytes, tuple[str, ObjectRow]] = {}
    for key in keys:
        row = connection.execute(OBJECTS["find_object"], (key, tenant)).fetchone()
        if row is not None:
            found[key] = (row[0].decode("utf-8", "surrogateescape"), ObjectRow(key, *row[1:]))
    return found
