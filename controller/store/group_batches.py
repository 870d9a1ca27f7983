"""Members of many small groups in few statements.  Layer: store; blocking calls.

For the drift round, which visits every group: one statement for each group and one thread hop for
each would cost more than looking at the tiers.  The same checksums hold as for a single group.
"""

from __future__ import annotations

import sqlite3
from array import array
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from weightctl.controller.core.identity import text_bytes
from weightctl.controller.core.observation import Members
from weightctl.controller.store.database import BAD_FILE
from weightctl.controller.store.rows import OBJECTS, damaged_group, digest_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_GROUPS_PER_STATEMENT = 128
_GROUP_NUMBER = itemgetter(0)


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
        for _, rows in groupby(connection.execute(statement, ids), _GROUP_NUMBER):
            some = list(rows)
            _, tenant, raw_id, objects, digest, key, *_ = some[0]
            group_id = raw_id.decode("utf-8", "surrogateescape")
            found = [] if key is None else [row[5:] for row in some]
            if len(found) != objects or digest_of(found) != digest:
                raise damaged_group(group_id)
            yield (tenant, raw_id), _members(group_id, found)
    except BAD_FILE as error:
        raise damaged_group(group_id) from error


def _members(group_id: str, rows: Sequence[tuple[bytes, int, int, bytes, int]]) -> Members:
    keys, types, sizes, digests, pins = zip(*rows, strict=True) if rows else ((),) * 5
    return Members(
        group_id=group_id,
        keys=[key.decode("utf-8", "surrogateescape") for key in keys],
        sizes_bytes=array("Q", sizes),
        sha256=b"".join(digests),
        data_types=bytes(types),
        hard_pin=bytes(pins),
    )
