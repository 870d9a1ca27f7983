"""Members of many small groups in few statements.  Layer: store; blocking calls.

For the drift round, which visits every group: one statement for each group and one thread hop for
each would cost more than looking at the tiers.  The same checksums hold as for a single group.
"""

from __future__ import annotations

import sqlite3
import struct
from array import array
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from weightctl.controller.core.identity import text_bytes
from weightctl.controller.core.observation import Members
from weightctl.controller.store.rows import OBJECTS, ObjectRow, damaged_group, digest_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_GROUPS_PER_STATEMENT = 128


def read_members_of(
    connection: sqlite3.Connection, groups: Sequence[tuple[str, str]]
) -> list[Members]:
    """Members of each (tenant, group id), in the order asked; empty for an unknown group.

    Raises StateDirectoryError for a damaged group.
    """
    found = {
        key: members
        for start in range(0, len(groups), _GROUPS_PER_STATEMENT)
        for key, members in _read_some(connection, groups[start : start + _GROUPS_PER_STATEMENT])
    }
    return [
        found.get((text_bytes(tenant), text_bytes(group_id))) or _members(group_id, [])
        for tenant, group_id in groups
    ]


def _read_some(
    connection: sqlite3.Connection, groups: Sequence[tuple[str, str]]
) -> Iterator[tuple[tuple[bytes, bytes], Members]]:
    marks = ", ".join("?" * len(groups))
    statement = OBJECTS["read_group_members"].replace(":groups", marks)
    ids = [text_bytes(group_id) for _, group_id in groups]
    group_id = "of a batch"
    try:
        rows = connection.execute(statement, ids)
        for (_, tenant, raw_id, objects, digest), some in groupby(rows, itemgetter(0, 1, 2, 3, 4)):
            group_id = raw_id.decode("utf-8", "surrogateescape")
            found = [ObjectRow(*row[5:]) for row in some if row[5] is not None]
            if len(found) != objects or digest_of(found) != digest:
                raise damaged_group(group_id)
            yield (tenant, raw_id), _members(group_id, found)
    except (sqlite3.Error, ValueError, TypeError, OverflowError, struct.error) as error:
        raise damaged_group(group_id) from error


def _members(group_id: str, rows: Sequence[ObjectRow]) -> Members:
    return Members(
        group_id=group_id,
        keys=[row.key.decode("utf-8", "surrogateescape") for row in rows],
        sizes_bytes=array("Q", [row.size_bytes for row in rows]),
        sha256=b"".join([row.sha256 for row in rows]),
        data_types=bytes([row.data_type for row in rows]),
        hard_pin=bytes([row.hard_pin for row in rows]),
    )
