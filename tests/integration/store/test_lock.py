"""One writer per state directory, decided by the kernel and not by what a file says."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from anyio import to_thread

from tests.support.stores import begin, opened
from tests.support.weights import ID
from weightctl.controller.core.records import Availability
from weightctl.controller.errors import (
    ErrorCode,
    FencedError,
    StateDirectoryError,
    StateDirectoryHeldError,
    StateDirectoryMovedError,
    WeightError,
)
from weightctl.controller.store.database import (
    DATABASE_NAME,
    connect_writer,
    read_header,
    write_header,
)
from weightctl.controller.store.lock import LOCK_NAME, DirectoryLock
from weightctl.controller.store.reading import open_reader, read_state, unmoved

ROOT = Path(__file__).resolve().parents[3]
HOLD = """
import os, sys
from pathlib import Path
from weightctl.controller.store.lock import DirectoryLock
DirectoryLock(Path(sys.argv[1])).acquire(1)
if sys.argv[2:]:
    if os.fork() == 0:  # a worker that outlives its parent
        os.close(1)
        os.read(0, 1)
        os._exit(0)
print(os.getpid(), flush=True)
sys.stdin.read()
"""


@contextmanager
def holder(folder: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    """A real process that holds the directory until the block ends."""
    command = (sys.executable, "-c", HOLD, str(folder), *more)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / ".devroot")}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) == process.pid
        try:
            yield process
        finally:
            process.kill()


def test_second_process_is_refused_with_the_holder_s_pid(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        with pytest.raises(StateDirectoryHeldError) as caught:
            DirectoryLock(tmp_path).acquire(1)
        error = caught.value
        assert error.pid == process.pid
        assert str(process.pid) in error.todo
        assert str(tmp_path) in error.what


def test_refusal_costs_the_holder_nothing(tmp_path: Path) -> None:
    with holder(tmp_path):
        for _ in range(3):
            with pytest.raises(StateDirectoryHeldError):
                DirectoryLock(tmp_path).acquire(1)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_dead_holder_s_lock_is_taken_over(tmp_path: Path, how: signal.Signals) -> None:
    with holder(tmp_path) as process:
        process.send_signal(how)
        process.wait()
        lock = DirectoryLock(tmp_path).acquire(1)
        assert json.loads((tmp_path / LOCK_NAME).read_text())["pid"] == os.getpid()
        lock.release()


def test_stopped_holder_still_holds(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(StateDirectoryHeldError):
            DirectoryLock(tmp_path).acquire(1)
        process.send_signal(signal.SIGCONT)


def test_worker_that_outlives_its_killed_parent_holds_nothing(tmp_path: Path) -> None:
    with holder(tmp_path, "with-worker") as process:
        process.kill()
        process.wait()
        DirectoryLock(tmp_path).acquire(1).release()


@pytest.mark.parametrize("text", ["", "{", '{"pid": 1}', '{"pid": "x"}', "\0" * 9000], ids=range(5))
def test_text_of_a_dead_holder_means_nothing(tmp_path: Path, text: str) -> None:
    """Pid 1 lives, as a recycled pid may: only the kernel's lock counts."""
    (tmp_path / LOCK_NAME).write_text(text)
    DirectoryLock(tmp_path).acquire(1).release()


def test_replaced_lock_file_does_not_let_two_in(tmp_path: Path) -> None:
    """Whoever removes the file of a living holder gets a new one; so each checks its own file."""
    (tmp_path / LOCK_NAME).write_text("old")
    lock = DirectoryLock(tmp_path).acquire(1)
    assert (tmp_path / LOCK_NAME).stat().st_ino == os.fstat(lock._fd).st_ino
    lock.release()


async def test_second_opening_in_one_process_is_refused_and_leaves_the_first(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as store:
        with pytest.raises(StateDirectoryHeldError) as caught:
            async with opened(tmp_path / "." / "x" / ".."):
                pass
        assert caught.value.pid == os.getpid()
        await begin(store, ID)
        term = store.term
    async with opened(tmp_path) as store:
        assert store.term == 2 * term, "the chance is the same, and nobody has opened in between"


def test_reading_needs_no_lock(tmp_path: Path) -> None:
    async def fill() -> None:
        async with opened(tmp_path) as store:
            await begin(store, ID)

    asyncio.run(fill())
    with holder(tmp_path), read_state(tmp_path) as stored:
        assert ID in stored.state.metadata


def test_what_a_writer_begins_to_change_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    asked = []

    async def fill() -> None:
        async with opened(tmp_path) as store:
            await begin(store, ID)

    asyncio.run(fill())

    def term() -> int:
        with open_reader(tmp_path) as (connection, path):
            asked.append(path)
            if len(asked) == 1:
                open_elsewhere(tmp_path)
            return read_header(connection, path).term

    with read_state(tmp_path) as stored:
        first = stored.term
    assert unmoved(term) > first
    assert len(asked) == 2
    asked.clear()
    with pytest.raises(StateDirectoryMovedError, match="try again"):
        term()


def test_directory_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StateDirectoryError, match="ENOTDIR"):
        DirectoryLock(tmp_path / "file" / "state").acquire(1)


def open_elsewhere(folder: Path) -> None:
    """As another process would, which found the lock's file gone and made a new one."""
    path = folder / DATABASE_NAME
    connection = connect_writer(path)
    header = read_header(connection, path)
    connection.execute("BEGIN IMMEDIATE")
    write_header(connection, replace(header, term=header.term + 1))
    connection.execute("COMMIT")
    connection.close()


def availability(folder: Path) -> Availability:
    with read_state(folder) as stored:
        return stored.state.metadata[ID].availability


async def test_a_process_whose_lock_was_taken_away_commits_nothing_and_ends(tmp_path: Path) -> None:
    async def use() -> None:
        async with opened(tmp_path) as store:
            await begin(store, ID)
            await to_thread.run_sync(open_elsewhere, tmp_path)
            with pytest.raises(WeightError) as caught:
                await store.abort_import(identity=ID, expected_metadata_generation=1)
            assert caught.value.code is ErrorCode.DURABILITY_FAILED
            assert "was not written" in caught.value.what
            assert not store.healthy
            await asyncio.sleep(60)

    with pytest.raises(FencedError, match=r"term \d+ has opened the state directory"):
        await use()
    assert await to_thread.run_sync(availability, tmp_path) is Availability.IMPORTING
