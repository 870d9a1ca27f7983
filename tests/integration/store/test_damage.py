"""Damaged, missing, foreign and newer files: refused with the place named, never read wrongly."""

import asyncio
import random
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.mounts import cannot
from tests.support.store_child import evidence
from tests.support.stores import begin, manifest, many, opened, payload, published
from tests.support.weights import ID, identity
from tests.unit.acceptance_rows import row
from weightctl.controller.core.identity import payload_group_id
from weightctl.controller.core.observation import Members
from weightctl.controller.core.records import Snapshot
from weightctl.controller.core.snapshot import export_snapshot
from weightctl.controller.errors import ErrorCode, StateDirectoryError, WeightError
from weightctl.controller.store import commit as commits
from weightctl.controller.store import journal
from weightctl.controller.store.database import DATABASE_NAME
from weightctl.controller.store.oplog import read_log, verify_log
from weightctl.controller.store.reading import read_state
from weightctl.controller.store.store import WeightMetadataStore

FLIPS = 150
WAL_NAME = f"{DATABASE_NAME}-wal"
REGISTERED = identity("registered", 1)


@pytest.fixture
def small_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fold early, so that snapshot and log both hold records."""
    monkeypatch.setattr(journal, "LOG_ENTRIES_MAX", 24)
    monkeypatch.setattr(commits, "FOLD_ENTRIES", 8)


async def fill(store: WeightMetadataStore) -> None:
    """A little of everything, more than one page of each."""
    await begin(store, REGISTERED)
    await store.directory.register(REGISTERED, [payload(REGISTERED, n) for n in range(100)])
    await store.directory.register(REGISTERED, [manifest(REGISTERED)])
    for of in many(40):
        await published(store, of)
        await store.acquire_lease(
            identity=of, expected_metadata_generation=2, holder="h", ttl_ms=1000
        )
    await store.evidence.record(REGISTERED, [evidence(n) for n in range(50)])
    await store.tier_epochs.set("memory", "e1")


def filled(folder: Path) -> Snapshot:
    """Fill a folder and close it; everything then lies in the one file."""

    async def work() -> Snapshot:
        async with opened(folder) as store:
            await fill(store)
            return await store.export_snapshot()

    return asyncio.run(work())


def run(sql: str, folder: Path, *parameters: object) -> None:
    with closing(sqlite3.connect(folder / DATABASE_NAME)) as connection, connection:
        connection.execute(sql, parameters)


def reopened(folder: Path) -> tuple[Snapshot, Members]:
    async def work() -> tuple[Snapshot, Members]:
        async with opened(folder) as store:
            members = await store.directory.members(payload_group_id(REGISTERED))
            return await store.export_snapshot(), members

    return asyncio.run(work())


def refusal(folder: Path) -> StateDirectoryError:
    """Check that the folder is refused in three parts, and is as it was."""
    before = (folder / DATABASE_NAME).read_bytes()
    with pytest.raises(StateDirectoryError) as caught:
        reopened(folder)
    error = caught.value
    assert error.what
    assert error.why
    assert error.todo
    assert (folder / DATABASE_NAME).read_bytes() == before
    return error


DAMAGE = {
    "payload": "UPDATE oplog SET payload = cast(replace(payload, 'a', 'b') AS blob)"
    " WHERE sequence = ?",
    "kind": "UPDATE oplog SET payload = 'text' WHERE sequence = ?",
    "checksum": "UPDATE oplog SET checksum = checksum + 1 WHERE sequence = ?",
    "time": "UPDATE oplog SET time_ms = time_ms + 1 WHERE sequence = ?",
    "tenant": "UPDATE oplog SET tenant = X'61' WHERE sequence = ?",
    "key": "UPDATE oplog SET key = key || 'x' WHERE sequence = ?",
    "type": "UPDATE oplog SET type = 200 WHERE sequence = ?",
    "operation": "UPDATE oplog SET operation_id = '7' WHERE sequence = ?",
    "missing": "DELETE FROM oplog WHERE sequence = ?",
}


REFUSED_ENTRIES = {
    "checksum": "bad-checksum",
    "type": "type-200",
    "missing": "future-sequence",
}
"""Kinds of damage that are a row of the acceptance table."""


@pytest.mark.parametrize(
    "sql",
    [
        row(106, REFUSED_ENTRIES[kind], sql)
        if kind in REFUSED_ENTRIES
        else pytest.param(sql, id=kind)
        for kind, sql in DAMAGE.items()
    ],
)
def test_changed_entry_is_named_and_writing_refused_while_reading_shows_the_rest(
    tmp_path: Path, sql: str
) -> None:
    filled(tmp_path)
    run(sql, tmp_path, 100)
    assert "sequence 100" in refusal(tmp_path).what
    with read_state(tmp_path) as stored:
        assert stored.last_sequence == 99
        assert "sequence 100" in stored.problem
        assert REGISTERED in stored.state.metadata
    report = verify_log(tmp_path)
    assert (report.ok, report.last_sequence) == (False, 99)
    shown = {entry.sequence: entry for entry in read_log(tmp_path, 99)}
    assert shown[99].value is not None
    assert 100 not in shown or (shown[100].value is None and shown[100].problem)


SNAPSHOT_DAMAGE = {
    "payload": "UPDATE snapshot SET payload = replace(payload, 'a', 'b') WHERE rowid = 1",
    "missing": "DELETE FROM snapshot WHERE rowid = 2",
    "doubled": "INSERT INTO snapshot SELECT slot || 'x', sequence, time_ms, type, tenant, key,"
    " payload, checksum FROM snapshot LIMIT 1",
    "header": "UPDATE header SET term = term + 1",
    "counters": "UPDATE header SET next_lease_id = '1'",
}


@pytest.mark.usefixtures("small_log")
@pytest.mark.parametrize("sql", SNAPSHOT_DAMAGE.values(), ids=SNAPSHOT_DAMAGE.keys())
def test_changed_snapshot_is_refused(tmp_path: Path, sql: str) -> None:
    filled(tmp_path)
    run(sql, tmp_path)
    refusal(tmp_path)
    with pytest.raises(StateDirectoryError), read_state(tmp_path):
        pass
    assert not verify_log(tmp_path).ok


DIRECTORY_DAMAGE = {
    "group-lost": "DELETE FROM object_group",
    "group-renamed": "UPDATE object_group SET group_id = X'61'",
}


@pytest.mark.parametrize("sql", DIRECTORY_DAMAGE.values(), ids=DIRECTORY_DAMAGE.keys())
def test_lost_group_never_looks_like_one_without_members(tmp_path: Path, sql: str) -> None:
    filled(tmp_path)
    for trigger in ("group_added", "group_changed", "group_removed"):
        run(f"DROP TRIGGER {trigger}", tmp_path)
    run(sql, tmp_path)
    assert "DamagedDirectory" in refusal(tmp_path).why


MEMBER_DAMAGE = {
    "lost": "DELETE FROM object WHERE cast(key AS text) LIKE '%00007'",
    "size": "UPDATE object SET size_bytes = size_bytes + 1 WHERE cast(key AS text) LIKE '%00007'",
    "digest": "UPDATE object SET sha256 = zeroblob(32) WHERE cast(key AS text) LIKE '%00007'",
    "type": "UPDATE object SET data_type = 2 WHERE cast(key AS text) LIKE '%00007'",
}


@pytest.mark.parametrize("sql", MEMBER_DAMAGE.values(), ids=MEMBER_DAMAGE.keys())
def test_changed_member_is_never_shown(tmp_path: Path, sql: str) -> None:
    filled(tmp_path)
    run(sql, tmp_path)
    with pytest.raises(StateDirectoryError, match="DamagedDirectory"):
        reopened(tmp_path)


@pytest.mark.usefixtures("small_log")
def test_flipped_bit_anywhere_is_harmless_or_refused(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """Whatever bit of the file flips: the same state, or a refusal; never another state."""
    expected = filled(tmp_path / "whole")
    whole = (tmp_path / "whole" / DATABASE_NAME).read_bytes()
    members = reopened(tmp_path / "whole")[1]
    rng = random.Random(int(pytestconfig.option.hypothesis_seed))
    refused = 0
    for number in range(FLIPS):
        folder = tmp_path / str(number)
        folder.mkdir()
        place = rng.randrange(len(whole) * 8)
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << place % 8
        (folder / DATABASE_NAME).write_bytes(damaged)
        try:
            assert reopened(folder) == (expected, members), f"bit {place}"
        except StateDirectoryError:
            refused += 1
    assert refused > FLIPS // 4


@pytest.mark.usefixtures("small_log")
def test_flipped_bit_in_the_write_ahead_log_loses_nothing_silently(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """SQLite drops everything after a damaged frame without a word; the store must not."""
    snapshots: list[Snapshot] = []

    async def work() -> None:
        async with opened(tmp_path / "whole") as store:
            await fill(store)
            snapshots.append(await store.export_snapshot())
            await asyncio.to_thread(shutil.copytree, tmp_path / "whole", tmp_path / "killed")

    asyncio.run(work())
    log = (tmp_path / "killed" / WAL_NAME).read_bytes()
    rng = random.Random(int(pytestconfig.option.hypothesis_seed))
    for number in range(FLIPS // 3):
        folder = tmp_path / str(number)
        shutil.copytree(tmp_path / "killed", folder)
        (folder / f"{DATABASE_NAME}-shm").unlink()
        place = rng.randrange(len(log) * 8)
        damaged = bytearray(log)
        damaged[place // 8] ^= 1 << place % 8
        (folder / WAL_NAME).write_bytes(damaged)
        with suppress(StateDirectoryError):
            assert reopened(folder)[0] == snapshots[0], f"bit {place}"


def test_missing_write_ahead_log_is_noticed(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path / "whole") as store:
            await begin(store, ID)
            await asyncio.to_thread(shutil.copytree, tmp_path / "whole", tmp_path / "killed")

    asyncio.run(work())
    for name in (WAL_NAME, f"{DATABASE_NAME}-shm"):
        (tmp_path / "killed" / name).unlink()
    with pytest.raises(StateDirectoryError):
        reopened(tmp_path / "killed")


def test_older_copy_of_the_file_is_noticed_and_can_be_accepted(tmp_path: Path) -> None:
    filled(tmp_path)
    older = (tmp_path / DATABASE_NAME).read_bytes()

    async def more() -> None:
        async with opened(tmp_path) as store:
            await begin(store, ID)

    asyncio.run(more())
    (tmp_path / DATABASE_NAME).write_bytes(older)
    error = refusal(tmp_path)
    assert "LostEntries" in error.why
    (tmp_path / "acknowledged").unlink()  # what the error says
    reopened(tmp_path)


def truncated(folder: Path) -> None:
    path = folder / DATABASE_NAME
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2 // 4096 * 4096])


def foreign(folder: Path) -> None:
    (folder / DATABASE_NAME).write_bytes(b"not a database at all, but long enough to be read" * 99)


def other_program(folder: Path) -> None:
    (folder / DATABASE_NAME).unlink()
    run("CREATE TABLE theirs (x)", folder)


def newer(folder: Path) -> None:
    run("PRAGMA user_version = 2", folder)


FILES = {
    "truncated": (truncated, ""),
    "no-database": (foreign, ""),
    "other-program": (other_program, "ForeignFile"),
    "newer-version": (newer, "SchemaVersion: this program knows version 1 only"),
}


@pytest.mark.parametrize("spoil, why", FILES.values(), ids=FILES.keys())
def test_unusable_file_is_refused_and_left_alone(tmp_path: Path, spoil: "Spoil", why: str) -> None:
    filled(tmp_path)
    spoil(tmp_path)
    assert why in refusal(tmp_path).why


class Spoil:
    def __call__(self, folder: Path) -> None: ...


# --- full and read-only ---------------------------------------------------------------------------


async def limit_pages(store: WeightMetadataStore, extra: int) -> None:
    """Let the file grow by no more than `extra` pages; a large number lifts the limit."""

    def limit(connection: sqlite3.Connection) -> None:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages + extra}")

    await store._opened.writer.run(limit)


async def test_full_disk_is_a_clear_refusal_and_goes_away_with_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await published(store, ID)
        await limit_pages(store, 2)
        results = await asyncio.gather(
            *(begin(store, of) for of in many(200)), return_exceptions=True
        )
        failures = [result for result in results if isinstance(result, WeightError)]
        assert failures
        assert {failure.code for failure in failures} == {ErrorCode.DURABILITY_FAILED}
        assert "DiskFull" in failures[0].why
        assert "free space" in failures[0].todo
        assert store.healthy
        assert (await store.get(identity=ID)).metadata.metadata_generation == 2
        await limit_pages(store, 10_000)
        await asyncio.gather(*(begin(store, of) for of in many(200)))
        assert store.problem == ""
        kept = await store.export_snapshot()
    async with opened(tmp_path) as store:
        assert await store.export_snapshot() == kept


async def test_file_that_turns_read_only_is_a_clear_refusal(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await published(store, ID)
        await store._opened.writer.run(lambda connection: connection.execute("PRAGMA query_only=1"))
        with pytest.raises(WeightError, match="ReadOnly") as caught:
            await begin(store, identity("other"))
        assert caught.value.code is ErrorCode.DURABILITY_FAILED
        assert (await store.get(identity=ID)).metadata.metadata_generation == 2
        await store._opened.writer.run(lambda connection: connection.execute("PRAGMA query_only=0"))
        await begin(store, identity("other"))


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    folder = tmp_path / "mounted"
    folder.mkdir()
    if shutil.which("mount") is None or mount("-t", "tmpfs", "-o", "size=1m", "none", folder):
        cannot("this user may not mount a file system")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        mount_tool("umount", folder)


def mount(*arguments: object) -> int:
    return mount_tool("mount", *arguments)


def mount_tool(*command: object) -> int:
    return subprocess.run([str(part) for part in command], check=False).returncode


def test_really_full_file_system(mounted: Path) -> None:
    async def work() -> Snapshot:
        async with opened(mounted) as store:
            await published(store, ID)
            results = await asyncio.gather(
                *(begin(store, of) for of in many(6000)), return_exceptions=True
            )
            assert any("DiskFull" in str(result) for result in results)
            assert (await store.get(identity=ID)).metadata.metadata_generation == 2
            return await store.export_snapshot()

    kept = asyncio.run(work())
    with read_state(mounted) as stored:
        found = export_snapshot(stored.state)
        assert stored.problem == ""
    assert replace(found, next_lease_id=1, next_operation_id=1) == replace(
        kept, next_lease_id=1, next_operation_id=1
    )


def test_read_only_file_system_refuses_writing_and_allows_reading(mounted: Path) -> None:
    async def work() -> None:
        async with opened(mounted) as store:
            await published(store, ID)

    asyncio.run(work())
    assert mount("-o", "remount,ro", mounted) == 0
    try:
        with pytest.raises(StateDirectoryError, match="StateDirectory"):
            reopened(mounted)
        with read_state(mounted) as stored:
            assert stored.state.metadata[ID].metadata_generation == 2
            assert stored.problem == ""
    finally:
        mount("-o", "remount,rw", mounted)
