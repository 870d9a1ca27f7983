"""Showing and verifying the op-log of a state directory. Layer: store; synchronous, writes nothing.

Shows what can be shown: an entry that is not what was written comes with its problem instead of a
value.  Verifying is the same work as a restart, plus SQLite's own check of the whole file.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weightctl.controller.core.identity import text_bytes
from weightctl.controller.errors import StateDirectoryError
from weightctl.controller.store import watermark
from weightctl.controller.store.commit import SQL
from weightctl.controller.store.database import BAD_FILE
from weightctl.controller.store.loading import DamageError, load_state, read_log_row
from weightctl.controller.store.reading import open_reader

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from weightctl.controller.core.oplog import Payload

_CHUNK_ROWS = 1024
_FAULTS_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One entry as it lies in the log; `value` is None when it does not decode."""

    sequence: int
    time_ms: int
    entry_type: int
    tenant_id: str
    key: str
    payload: bytes
    value: Payload | None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReport:
    """What verifying found; `first_sequence` is the oldest entry that is not folded away."""

    ok: bool
    problem: str
    first_sequence: int
    last_sequence: int
    entries: int
    snapshot_rows: int


def read_log(state_dir: str | os.PathLike[str], from_sequence: int = 1) -> Iterator[LogEntry]:
    """The entries of the log from a sequence on; older ones may be folded into the snapshot.

    Raises StateDirectoryError when the file cannot be read.
    """
    with open_reader(Path(state_dir)) as (connection, _):
        while True:
            rows = connection.execute(SQL["read_entries"], (from_sequence, _CHUNK_ROWS)).fetchall()
            yield from map(_log_entry, rows)
            if len(rows) < _CHUNK_ROWS:
                return
            from_sequence = rows[-1][0] + 1


def _log_entry(row: Sequence[Any]) -> LogEntry:
    value, problem = None, ""
    try:
        value = read_log_row(row).payload
    except DamageError as error:
        problem = error.why
    return LogEntry(
        sequence=_number(row[0]),
        time_ms=_number(row[1]),
        entry_type=_number(row[2]),
        tenant_id=_raw(row[3]).decode("utf-8", "surrogateescape"),
        key=_raw(row[4]).decode("utf-8", "surrogateescape"),
        payload=_raw(row[5]),
        value=value,
        problem=problem,
    )


def _number(value: object) -> int:
    """A column of numbers; 0 where a damaged file holds something else."""
    return value if type(value) is int else 0


def _raw(value: object) -> bytes:
    """A column of texts or bytes; none where a damaged file holds something else."""
    if isinstance(value, str):
        return text_bytes(value)
    return value if isinstance(value, bytes) else b""


def verify_log(state_dir: str | os.PathLike[str]) -> LogReport:
    """Check the whole file, snapshot, log and order, as a restart would.

    Raises StateDirectoryError only when there is nothing to verify.
    """
    with open_reader(Path(state_dir)) as (connection, path):
        try:
            loaded = load_state(connection, path)
        except StateDirectoryError as error:
            return _report(problem=str(error))
        problem = "" if loaded.damage is None else str(loaded.damage)
        try:
            watermark.check(path.parent, loaded.header.store_id, loaded.last_sequence)
        except StateDirectoryError as error:
            problem = problem or str(error)
        problem = problem or _file_problem(connection, path)
        first = loaded.header.folded_sequence + 1
        return _report(
            problem=problem,
            first_sequence=first,
            last_sequence=loaded.last_sequence,
            entries=loaded.last_sequence - first + 1,
            snapshot_rows=loaded.header.snapshot_rows,
        )


def _report(
    *,
    problem: str,
    first_sequence: int = 0,
    last_sequence: int = 0,
    entries: int = 0,
    snapshot_rows: int = 0,
) -> LogReport:
    return LogReport(
        ok=not problem,
        problem=problem,
        first_sequence=first_sequence,
        last_sequence=last_sequence,
        entries=entries,
        snapshot_rows=snapshot_rows,
    )


def _file_problem(connection: sqlite3.Connection, path: Path) -> str:
    """What SQLite finds wrong with the file as such, in three lines."""
    try:
        found = [text for (text,) in connection.execute(f"PRAGMA integrity_check({_FAULTS_SHOWN})")]
    except BAD_FILE as error:
        found = [str(error)]
    if found == ["ok"]:
        return ""
    damage = StateDirectoryError(
        f"the file {path} is damaged",
        f"DamagedFile: {'; '.join(found)}",
        "keep a copy of the directory, then restore a snapshot into a fresh one",
    )
    return str(damage)
