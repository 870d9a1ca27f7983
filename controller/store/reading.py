"""Reading a state directory from outside, beside whoever writes it.  Layer: store; synchronous.

For commands that only ask: no lock, no event loop, nothing is written. A damaged tail does not hide
what comes before it; `problem` says what is missing.
"""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from weightctl.controller.core.identity import DEFAULT_TENANT
from weightctl.controller.errors import StateDirectoryError, StateDirectoryMovedError
from weightctl.controller.store import watermark
from weightctl.controller.store.damage import by_group, read_damage
from weightctl.controller.store.database import (
    BAD_FILE,
    DATABASE_NAME,
    check_version,
    connect_reader,
)
from weightctl.controller.store.evidence import read_epochs, read_evidence
from weightctl.controller.store.loading import Loaded, load_state
from weightctl.controller.store.rows import all_groups, read_members

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from weightctl.controller.core.damage import DamagedReplica
    from weightctl.controller.core.identity import Identity
    from weightctl.controller.core.observation import Members
    from weightctl.controller.core.state import WeightState
    from weightctl.controller.store.damage import Damage
    from weightctl.controller.store.evidence import EvidenceRow

T = TypeVar("T")

_TRIES = 10
"""One is enough beside a writer that stays; each that comes and goes in between costs one."""


class StoredState:
    """One consistent look at a state directory; valid inside `read_state`'s `with` block."""

    def __init__(self, connection: sqlite3.Connection, loaded: Loaded, problem: str) -> None:
        self._connection = connection
        self._damage: dict[str, Damage] | None = None
        self.state: WeightState = loaded.state
        self.holder = loaded.header.store_id
        """The store's uuid."""
        self.term = loaded.header.term
        self.last_sequence = loaded.last_sequence
        self.folded_sequence = loaded.header.folded_sequence
        """Entries up to this one live in the snapshot only."""
        self.problem = problem
        """Why later entries could not be read, in three lines; empty when all is well."""

    def members(self, group_id: str, tenant_id: str = DEFAULT_TENANT) -> Members:
        """Members of a group in key order, empty for an unknown one.  Raises StateDirectoryError.

        A managed group is found whatever its tenant.
        """
        owner = self.state.groups.get(group_id)
        owning_tenant = tenant_id if owner is None else owner.tenant_id
        return read_members(self._connection, owning_tenant, group_id)

    def groups(self) -> list[str]:
        """Ids of all groups that have rows, whoever put them there."""
        return [group_id for _, _, group_id in all_groups(self._connection)]

    def evidence(self, identity: Identity) -> tuple[EvidenceRow, ...]:
        """The justified drops kept for a revision, oldest first.  Raises StateDirectoryError."""
        return read_evidence(self._connection, identity)

    def damage(self, group_id: str) -> tuple[DamagedReplica, ...]:
        """The damaged replicas of a group, oldest verdict first.  Raises StateDirectoryError."""
        if self._damage is None:
            self._damage = by_group(read_damage(self._connection))
        return tuple(self._damage.get(group_id, {}).values())

    def tier_epochs(self) -> dict[str, str]:
        """The last seen epoch by tier name."""
        return read_epochs(self._connection)


@contextmanager
def read_state(state_dir: str | os.PathLike[str]) -> Iterator[StoredState]:
    """Look at a state directory.  Raises StateDirectoryError when there is nothing to read."""
    with open_reader(Path(state_dir)) as (connection, path):
        loaded = load_state(connection, path)
        problem = "" if loaded.damage is None else str(loaded.damage)
        try:
            watermark.check(path.parent, loaded.header.store_id, loaded.last_sequence)
        except StateDirectoryError as error:
            problem = problem or str(error)
        yield StoredState(connection, loaded, problem)


@contextmanager
def open_reader(folder: Path) -> Iterator[tuple[sqlite3.Connection, Path]]:
    """A reading connection to the database of `folder`, and its path."""
    path = folder / DATABASE_NAME
    if not path.exists():
        raise StateDirectoryError(
            f"{folder} holds no state",
            f"NoState: there is no {DATABASE_NAME} in it",
            "name the state directory that weightctl runs with, or import a model first",
        )
    still = _stillness(path)
    connection = _connected(path, immutable=still is not None)
    try:
        yield connection, path
        _require_still(path, still)
    except (sqlite3.Error, StateDirectoryError) as error:
        _require_still(path, still)
        if isinstance(error, StateDirectoryError):
            raise
        raise _unreadable(path, error) from error
    finally:
        connection.close()


def unmoved(ask: Callable[[], T]) -> T:
    """What `ask` answers from a state directory that no writer began to change meanwhile.

    Asked again where one did: beside a writer reading is another one, which it cannot disturb.
    Raises what `ask` raises.
    """
    for _ in range(_TRIES):
        try:
            return ask()
        except StateDirectoryMovedError:
            continue
    return ask()


def _require_still(path: Path, still: tuple[int, int, int] | None) -> None:
    if still is not None and still != _stillness(path):
        raise StateDirectoryMovedError(
            f"{path} cannot be read now",
            "StateDirectory: a writer started while it was being read",
            "try again",
        )


def _connected(path: Path, *, immutable: bool) -> sqlite3.Connection:
    """A connection to a file of ours that holds a state."""
    try:
        connection = connect_reader(path, immutable=immutable)
        try:
            known = check_version(connection, path)
        except BaseException:
            connection.close()
            raise
    except BAD_FILE as error:
        raise _unreadable(path, error) from error
    if known:
        return connection
    connection.close()
    raise StateDirectoryError(
        f"{path} holds no state yet", "NoState: it is empty", "import a model first"
    )


def _stillness(path: Path) -> tuple[int, int, int] | None:
    """What tells one version of the file from the next; None while a write-ahead log is in use.

    Without a log the file alone is the whole state, and is read as it lies: SQLite's ordinary way
    would make index files beside it, and reading must leave nothing behind.
    """
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and log.stat().st_size:
        return None
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def _unreadable(path: Path, error: Exception) -> StateDirectoryError:
    return StateDirectoryError(
        f"{path} cannot be read",
        f"StateDirectory: {error} ({getattr(error, 'sqlite_errorname', type(error).__name__)})",
        "check permissions and the disk; from a damaged one restore a snapshot elsewhere",
    )
