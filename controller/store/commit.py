"""One journal transaction and its outcome.  Layer: store; runs in the connection's thread.

A transaction has three outcomes and no fourth: `Committed` (on the medium), `Rejected` (certainly
not in the log) and `Uncertain`. A failure before COMMIT is undone and certain. After a failed
COMMIT a fresh reader finds out whether the log is as it was. An I/O error there stays uncertain:
SQLite may have written the commit record and failed only to sync it, and then a recovery will find
it.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import xxhash

from weightctl.controller.errors import StateDirectoryError
from weightctl.controller.store.database import connect_reader, read_header, write_header
from weightctl.controller.store.statements import load

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from weightctl.controller.store.database import Header
    from weightctl.controller.store.watermark import Watermark


SQL = load("journal")
_HEAD = struct.Struct(">QqB")
FOLD_ENTRIES = 1024
"""Entries that one fold moves: a few milliseconds."""
_INSERTS = {
    rows: f"{SQL['insert_entries']} {', '.join(['(?, ?, ?, ?, ?, ?, ?, ?)'] * rows)}"
    for rows in (64, 8, 1)
}
"""By the number of rows, largest first."""
_OUT_OF_SPACE = "SQLITE_FULL"
_READ_ONLY = "SQLITE_READONLY"
_IO_ERROR = "SQLITE_IOERR"
_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")


class EntryDraft(NamedTuple):
    """An op-log entry without its place: sequence and time are given by the commit."""

    entry_type: int
    tenant: bytes
    key: str
    payload: bytes
    operation_id: str | None = None
    """Set where a type 8 entry carries an operation record."""


class RowChange(NamedTuple):
    """One more statement of the same transaction; `many` rows of parameters or a single one."""

    statement: str
    parameters: Sequence[Any]
    many: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """Where the log ends, and the header that goes with it."""

    header: Header
    last_sequence: int

    @property
    def log_entries(self) -> int:
        """Entries that are not folded into the snapshot."""
        return self.last_sequence - self.header.folded_sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What one transaction appends at the end of the log."""

    time_ms: int
    entries: Sequence[EntryDraft]
    changes: Sequence[RowChange]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """A whole other state: its snapshot rows by slot, its counters, and rows of other tables."""

    time_ms: int
    entries: Sequence[tuple[str, EntryDraft]]
    counters: tuple[int, int]
    changes: Sequence[RowChange] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """On the medium; `tail` is the new one."""

    tail: Tail


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """Certainly not in the log."""

    why: str
    todo: str
    by_content: bool = False
    """What was to be written is at fault, not the medium."""
    deposed: bool = False
    """Another process has opened the directory for writing since: no later commit can succeed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncertain:
    """It may be in the log; nobody can tell before a restart."""

    why: str


Outcome = Committed | Rejected | Uncertain
Transaction = Callable[[sqlite3.Connection, "Tail", "Files"], Outcome]
"""One whole transaction; runs in the connection's thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """What lies on the medium beside the writing connection."""

    database: Path
    watermark: Watermark


def entry_checksum(sequence: int, time_ms: int, draft: EntryDraft) -> int:
    """XXH32 over sequence, time, type, then tenant, key and payload, NUL between them.

    Neither tenant nor key holds a NUL, so no two entries have the same bytes.
    """
    head = _HEAD.pack(sequence, time_ms, draft.entry_type)
    body = (head, draft.tenant, draft.key.encode(), draft.payload)
    return xxhash.xxh32_intdigest(b"%b%b\0%b\0%b" % body)


def append(request: Commit, connection: sqlite3.Connection, tail: Tail, files: Files) -> Outcome:
    """Append everything in one durable transaction."""
    last = tail.last_sequence + len(request.entries)

    def work() -> None:
        _insert_entries(connection, _entry_rows(request, tail))
        _apply(connection, request.changes)

    failure = _transaction(connection, work, tail, files)
    if failure is not None:
        return failure
    files.watermark.advance(last)
    return Committed(tail=replace(tail, last_sequence=last))


