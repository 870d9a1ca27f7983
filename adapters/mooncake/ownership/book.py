"""What the Master does not tell, kept in the state directory.  Layer: a tier; blocking.

Owns one SQLite file: for each managed object its group, digest and the client that put it, the
highest term served of each holder, the token of the epoch, which Master that was, and the rank of
this store's claim or who has refused it.  The Master shows neither groups nor owners nor digests.
Invariant: a row is on disk before the object that it describes is put; a term before anything is
done for it.
"""

from __future__ import annotations

import sqlite3
import threading
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import compress
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from weightctl.adapters.mooncake.keys import file_name
from weightctl.adapters.shared.fencing import refuse_older
from weightctl.controller.errors import TransientError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from weightctl.controller.core.observation import Member
    from weightctl.controller.ports import Fence

_DURABLE = "PRAGMA synchronous = FULL; PRAGMA journal_mode = PERSIST;"
"""As durable as the default; a journal that stays costs a commit no change of its folder."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS object (
    key TEXT PRIMARY KEY, group_id TEXT NOT NULL, size_bytes INTEGER NOT NULL,
    sha256 BLOB NOT NULL, token TEXT NOT NULL, owner TEXT NOT NULL, drops INTEGER NOT NULL,
    keeper TEXT NOT NULL DEFAULT '', keeper_host TEXT NOT NULL DEFAULT '',
    file TEXT NOT NULL DEFAULT '', file_stamp TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS fence (holder TEXT PRIMARY KEY, term INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS epoch (id INTEGER PRIMARY KEY CHECK (id = 1), token TEXT NOT NULL)
STRICT;
CREATE TABLE IF NOT EXISTS place (id INTEGER PRIMARY KEY CHECK (id = 1), master TEXT NOT NULL)
STRICT;
CREATE TABLE IF NOT EXISTS claim (
    id INTEGER PRIMARY KEY CHECK (id = 1), number INTEGER NOT NULL, refused_by TEXT NOT NULL,
    fenced_by INTEGER NOT NULL DEFAULT 0
) STRICT;
"""
_ADDED = ("keeper", "keeper_host", "file", "file_stamp")
"""Columns of `object` that an older book lacks."""
_COLUMNS = ("key", "group_id", "size_bytes", "sha256", "token", "owner", "drops", *_ADDED)
_VALUES = attrgetter(*_COLUMNS)
_SELECT = "SELECT * FROM object"
_UPSERT = f"""
INSERT INTO object ({", ".join(_COLUMNS)}) VALUES ({", ".join("?" * len(_COLUMNS))})
ON CONFLICT (key) DO UPDATE SET group_id = excluded.group_id, size_bytes = excluded.size_bytes,
    sha256 = excluded.sha256, token = excluded.token, owner = excluded.owner,
    drops = excluded.drops, keeper = excluded.keeper, keeper_host = excluded.keeper_host,
    file = excluded.file, file_stamp = excluded.file_stamp
"""  # noqa: S608 - of our own names


NOBODY = "?"
"""Keeper of what was put onto a host that had just come: a copy that it tells of later may be an
older file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One managed object.

    `token` names this put of it and is empty until that was seen to have become the object: what
    lies under the key meanwhile is not known to be it.  `owner` is the client that puts it.
    """

    key: str
    group_id: str
    size_bytes: int
    sha256: bytes
    token: str
    owner: str
    drops: int = 0
    """How often its memory replicas were dropped: a new one at an old address is another one."""
    keeper: str = ""
    """The client whose disk holds this very put, or will: the one that had it in memory first, or
    the one from whose disk it was read.  Empty when that is not known."""
    keeper_host: str = ""
    """Name of that client's segment, once its disk copy was seen: a host that comes back on its
    folder is another client of the same name."""
    file: str = ""
    """Path of its DISK replica, once that was read right."""
    file_stamp: str = ""
    """Which file that was; see `root_fs.engine`."""

    def says(self, sha256: bytes) -> bool:
        """Whether the object's content is known, and has that digest."""
        return bool(self.token) and self.sha256 == sha256


