"""Rows of the object tables: values, checksums, and whole groups read back.  Layer: store.

Everything here runs in a connection's thread. A group keeps the number of its objects and the sum
of their checksums; a group that does not match is damaged and is never shown as if it were whole.
"""

from __future__ import annotations

import struct
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import xxhash

from weightctl.controller.core.identity import text_bytes
from weightctl.controller.core.observation import Members
from weightctl.controller.errors import StateDirectoryError
from weightctl.controller.store.statements import load

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

OBJECTS = load("objects")
SIZE_BYTES_MAX = 2**63 - 1
"""SQLite's integers are signed; no object comes near."""
_SUM_MASK = 2**63 - 1
_CHUNK_ROWS = 4096
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
        fixed = _FIXED.pack(self.data_type, self.size_bytes, bool(self.hard_pin))
        return xxhash.xxh64_intdigest(b"%b\0%b%b" % (self.key, fixed, self.sha256))


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


def last_group_number(connection: sqlite3.Connection) -> int:
    """The highest number of a group, 0 for none."""
    (number,) = connection.execute(OBJECTS["last_group_number"]).fetchone()
    return int(number)


def find_group(connection: sqlite3.Connection, tenant_id: str, group_id: str) -> GroupRow | None:
    """The group's row, or None when nothing is registered in it."""
    row = connection.execute(
        OBJECTS["find_group"], (text_bytes(group_id), text_bytes(tenant_id))
    ).fetchone()
    return None if row is None else GroupRow(number=row[0], objects=row[1], digest=row[2])


def read_members(connection: sqlite3.Connection, tenant_id: str, group_id: str) -> Members:
    """Every member in key order; empty for an unknown group.  Raises StateDirectoryError."""
    group = find_group(connection, tenant_id, group_id)
    keys: list[str] = []
    sizes = array("Q")
    digests, types, pins = bytearray(), bytearray(), bytearray()
    seen = 0
    cursor = connection.execute(OBJECTS["read_group"], (-1 if group is None else group.number,))
    while rows := cursor.fetchmany(_CHUNK_ROWS):
        raw_keys, raw_types, raw_sizes, raw_digests, raw_pins = zip(*rows, strict=True)
        keys.extend(key.decode("utf-8", "surrogateescape") for key in raw_keys)
        types += bytes(raw_types)
        sizes.extend(raw_sizes)
        digests += b"".join(raw_digests)
        pins += bytes(raw_pins)
        seen += sum(ObjectRow(*row).checksum() for row in rows)
    if group is not None and (len(keys), seen & _SUM_MASK) != (group.objects, group.digest):
        raise damaged_group(group_id)
    return Members(
        group_id=group_id,
        keys=keys,
        sizes_bytes=sizes,
        sha256=bytes(digests),
        data_types=bytes(types),
        hard_pin=bytes(pins),
    )


def all_objects(connection: sqlite3.Connection) -> list[tuple[str, str, ObjectRow]]:
    """Tenant, group id and row of every object, in that order."""
    return [
        (_text(tenant), _text(group_id), ObjectRow(*row))
        for tenant, group_id, *row in connection.execute(OBJECTS["all_objects"])
    ]


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
