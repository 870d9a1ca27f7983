"""Export and restore of the whole state, to memory and to files.  Layer: store.

Both keep every mutation out while they look or replace, so the weight state, the object directory
and the boundary of the log belong to one moment. A restore is validated wholly before anything is
written, passes the capability gate, and is one transaction.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from anyio import to_thread

from weightctl.controller.core.oplog import LeaseUpsert, MetadataUpsert
from weightctl.controller.core.snapshot import export_snapshot, restore_snapshot
from weightctl.controller.store.archive import Archive, read_archive, write_archive
from weightctl.controller.store.commit import Replacement, RowChange, replace_all
from weightctl.controller.store.database import column_time
from weightctl.controller.store.entries import entry_of, slot_of
from weightctl.controller.store.rows import OBJECTS, GroupRow, all_objects, group_values

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from weightctl.controller.core.records import Snapshot
    from weightctl.controller.core.state import WeightState
    from weightctl.controller.store.archive import StoredObject
    from weightctl.controller.store.commit import EntryDraft
    from weightctl.controller.store.connection import StoreConnection
    from weightctl.controller.store.engine import Engine


class Snapshots:
    """Snapshots of one open store."""

    def __init__(self, engine: Engine, reader: StoreConnection, holder: str) -> None:
        self._engine = engine
        self._reader = reader
        self._holder = holder

    async def export(self) -> Snapshot:
        """The weight state of one moment."""
        async with self._standstill():
            return await to_thread.run_sync(export_snapshot, self._engine.state)

    async def restore(self, snapshot: Snapshot) -> None:
        """Replace the weight state, all or nothing; the object directory stays as it is."""
        await self._replace(snapshot, None)

    async def save(self, path: Path) -> Archive:
        """Write state and directory of one moment to a file, durable when it returns."""
        async with self._standstill():
            archive = Archive(
                weights=await to_thread.run_sync(export_snapshot, self._engine.state),
                objects=tuple(await self._reader.run(all_objects)),
                holder=self._holder,
                sequence=self._engine.journal.last_sequence,
                created_ms=self._engine.clock.wall_ms(),
            )
        await to_thread.run_sync(write_archive, path, archive)
        return archive

    async def load(self, path: Path) -> Archive:
        """Replace state and directory by those of a file, all or nothing."""
        archive = await to_thread.run_sync(read_archive, path)
        await self._replace(archive.weights, archive.objects)
        return archive

    async def _replace(self, snapshot: Snapshot, objects: tuple[StoredObject, ...] | None) -> None:
        engine = self._engine
        await engine.close_all()
        try:
            state = await to_thread.run_sync(restore_snapshot, snapshot)
            content = await to_thread.run_sync(
                partial(_replacement, state, objects, time_ms=column_time(engine.clock))
            )
            future = engine.replace(state, partial(replace_all, content))
        except BaseException:
            engine.reopen_all()
            raise
        await future  # which reopens, whatever becomes of this caller
        for identity in tuple(state.metadata):
            engine.announce(identity)

    @asynccontextmanager
    async def _standstill(self) -> AsyncIterator[None]:
        """Nothing changes meanwhile."""
        await self._engine.close_all()
        try:
            yield
        finally:
            self._engine.reopen_all()


def _replacement(
    state: WeightState, objects: tuple[StoredObject, ...] | None, *, time_ms: int
) -> Replacement:
    return Replacement(
        time_ms=time_ms,
        entries=tuple(_entries(state)),
        counters=(state.next_lease_id, state.next_operation_id),
        changes=() if objects is None else tuple(_object_changes(objects)),
    )


def _entries(state: WeightState) -> Iterator[tuple[str, EntryDraft]]:
    """The snapshot rows of a state, as folding the whole log would leave them."""
    for record in state.metadata.values():
        operation = state.current_operation(record)
        entry = entry_of(MetadataUpsert(metadata=record, operation=operation))
        yield entry.key, entry
    for operation in state.operations.values():
        record = state.metadata[operation.identity]
        entry = entry_of(MetadataUpsert(metadata=record, operation=operation))
        yield slot_of(operation), entry
    for lease in state.leases.values():
        entry = entry_of(LeaseUpsert(lease=lease))
        yield entry.key, entry


def _object_changes(objects: tuple[StoredObject, ...]) -> Iterator[RowChange]:
    yield RowChange(OBJECTS["clear_objects"], ())
    yield RowChange(OBJECTS["clear_groups"], ())
    groups: dict[tuple[str, str], GroupRow] = {}
    rows = []
    for tenant_id, group_id, row in objects:
        name = (tenant_id, group_id)
        group = groups.get(name) or GroupRow(number=len(groups) + 1)
        groups[name] = group.changed(added=(row,))
        rows.append((group.number, *row))
    values = [
        group_values(tenant_id, group_id, group) for (tenant_id, group_id), group in groups.items()
    ]
    yield RowChange(OBJECTS["write_group"], values, many=True)
    yield RowChange(OBJECTS["insert_object"], rows, many=True)
