"""Changes of the object tables as parts of a transaction.  Layer: store.

A key of a tenant names one object, managed or plain. Whoever changes a group's objects holds that
group's lock and a reservation of the keys, from the look-up until the change is settled: so what
was looked up, and the count and checksum that are replaced, are never stale.
"""

from __future__ import annotations

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
    from collections.abc import Sequence

    from weightctl.controller.store.connection import StoreConnection

Found = dict[bytes, tuple[str, ObjectRow]]
"""Group id and row by key."""


class Reservation:
    """Keys of a tenant that one writer changes; harmless to end twice or before it began."""

    def __init__(self, reserved: set[tuple[str, bytes]], names: set[tuple[str, bytes]]) -> None:
        self._reserved = reserved
        self._names = names
        self._held = False

    def begin(self) -> None:
        """Take the keys.  Raises CONFLICT while another writer has one of them."""
        for _, key in self._names & self._reserved:
            raise conflict(
                f"object {key.decode('utf-8', 'surrogateescape')}",
                "another writer is changing it now",
                "wait for the other writer, then look again",
            )
        self._reserved |= self._names
        self._held = True

    def end(self) -> None:
        """Give the keys back."""
        if self._held:
            self._held = False
            self._reserved -= self._names


class ObjectTable:
    """Look-ups and row changes; commits nothing itself."""

    def __init__(self, reader: StoreConnection, last_group_number: int) -> None:
        self._reader = reader
        self._last_group_number = last_group_number
        self._reserved: set[tuple[str, bytes]] = set()

    def reservation(self, tenant_id: str, rows: Sequence[ObjectRow]) -> Reservation:
        """A reservation of the rows' keys, not yet begun."""
        return Reservation(self._reserved, {(tenant_id, row.key) for row in rows})

    async def find(self, tenant_id: str, keys: Sequence[bytes]) -> Found:
        """The objects of a tenant that exist."""
        return await self._reader.run(find_objects, tenant_id, keys)

    async def added(
        self, tenant_id: str, group_id: str, rows: Sequence[ObjectRow]
    ) -> list[RowChange]:
        """Changes that insert new rows into a group."""
        if not rows:
            return []
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
        """Changes that delete existing rows from a group."""
        group = await self._reader.run(find_group, tenant_id, group_id)
        if group is None or not rows:
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
