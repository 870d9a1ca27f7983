"""What a failed transaction means: certain where it can be known, uncertain everywhere else."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from weightctl.controller.store.commit import (
    Commit,
    Committed,
    EntryDraft,
    Files,
    Rejected,
    Tail,
    Uncertain,
    append,
)
from weightctl.controller.store.database import Header, connect_reader, create, read_header
from weightctl.controller.store.watermark import Watermark, acknowledged

HEADER = Header(store_id="ab", term=1, created_ms=1)
TAIL = Tail(header=HEADER, last_sequence=0)
REQUEST = Commit(time_ms=1, entries=[EntryDraft(8, b"t", "key", b"[]")], changes=[])


def failure(name: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("injected")
    error.sqlite_errorname = name
    return error


class Faulty(sqlite3.Connection):
    """Fails at the statements that `faults` names; `late` ones fail after they were carried out."""

    faults: dict[str, sqlite3.Error]
    late: frozenset[str] = frozenset()

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        word = sql.split(maxsplit=1)[0]
        if word in self.faults:
            if word in self.late:
                super().execute(sql, *parameters)
            raise self.faults[word]
        return super().execute(sql, *parameters)


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    watermark = Watermark(tmp_path, "ab")
    yield Files(database=tmp_path / "weightctl.db", watermark=watermark)
    watermark.close()


def attempt(files: Files, faults: dict[str, str], late: frozenset[str] = frozenset()) -> object:
    with closing(
        sqlite3.connect(files.database, isolation_level=None, factory=Faulty)
    ) as connection:
        connection.faults = {}
        connection.execute("PRAGMA journal_mode = WAL")
        create(connection, HEADER)
        connection.faults = {word: failure(name) for word, name in faults.items()}
        connection.late = late
        return append(REQUEST, connection, TAIL, files)


def entries(files: Files) -> int:
    with closing(connect_reader(files.database)) as reader:
        assert read_header(reader, files.database) == HEADER
        (count,) = reader.execute("SELECT count(*) FROM oplog").fetchone()
    return int(count)


def test_success_is_in_the_log_and_acknowledged(files: Files) -> None:
    assert isinstance(attempt(files, {}), Committed)
    assert entries(files) == 1
    assert acknowledged(files.database.parent, "ab") == 1


CERTAIN = {
    "begin-busy": ({"BEGIN": "SQLITE_BUSY"}, "AppendRefused"),
    "insert-full": ({"INSERT": "SQLITE_FULL"}, "DiskFull"),
    "insert-read-only": ({"INSERT": "SQLITE_READONLY"}, "ReadOnly"),
    "insert-read-only-directory": ({"INSERT": "SQLITE_READONLY_DIRECTORY"}, "ReadOnly"),
    "insert-io": ({"INSERT": "SQLITE_IOERR_WRITE"}, "AppendRefused"),
    "commit-full": ({"COMMIT": "SQLITE_FULL"}, "DiskFull"),
    "commit-busy": ({"COMMIT": "SQLITE_BUSY"}, "AppendRefused"),
}


@pytest.mark.parametrize("faults, why", CERTAIN.values(), ids=CERTAIN.keys())
def test_failure_that_left_nothing_is_certain(
    files: Files, faults: dict[str, str], why: str
) -> None:
    outcome = attempt(files, faults)
    assert isinstance(outcome, Rejected)
    assert outcome.why.startswith(why)
    assert outcome.todo
    assert entries(files) == 0
    assert acknowledged(files.database.parent, "ab") == 0


UNCERTAIN = {
    "commit-sync": ({"COMMIT": "SQLITE_IOERR_FSYNC"}, frozenset()),
    "commit-sync-after-all": ({"COMMIT": "SQLITE_IOERR_FSYNC"}, frozenset({"COMMIT"})),
    "answer-lost": ({"COMMIT": "SQLITE_FULL"}, frozenset({"COMMIT"})),
    "undo-failed": ({"INSERT": "SQLITE_FULL", "ROLLBACK": "SQLITE_IOERR"}, frozenset()),
    "damaged": ({"INSERT": "SQLITE_CORRUPT"}, frozenset()),
    "damaged-index": ({"INSERT": "SQLITE_CORRUPT_INDEX"}, frozenset()),
}


@pytest.mark.parametrize("faults, late", UNCERTAIN.values(), ids=UNCERTAIN.keys())
def test_failure_that_may_have_left_something_is_uncertain(
    files: Files, faults: dict[str, str], late: frozenset[str]
) -> None:
    outcome = attempt(files, faults, late)
    assert isinstance(outcome, Uncertain)
    assert outcome.why
    assert acknowledged(files.database.parent, "ab") == 0


def test_log_that_cannot_be_read_after_a_failed_commit_is_uncertain(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(_: Path) -> sqlite3.Connection:
        raise failure("SQLITE_CANTOPEN")

    monkeypatch.setattr("weightctl.controller.store.commit.connect_reader", unreadable)
    outcome = attempt(files, {"COMMIT": "SQLITE_FULL"})
    assert isinstance(outcome, Uncertain)
    assert "cannot be read" in outcome.why


@pytest.mark.parametrize(
    "text", [b"", b"x", b"ab 1", b"ab 00000000000000000009 00000000\n", b"\xff" * 300]
)
def test_watermark_that_is_not_whole_counts_for_nothing(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "acknowledged").write_bytes(text)
    assert acknowledged(tmp_path, "ab") == 0