def _insert_entries(connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert rows, many in one statement.

    SQLite lets go of the interpreter's lock once in each statement, and getting it back from a busy
    event loop may take milliseconds.
    """
    start = 0
    for count, statement in _INSERTS.items():
        while len(rows) - start >= count:
            chunk = rows[start : start + count]
            connection.execute(statement, [value for row in chunk for value in row])
            start += count


def _entry_rows(request: Commit, tail: Tail) -> list[tuple[Any, ...]]:
    time_ms = request.time_ms
    rows = []
    for sequence, draft in enumerate(request.entries, tail.last_sequence + 1):
        entry_type, tenant, key, payload, operation_id = draft
        checksum = entry_checksum(sequence, time_ms, draft)
        rows.append((sequence, time_ms, entry_type, tenant, key, operation_id, payload, checksum))
    return rows


def fold(
    counters: tuple[int, int], connection: sqlite3.Connection, tail: Tail, files: Files
) -> Outcome:
    """Move the oldest entries into the snapshot: both change in one transaction.

    `counters` are ids that lie past every one in the log.  All rows move inside SQLite; the header
    keeps the number and the checksum sum of the snapshot's rows by what the fold added.
    """
    header = tail.header
    last = {"last": min(header.folded_sequence + FOLD_ENTRIES, tail.last_sequence)}
    folded = header

    def work() -> None:
        nonlocal folded
        rows_before, sum_before = connection.execute(SQL["fold_sums"], last).fetchone()
        for step in ("fold_records", "fold_operations", "fold_erasures"):
            connection.execute(SQL[step], last)
        rows_after, sum_after = connection.execute(SQL["fold_sums"], last).fetchone()
        connection.execute(SQL["forget_folded"], last)
        folded = replace(
            header,
            folded_sequence=last["last"],
            snapshot_rows=header.snapshot_rows + rows_after - rows_before,
            snapshot_sum=header.snapshot_sum + sum_after - sum_before,
            next_lease_id=counters[0],
            next_operation_id=counters[1],
        )
        write_header(connection, folded)

    failure = _transaction(connection, work, tail, files)
    return Committed(tail=replace(tail, header=folded)) if failure is None else failure


def replace_all(
    content: Replacement, connection: sqlite3.Connection, tail: Tail, files: Files
) -> Outcome:
    """Put another state in the place of the present one, all or nothing.

    It consumes one sequence, at which the new snapshot stands; the log after it is empty.
    """
    sequence = tail.last_sequence + 1
    rows = [
        (
            slot,
            sequence,
            content.time_ms,
            *draft[:4],
            entry_checksum(sequence, content.time_ms, draft),
        )
        for slot, draft in content.entries
    ]
    header = replace(
        tail.header,
        folded_sequence=sequence,
        snapshot_rows=len(rows),
        snapshot_sum=sum(row[-1] for row in rows),
        next_lease_id=content.counters[0],
        next_operation_id=content.counters[1],
    )

    def work() -> None:
        connection.execute(SQL["clear_oplog"])
        connection.execute(SQL["clear_snapshot"])
        connection.executemany(SQL["insert_snapshot"], rows)
        _apply(connection, content.changes)
        write_header(connection, header)

    failure = _transaction(connection, work, tail, files)
    if failure is not None:
        return failure
    files.watermark.advance(sequence)
    return Committed(tail=Tail(header=header, last_sequence=sequence))


def _apply(connection: sqlite3.Connection, changes: Sequence[RowChange]) -> None:
    for change in changes:
        if change.many:
            connection.executemany(change.statement, change.parameters)
        else:
            connection.execute(change.statement, change.parameters)


def _transaction(
    connection: sqlite3.Connection, work: Callable[[], None], tail: Tail, files: Files
) -> Rejected | Uncertain | None:
    """Run `work` between BEGIN and COMMIT; None when it is durable."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        (term,) = connection.execute(SQL["read_term"]).fetchone()
        if term != tail.header.term:
            connection.execute("ROLLBACK")
            return _deposed(tail.header.term, term)
        work()
    except (sqlite3.Error, sqlite3.Warning, ValueError, TypeError, OverflowError) as error:
        return _undo(connection, error)
    try:
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        outcome = _undo(connection, error)
        if isinstance(outcome, Uncertain) or not _name(error).startswith(_IO_ERROR):
            return _find_out(outcome, tail, files)
        return Uncertain(why=f"CommitUncertain: {_text(error)}")
    return None


def _deposed(ours: int, theirs: int) -> Rejected:
    """The lock was taken from us, as by somebody who removed its file while we were stopped."""
    return Rejected(
        why=f"Fenced: term {theirs} has opened the state directory, this process has term {ours}",
        todo="let the newer process do it; never remove the file `lock`",
        deposed=True,
    )


def _find_out(outcome: Rejected | Uncertain, tail: Tail, files: Files) -> Rejected | Uncertain:
    """After a failed COMMIT: read whether the log is still as it was."""
    try:
        reader = connect_reader(files.database)
        try:
            (last,) = reader.execute(SQL["last_sequence"]).fetchone()
            header = read_header(reader, files.database)
        finally:
            reader.close()
    except (sqlite3.Error, StateDirectoryError) as error:
        return Uncertain(why=f"{outcome.why}; and the log cannot be read: {error}")
    if (last or header.folded_sequence, header) == (tail.last_sequence, tail.header):
        return outcome
    return Uncertain(why=f"{outcome.why}; yet the log has changed")


def _undo(connection: sqlite3.Connection, error: Exception) -> Rejected | Uncertain:
    try:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    except sqlite3.Error as second:
        return Uncertain(why=f"RollbackFailed: {_text(second)} after {_text(error)}")
    if _name(error).startswith(_DAMAGED):
        return Uncertain(why=f"Damaged: {_text(error)}")
    return _rejected(error)


def _rejected(error: Exception) -> Rejected:
    name = _name(error)
    if name == _OUT_OF_SPACE:
        return Rejected(
            why=f"DiskFull: {_text(error)}",
            todo="free space on the state directory's file system, then try again",
        )
    if name.startswith(_READ_ONLY):
        return Rejected(
            why=f"ReadOnly: {_text(error)}",
            todo="make the state directory writable again, then try again",
        )
    return Rejected(
        why=f"AppendRefused: {_text(error)}",
        todo="see `weightctl doctor`; nothing was changed, trying again is safe",
        by_content=not isinstance(error, sqlite3.OperationalError),
    )


def _name(error: Exception) -> str:
    return getattr(error, "sqlite_errorname", "") or ""


def _text(error: Exception) -> str:
    return f"{error} ({_name(error) or type(error).__name__})"
