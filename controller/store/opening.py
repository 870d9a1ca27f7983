"""Opening a state directory for writing, and closing it again.  Layer: store.

In order: the directory's lock, the database with its version check, the load of snapshot and log,
the comparison with what was acknowledged, and only then the first write: the term grows. Nothing is
written into a directory that is not wholly understood.
"""

from __future__ import annotations

import sqlite3
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from weightctl.controller.errors import ErrorCode, StateDirectoryError, WeightError
from weightctl.controller.store import watermark
from weightctl.controller.store.commit import Files, Tail
from weightctl.controller.store.connection import Connect, StoreConnection, connect
from weightctl.controller.store.damage import SQL as DAMAGE
from weightctl.controller.store.damage import Damage, read_damage
from weightctl.controller.store.database import (
    BAD_FILE,
    DATABASE_NAME,
    Header,
    check_version,
    column_time,
    connect_reader,
    connect_writer,
    create,
    write_header,
)
from weightctl.controller.store.evidence import read_epochs
from weightctl.controller.store.loading import Loaded, load_state
from weightctl.controller.store.lock import DirectoryLock
from weightctl.controller.store.rows import check_directory
from weightctl.controller.store.terms import read_past, record

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable
    from pathlib import Path

    from weightctl.controller.core.state import WeightState
    from weightctl.controller.ports import Clock, Entropy

_STORE_ID_BYTES = 16
_STEP_DIGITS = 6
"""Hexadecimal digits of chance by which the term grows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenDirectory:
    """A state directory that this process may write."""

    writer: StoreConnection
    reader: StoreConnection
    files: Files
    tail: Tail
    past_terms: tuple[int, ...]
    """Of earlier starts, ascending."""
    state: WeightState
    last_group_number: int
    """Highest number of an object group."""
    tier_epochs: dict[str, str]
    damage: Damage


_NOT_WRITTEN = (
    "SQLITE_FULL",
    "SQLITE_IOERR_WRITE",
    "SQLITE_IOERR_FSYNC",
    "SQLITE_IOERR_DIR_FSYNC",
    "SQLITE_IOERR_TRUNCATE",
    "SQLITE_IOERR_SHMSIZE",
)


@asynccontextmanager
async def open_directory(
    folder: Path,
    *,
    clock: Clock,
    entropy: Entropy,
    connect: Connect = connect,
    term_above: int = 0,
) -> AsyncIterator[OpenDirectory]:
    """Lock, load and open `folder`; releases everything in every case.

    The new term is above the last one of the folder and above `term_above`, by chance how far: so
    each copy of the folder gets one of its own, also where all start from the same.

    Raises StateDirectoryHeldError, StateDirectoryError; DURABILITY_FAILED where it has no room.
    """
    async with AsyncExitStack() as stack:
        lock = DirectoryLock(folder)
        stack.push_async_callback(to_thread.run_sync, lock.release)
        await to_thread.run_sync(lock.acquire, clock.wall_ms())
        path = folder / DATABASE_NAME
        drawn = entropy.token(_STORE_ID_BYTES)
        fresh = Header(store_id=drawn, term=0, created_ms=column_time(clock))
        writer = await _connected(stack, connect(partial(_open_writer, path)))
        loaded = await writer.run(_load, path, fresh)
        files = await to_thread.run_sync(_open_files, path, loaded)
        stack.push_async_callback(to_thread.run_sync, files.watermark.close)
        step = 1 + int(drawn[-_STEP_DIGITS:], 16)
        header = await writer.run(_next_term, path, loaded.header, term_above, step)
        past_terms = await writer.run(read_past, header.term)
        reader = await _connected(stack, connect(partial(_open_reader, path)))
        yield OpenDirectory(
            writer=writer,
            reader=reader,
            files=files,
            tail=Tail(header=header, last_sequence=loaded.last_sequence),
            past_terms=past_terms,
            state=loaded.state,
            last_group_number=loaded.last_group_number,
            tier_epochs=loaded.tier_epochs,
            damage=loaded.damaged_replicas,
        )


async def _connected(
    stack: AsyncExitStack, connecting: Awaitable[StoreConnection]
) -> StoreConnection:
    connection = await connecting
    stack.push_async_callback(_close, connection)
    return connection


async def _close(connection: StoreConnection) -> None:
    with anyio.CancelScope(shield=True):  # an unclosed connection's thread outlives the loop
        await connection.close()


def _open_writer(path: Path) -> sqlite3.Connection:
    try:
        return connect_writer(path)
    except BAD_FILE as error:
        raise _unopenable(path, error) from error


def _open_reader(path: Path) -> sqlite3.Connection:
    try:
        return connect_reader(path)
    except BAD_FILE as error:
        raise _unopenable(path, error) from error


def _load(connection: sqlite3.Connection, path: Path, fresh: Header) -> Loaded:
    try:
        if not check_version(connection, path):
            create(connection, fresh)
        loaded = load_state(connection, path)
        loaded.last_group_number = check_directory(connection, path)
        loaded.tier_epochs = read_epochs(connection)
        loaded.damaged_replicas = read_damage(connection)
    except BAD_FILE as error:
        raise _unopenable(path, error) from error
    if loaded.damage is not None:
        raise loaded.damage
    watermark.check(path.parent, loaded.header.store_id, loaded.last_sequence)
    return loaded


def _open_files(path: Path, loaded: Loaded) -> Files:
    try:
        kept = watermark.Watermark(path.parent, loaded.header.store_id)
    except OSError as error:
        raise _unopenable(path, error) from error
    return Files(database=path, watermark=kept)


def _next_term(
    connection: sqlite3.Connection, path: Path, header: Header, term_above: int, step: int = 1
) -> Header:
    following = replace(header, term=max(header.term, term_above) + step)
    try:
        connection.execute("BEGIN IMMEDIATE")
        write_header(connection, following)
        record(connection, header.term, term_above, following.term)
        connection.execute(DAMAGE["create"])  # directories of the first days have no such table
        connection.execute("COMMIT")
    except BAD_FILE as error:
        raise _unopenable(path, error) from error
    return following


def _unopenable(path: Path, error: Exception) -> StateDirectoryError | WeightError:
    """A medium without room refuses a change, though the files of the directory are good."""
    if getattr(error, "sqlite_errorname", "") in _NOT_WRITTEN:
        return WeightError(
            ErrorCode.DURABILITY_FAILED,
            f"the journal {path} cannot be written",
            f"NotWritten: {error} ({getattr(error, 'sqlite_errorname', '')})",
            "free space on its file system, then try again; nothing was changed",
        )
    return StateDirectoryError(
        f"the journal {path} cannot be opened for writing",
        f"StateDirectory: {error} ({getattr(error, 'sqlite_errorname', type(error).__name__)})",
        "check free space, permissions and the disk; commands that only ask may still work",
    )
