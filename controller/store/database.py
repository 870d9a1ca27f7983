"""The SQLite file of a state directory: connections, schema version and header.  Layer: store.

Everything here blocks, so it runs in the connections' own threads.  The file is in WAL mode with
synchronous=FULL: a commit that returned is on the medium.  A file of a newer schema is refused and
not touched.
"""

from __future__ import annotations

import sqlite3
import struct
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

import xxhash

from weightctl.controller.errors import InvariantViolationError, StateDirectoryError
from weightctl.controller.store.statements import load

if TYPE_CHECKING:
    from pathlib import Path

    from weightctl.controller.ports import Clock

DATABASE_NAME = "weightctl.db"
SCHEMA_VERSION = 1
APPLICATION_ID = 0x77676874
"""ASCII "wght"."""

WAL_PAGES_MAX = 4096
"""A checkpoint starts when the WAL has grown to this many pages (16 MiB)."""
WAL_BYTES_KEPT = 64 * 1024 * 1024
"""The WAL file is cut back to this size after a checkpoint that emptied it."""
INTEGER_MAX = 2**63 - 1
BUSY_TIMEOUT_S = 10.0
CACHE_KIB = 8192

SCHEMA = load("schema")
BAD_FILE = (
    sqlite3.Error,
    sqlite3.Warning,
    ValueError,
    TypeError,
    AttributeError,
    OverflowError,
    struct.error,
    InvariantViolationError,
)
"""What comes out of a damaged file: SQLite's own errors, and values of the wrong kind or length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The one row that says whose file this is and up to where its snapshot reaches."""

    store_id: str
    term: int
    created_ms: int
    folded_sequence: int = 0
    snapshot_rows: int = 0
    snapshot_sum: int = 0
    next_lease_id: int = 1
    next_operation_id: int = 1

    def row(self) -> tuple[Any, ...]:
        """Values of the table's columns after `id`; u64 counters as text."""
        *numbers, lease, operation = astuple(self)
        return (*numbers, str(lease), str(operation), self.checksum())

    def checksum(self) -> int:
        """XXH32 over the fields in order, as text."""
        return xxhash.xxh32_intdigest(repr(astuple(self)).encode())


def column_time(clock: Clock) -> int:
    """Wall clock, ms, within what a column holds."""
    return min(clock.wall_ms(), INTEGER_MAX)


def connect_writer(path: Path) -> sqlite3.Connection:
    """A connection in autocommit mode with the durability that the journal promises.

    Raises StateDirectoryError for a file that is not ours to write.
    """
    connection = sqlite3.connect(path, isolation_level=None, timeout=BUSY_TIMEOUT_S)
    try:
        check_version(connection, path)  # before anything is changed in the file
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise StateDirectoryError(
                f"{path} cannot be a journal",
                f"NoWriteAheadLog: SQLite offers only journal mode {mode!r} there",
                "use a state directory on a local file system",
            )
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES_MAX}")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_KEPT}")
        _common(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def connect_reader(path: Path, *, immutable: bool = False) -> sqlite3.Connection:
    """A connection that cannot write; `immutable` for a file that nobody has open."""
    query = "immutable=1" if immutable else "mode=ro"
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?{query}",
        isolation_level=None,
        timeout=BUSY_TIMEOUT_S,
        uri=True,
    )
    try:
        connection.execute("PRAGMA query_only = ON")
        _common(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _common(connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.execute("PRAGMA trusted_schema = OFF")


def check_version(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the file holds a schema already.  Raises for another's file or a newer version."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (owner,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if not tables and not version and not owner:
        return False
    if owner != APPLICATION_ID:
        raise StateDirectoryError(
            f"{path} is not a weightctl state file",
            f"ForeignFile: its application id is {owner:#x}",
            "give another state directory, or move that file away",
        )
    if version != SCHEMA_VERSION:
        raise StateDirectoryError(
            f"{path} has schema version {version}",
            f"SchemaVersion: this program knows version {SCHEMA_VERSION} only",
            "use the weightctl version that wrote it; nothing was changed",
        )
    return True


def create(connection: sqlite3.Connection, header: Header) -> None:
    """Lay out an empty file, all or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    for statement in filter(None, map(str.strip, SCHEMA["create"].split(";"))):
        connection.execute(statement)
    for name in ("create_group_added", "create_group_changed", "create_group_removed"):
        connection.execute(SCHEMA[name])
    connection.execute(SCHEMA["insert_header"], header.row())
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


def read_header(connection: sqlite3.Connection, path: Path) -> Header:
    """The header, checked against its checksum."""
    row = connection.execute(SCHEMA["read_header"]).fetchone()
    if row is not None:
        *values, lease, operation, checksum = row
        names = Header.__dataclass_fields__
        fields = dict(zip(names, (*values, int(lease), int(operation)), strict=True))
        header = Header(**fields)
        if header.checksum() == checksum:
            return header
    raise StateDirectoryError(
        f"{path} is damaged",
        "DamagedHeader: its header row is missing or does not have its checksum",
        "keep the file, and restore a snapshot into a fresh state directory",
    )


def write_header(connection: sqlite3.Connection, header: Header) -> None:
    """Replace the header; part of the caller's transaction."""
    connection.execute(SCHEMA["replace_header"], header.row())
