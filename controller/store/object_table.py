"""Changes of the object tables as parts of a transaction.  Layer: store.

Owns the rule that a key of a tenant names one object: keys that are on their way to disk are
reserved, so two writers never pass the look-up together. Whoever changes a group holds that group's
lock, so its count and checksum are read and replaced without a race.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from weightctl.controller.core.identity import text_bytes
from weightctl.controller.core.refusals import conflict
from weightctl.controller.store.commit import RowChange
from weightctl.controller.store.rows import (
    OBJECTS,
    GroupRow,
    ObjectRow,
    find_group,
    find_objects,
    group_values,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from weightctl.controller.store.connection import StoreConnection

Found = dict[bytes, tuple[str, ObjectRow]]


class ObjectTable:
    """Look-ups and row changes; commits nothing itself."""

    def __init__(self, reader: StoreConnection, last_group_number: int) -> None:
        self._reader = reader
        self._last_group_number = last_group_number
        self._reserved: set[tuple[str, bytes]] = set()

    async def find(self, tenant_id: str, keys: Sequence[bytes]) -> Found:
        """Group id and row of the objects that exist."""
        return await self._reader.run(find_objects, tenant_id, keys)

    @contextmanager
    def reserve(self, tenant_id: str, keys: Sequence[bytes]) -> Iterator[Callable[[], None]]:
        """Keep other writers off these keys; gives what ends it, called on every failure.

        Raises CONFLICT while another writer has one of them.
        """
        wanted = {(tenant_id, key) for key in keys}
        taken = wanted & self._reserved
        if taken:
            _, key = taken.pop()
            raise conflict(
                f"object {key.decode('utf-8', 'surrogateescape')}",
                "another writer is registering it now",
                "wait for the other writer, then read it again",
            )
        self._reserved |= wanted

        def release() -> None:
            self._reserved -= wanted

        try:
            yield release
        except BaseException:
            release()
            raise

    async def added(
        self, tenant_id: str, group_id: str, rows: Sequence[ObjectRow]
    ) -> list[RowChange]:
        """Changes that insert new rows into a group; the caller holds the group's lock."""
        group = await self._reader.run(find_group, tenant_id, group_id)
        if group is None:
            self._last_group_number += 1
            group = GroupRow(number=self._last_group_number)
        return [
            _group_change(tenant_id, group_id, group.changed(added=rows)),
            RowChange(OBJECTS["insert_object"], [(group.number, *row) for row in rows], many=True),
        ]

    async def removed(
        self, tenant_id: str, group_id: str, rows: Sequence[ObjectRow]
    ) -> list[RowChange]:
        """Changes that delete rows from a group; the caller holds the group's lock."""
        group = await self._reader.run(find_group, tenant_id, group_id)
        if group is None:
            return []
        left = group.changed(added=(), removed=rows)
        if left.objects == 0:
            return removed_group(tenant_id, group_id)
        keys = [(group.number, row.key) for row in rows]
        return [
            _group_change(tenant_id, group_id, left),
            RowChange(OBJECTS["delete_object"], keys, many=True),
        ]


def removed_group(tenant_id: str, group_id: str) -> list[RowChange]:
    """Changes that delete a group with everything in it; harmless when it is not there."""
    where = (text_bytes(group_id), text_bytes(tenant_id))
    return [
        RowChange(OBJECTS["delete_group_objects"], where),
        RowChange(OBJECTS["delete_group"], where),
    ]


def _group_change(tenant_id: str, group_id: str, group: GroupRow) -> RowChange:
    return RowChange(OBJECTS["write_group"], group_values(tenant_id, group_id, group))
