"""From the rows on disk to the in-memory state.  Layer: store; blocking, in a connection's thread.

The snapshot's rows are checked one by one and as a whole, and restored through the core's shared
validation; then the log is replayed by the core's acceptance rules. Whatever does not fit stops the
load at that sequence and says so. What was read before it is still good.
"""

from __future__ import annotations

import sqlite3
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from weightctl.controller.core.identity import text_bytes
from weightctl.controller.core.oplog import LeaseUpsert, MetadataUpsert
from weightctl.controller.core.records import Snapshot
from weightctl.controller.core.replay import Entry, Replay
from weightctl.controller.core.snapshot import restore_snapshot
from weightctl.controller.core.state import WeightState
from weightctl.controller.errors import StateDirectoryError, WeightError
from weightctl.controller.store.codec import (
    KEY_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    CodecError,
    decode,
)
from weightctl.controller.store.commit import SQL, EntryDraft, entry_checksum
from weightctl.controller.store.database import BAD_FILE, Header, read_header
from weightctl.controller.store.entries import operation_of, slot_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from weightctl.controller.core.oplog import Payload
    from weightctl.controller.store.damage import Damage

_CHUNK_ROWS = 1024
_ROW_TYPES = [int, int, int, bytes, str, bytes, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEntry:
    """One row of the log or the snapshot, checked and decoded."""

    sequence: int
    time_ms: int
    entry_type: int
    tenant_id: str
    key: str
    payload: Payload


@dataclass(slots=True, kw_only=True)
class Loaded:
    """The state up to `last_sequence`; `damage` is why the rest could not be read, if so."""

    header: Header
    state: WeightState
    last_sequence: int
    damage: StateDirectoryError | None = None
    last_group_number: int = 0
    tier_epochs: dict[str, str] = field(default_factory=dict)
    damaged_replicas: Damage = field(default_factory=dict)


class DamageError(Exception):
    """A row that is not what was written; internal to this package."""

    def __init__(self, sequence: int, why: str) -> None:
        super().__init__(sequence, why)
        self.sequence = sequence
        self.why = why


def load_state(connection: sqlite3.Connection, path: Path) -> Loaded:
    """Snapshot and log as one state.

    Raises StateDirectoryError when not even the snapshot can be read.
    """
    connection.execute("BEGIN")  # one consistent view, also beside a writer
    try:
        try:
            header = read_header(connection, path)
        except BAD_FILE as error:
            raise damaged(path, 0, f"header: {_why(error)}") from error
        try:
            state = _restore_snapshot(connection, header)
        except (*BAD_FILE, DamageError, WeightError) as error:
            raise damaged(path, header.folded_sequence, f"snapshot: {_why(error)}") from error
        loaded = Loaded(header=header, state=state, last_sequence=header.folded_sequence)
        _replay_log(connection, loaded, path)
    finally:
        connection.execute("ROLLBACK")
    return loaded


def _restore_snapshot(connection: sqlite3.Connection, header: Header) -> WeightState:
    metadata, leases, operations = [], [], []
    rows = checksum_sum = 0
    for slot, *row in connection.execute(SQL["read_snapshot"]):
        entry = read_row(row)
        rows, checksum_sum = rows + 1, checksum_sum + row[-1]
        match entry.payload:
            case MetadataUpsert(metadata=record) if slot == entry.key:
                metadata.append(record)
            case MetadataUpsert(operation=operation) if operation and slot == slot_of(operation):
                operations.append(operation)
            case LeaseUpsert(lease=lease) if slot == entry.key:
                leases.append(lease)
            case _:
                raise DamageError(entry.sequence, f"it does not belong into slot {slot}")
    if (rows, checksum_sum) != (header.snapshot_rows, header.snapshot_sum):
        raise DamageError(
            header.folded_sequence, f"{rows} rows were read, {header.snapshot_rows} were written"
        )
    return restore_snapshot(
        Snapshot(
            metadata=tuple(metadata),
            leases=tuple(leases),
            operations=tuple(operations),
            next_lease_id=header.next_lease_id,
            next_operation_id=header.next_operation_id,
        )
    )


def _replay_log(connection: sqlite3.Connection, loaded: Loaded, path: Path) -> None:
    replay = Replay(loaded.state, expected_sequence=loaded.last_sequence + 1)
    try:
        for entry in read_log(connection, loaded.last_sequence + 1):
            replay.apply(
                Entry(
                    sequence=entry.sequence,
                    tenant_id=entry.tenant_id,
                    key=entry.key,
                    payload=entry.payload,
                )
            )
            loaded.last_sequence = entry.sequence
    except (*BAD_FILE, DamageError, WeightError) as error:
        loaded.damage = damaged(path, loaded.last_sequence + 1, _why(error))


def read_log(connection: sqlite3.Connection, from_sequence: int) -> Iterator[StoredEntry]:
    """Entries from that sequence on, without a gap.  Raises DamageError or one of BAD_FILE."""
    expected = from_sequence
    while True:
        parameters = (expected, _CHUNK_ROWS)
        rows = connection.execute(SQL["read_entries"], parameters).fetchall()
        for row in rows:
            if row[0] != expected:
                raise DamageError(expected, f"the entry is missing; the next one is {row[0]}")
            yield read_log_row(row)
            expected += 1
        if len(rows) < _CHUNK_ROWS:
            return


def read_log_row(row: Sequence[Any]) -> StoredEntry:
    """As `read_row` for a row of the log, which also names its operation for folding."""
    *columns, operation_id = row
    entry = read_row(columns)
    if operation_of(entry.payload) != operation_id:
        raise DamageError(entry.sequence, "its operation column is not its operation's id")
    return entry


def read_row(row: Sequence[Any]) -> StoredEntry:
    """Check and decode one row.  Raises DamageError."""
    sequence, time_ms, entry_type, tenant, key, payload, checksum = row
    if [type(value) for value in row] != _ROW_TYPES:
        raise DamageError(sequence, "its columns have other types than were written")
    if len(text_bytes(key)) > KEY_BYTES_MAX or len(payload) > PAYLOAD_BYTES_MAX:
        raise DamageError(sequence, "key or payload is longer than any that was written")
    draft = EntryDraft(entry_type, tenant, key, payload)
    try:
        right = entry_checksum(sequence, time_ms, draft)
    except struct.error as error:
        raise DamageError(sequence, f"its numbers are none that were written: {error}") from error
    if right != checksum:
        raise DamageError(sequence, "it does not have its checksum")
    try:
        decoded = decode(entry_type, payload)
    except CodecError as error:
        raise DamageError(sequence, str(error)) from error
    return StoredEntry(
        sequence=sequence,
        time_ms=time_ms,
        entry_type=entry_type,
        tenant_id=tenant.decode("utf-8", "surrogateescape"),
        key=key,
        payload=decoded,
    )


def damaged(path: Path, sequence: int, why: str) -> StateDirectoryError:
    """The error of a journal that cannot be read beyond an entry."""
    return StateDirectoryError(
        f"the journal {path} is damaged at sequence {sequence}",
        f"DamagedJournal: {why}",
        "nothing was changed, and reading commands show what is left; keep a copy of the directory,"
        " then restore a snapshot into a fresh one",
    )


def _why(error: Exception) -> str:
    if isinstance(error, DamageError):
        return f"entry {error.sequence}: {error.why}"
    return str(error).replace("\n", "; ")