def row_of(member: Member, token: str, owner: str) -> Row:
    """The row of a member; without a token of one that is to be put."""
    return Row(
        key=member.key,
        group_id=member.group_id,
        size_bytes=member.size_bytes,
        sha256=member.sha256,
        token=token,
        owner=owner,
    )


def known_row(row: Row | None, member: Member, token: str) -> Row:
    """The row of an object that was read and is the member; row: what there was of its key."""
    if row is not None and (row.group_id, row.sha256) == (member.group_id, member.sha256):
        return replace(row, token=token)
    return row_of(member, token, owner="")


class Book:
    """The book of one cluster in one state directory; thread-safe.  Raises TransientError."""

    def __init__(self, path: Path, *, read_only: bool) -> None:
        self.path = path
        self._read_only = read_only
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._rows: dict[str, Row] = {}
        self._files: dict[str, str] = {}
        """File name of a host's backend to the key that has it."""
        self._strange: set[str] = set()
        """Keys of objects that no client of ours is known to have put."""
        self._found: set[str] = set()
        """Keys of members in memory that had no row when they were last seen."""
        self.epoch = ""
        self.master = ""
        """The Master whose book it is; empty when that is not known yet."""
        self.rank = -1
        """Of this store's claim on the cluster; below 0 when it never had it."""
        self.refused_by = ""
        """The store that was seen to own the cluster."""
        self.fenced_by = 0
        """The term of a copy of this state directory that was seen to act; 0 for none."""

    def open(self) -> None:
        """Read it all; create it unless it is opened for asking only."""
        with self._lock, self._translated():
            if self._read_only and not self.path.exists():
                return
            if not self._read_only:
                self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            mode = "ro" if self._read_only else "rwc"
            self._db = sqlite3.connect(
                f"file:{self.path}?mode={mode}", uri=True, check_same_thread=False
            )
            if not self._read_only:
                self._db.executescript(f"{_DURABLE} {_SCHEMA}")
                _add_columns(self._db)
            found = self._db.execute(_SELECT)
            names = [column[0] for column in found.description]
            for values in found:
                self._keep(Row(**dict(zip(names, values, strict=True))))
            self.epoch = next((row[0] for row in self._db.execute("SELECT token FROM epoch")), "")
            self._read_claim(self._db)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    def get(self, key: str) -> Row | None:
        """The row of a key."""
        return self._rows.get(key)

    def rows(self, group_id: str | None = None) -> list[Row]:
        """All rows, or those of a group, in key order."""
        with self._lock:
            rows = list(self._rows.values())
        return sorted(
            (row for row in rows if group_id in (None, row.group_id)),
            key=lambda row: row.key.encode(),
        )

    @property
    def strange(self) -> int:
        """How many objects were there already when they were first seen: adopted, or recognised."""
        return len(self._strange) + len(self._found.difference(self._rows))

    def note_found(self, keys: Sequence[str], asked: bytearray, in_memory: bytearray) -> None:
        """Members that were just looked at; bytes: 0 where there was no answer, or none is there.

        One that was adopted gets a row only when it is read again.
        """
        rows = self._rows
        if self._found:
            self._found.difference_update(compress(keys, asked))
        self._found.update(key for key in compress(keys, in_memory) if key not in rows)

    def shares_file(self, key: str) -> str:
        """Another managed key whose file on a host may be the same one; empty when none."""
        other = self._files.get(file_name(key), key)
        return "" if other == key else other

    def others(self, group_id: str, keys: Sequence[str]) -> list[int]:
        """Indexes of the keys under which the object of another group lies.

        A key does not tell the tenant: revisions of two tenants may be named alike.
        """
        rows = self._rows
        return [
            index
            for index, key in enumerate(keys)
            if (row := rows.get(key)) is not None and row.group_id != group_id
        ]

    def put(self, rows: Iterable[Row]) -> None:
        """Insert or replace rows, durable when it returns."""
        kept = list(rows)
        with self._lock, self._translated(), self._writing() as db:
            db.executemany(_UPSERT, map(_VALUES, kept))
            for row in kept:
                self._keep(row)

    def forget(self, keys: Iterable[str]) -> None:
        """Delete rows."""
        gone = [key for key in keys if key in self._rows]
        if not gone:
            return
        with self._lock, self._translated(), self._writing() as db:
            db.executemany("DELETE FROM object WHERE key = ?", [(key,) for key in gone])
            for key in gone:
                self._rows.pop(key, None)
                self._files.pop(file_name(key), None)
                self._strange.discard(key)

    def set_epoch(self, token: str) -> None:
        """Remember the token of a new epoch."""
        with self._lock, self._translated(), self._writing() as db:
            db.execute("INSERT OR REPLACE INTO epoch VALUES (1, ?)", (token,))
            self.epoch = token

    def set_master(self, master: str) -> None:
        """Remember whose book it is."""
        with self._lock, self._translated(), self._writing() as db:
            db.execute("INSERT OR REPLACE INTO place VALUES (1, ?)", (master,))
            self.master = master

    def set_claim(self, rank: int, refused_by: str, fenced_by: int = 0) -> None:
        """Remember the rank of this store's claim, and who has refused it; empty for nobody."""
        told = (rank, refused_by, fenced_by)
        if told == (self.rank, self.refused_by, self.fenced_by):
            return
        with self._lock, self._translated(), self._writing() as db:
            db.execute(
                "INSERT OR REPLACE INTO claim (id, number, refused_by, fenced_by)"
                " VALUES (1, ?, ?, ?)",
                told,
            )
            self.rank, self.refused_by, self.fenced_by = told

    def admit(self, fence: Fence) -> None:
        """Let `fence` act, remembering its term.  Raises FencedError for an older one."""
        with self._lock, self._translated(), self._writing() as db:
            db.execute("BEGIN IMMEDIATE")  # another process may have served a newer one meanwhile
            asked = db.execute("SELECT term FROM fence WHERE holder = ?", (fence.holder,))
            (served,) = asked.fetchone() or (0,)
            refuse_older(fence, served)
            if served != fence.term:
                db.execute("INSERT OR REPLACE INTO fence VALUES (?, ?)", (fence.holder, fence.term))

    def _read_claim(self, db: sqlite3.Connection) -> None:
        tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master")}
        if {"place", "claim"} <= tables:  # one of an older release, opened for asking, has none
            for row in db.execute("SELECT master FROM place"):
                (self.master,) = row
            for row in db.execute("SELECT number, refused_by FROM claim"):
                self.rank, self.refused_by = row
            if "fenced_by" in _columns(db, "claim"):
                for row in db.execute("SELECT fenced_by FROM claim"):
                    (self.fenced_by,) = row

    def _keep(self, row: Row) -> None:
        self._rows[row.key] = row
        self._files[file_name(row.key)] = row.key
        (self._strange.discard if row.owner else self._strange.add)(row.key)

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        if self._db is None or self._read_only:
            raise TransientError(f"{self.path} cannot be written", "it is not open for writing")
        with self._db as db:
            yield db

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise TransientError(
                f"{self.path} cannot be used", str(error), "check the state directory's disk"
            ) from error


def _add_columns(db: sqlite3.Connection) -> None:
    """Bring the tables of an older book up to this one."""
    for name in _ADDED:
        if name not in _columns(db, "object"):
            db.execute(f"ALTER TABLE object ADD COLUMN {name} TEXT NOT NULL DEFAULT ''")
    if "fenced_by" not in _columns(db, "claim"):
        db.execute("ALTER TABLE claim ADD COLUMN fenced_by INTEGER NOT NULL DEFAULT 0")


def _columns(db: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in db.execute(f"PRAGMA table_info({table})")}
