"""The state directory of a simulated process: real SQL in memory, no file, no thread.

The seam is the connection: `SimConnection` stands for the store's `StoreConnection` and runs each
whole transaction in one step, so a process that dies before that step has lost it and one that
dies after it has it. Everything above (journal, engine, loading, term, watermark) is the product's.
"""

import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self, TypeVar
from unittest.mock import patch

from weightctl.adapters.conformance.simulation.loop import off_loop
from weightctl.controller.errors import StateDirectoryError
from weightctl.controller.ports import Clock, Entropy
from weightctl.controller.store import opening
from weightctl.controller.store.commit import Committed, Files, Rejected, Uncertain, append, fold
from weightctl.controller.store.evidence import EvidenceRow, read_epochs, read_evidence
from weightctl.controller.store.gate import CapabilityGate
from weightctl.controller.store.loading import StoredEntry, read_log
from weightctl.controller.store.store import WeightMetadataStore

T = TypeVar("T")

FOLDER = Path("/simulated")


class Disk:
    """What survives every process: the database, and the last acknowledged sequence."""

    def __init__(self) -> None:
        with off_loop():
            self.connection = sqlite3.connect(":memory:", isolation_level=None)
        self.acknowledged = 0
        self.commits = 0
        self.changes = 0
        """Transactions that changed rows of any table, whether or not the log has grown."""
        self.last_sequence = 0

    def advance(self, sequence: int) -> None:
        """As `Watermark.advance`."""
        self.acknowledged = max(self.acknowledged, sequence)

    def close(self) -> None:
        """As `Watermark.close`; what the disk holds stays."""

    def dispose(self) -> None:
        """The end of the simulation."""
        with off_loop():
            self.connection.close()

    def new_entries(self) -> list[StoredEntry]:
        """What the log has got since the last call, read back from the rows."""
        with off_loop():
            found = list(read_log(self.connection, self.last_sequence + 1))
        if found:
            self.last_sequence = found[-1].sequence
        return found

    def evidence(self, identity: Any) -> tuple[EvidenceRow, ...]:
        with off_loop():
            return read_evidence(self.connection, identity)

    def epochs(self) -> dict[str, str]:
        with off_loop():
            return read_epochs(self.connection)


class Hooks:
    """What a simulation does around a transaction; these defaults do nothing."""

    async def before(self, kind: str) -> Committed | Rejected | Uncertain | None:
        """Wait, raise, or give an outcome instead of carrying the transaction out."""
        del kind
        return None

    async def after(self, kind: str, outcome: object) -> object:
        """The outcome that the caller gets; the transaction has been carried out."""
        del kind
        return outcome


_KINDS: Mapping[object, str] = {append: "commit", fold: "fold"}
"""What a transaction is for; all others read."""


class SimConnection:
    """Stands for `StoreConnection`."""

    def __init__(self, disk: Disk, hooks: Hooks) -> None:
        self._disk = disk
        self.hooks = hooks

    async def run(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """`function(connection, ...)`, all of it at one moment."""
        kind = _KINDS.get(getattr(function, "func", function), "rows")
        instead = await self.hooks.before(kind)
        if instead is not None:
            return instead  # type: ignore[return-value]
        rows = self._disk.connection.total_changes
        with off_loop():
            result = function(self._disk.connection, *args, **kwargs)
        self._disk.changes += self._disk.connection.total_changes != rows
        if isinstance(result, Committed):
            self._disk.commits += 1
        return await self.hooks.after(kind, result)  # type: ignore[return-value]

    async def close(self) -> None:
        """The disk stays."""


class _NoLock:
    """One process at a time is the world's duty."""

    def __init__(self, folder: Path) -> None:
        del folder

    def acquire(self, started_ms: int) -> Self:
        del started_ms
        return self

    def release(self) -> None:
        """Nothing is held."""


class _Inline:
    """Stands for `anyio.to_thread`: there are no threads."""

    @staticmethod
    async def run_sync(function: Callable[..., T], *args: object) -> T:
        with off_loop():
            return function(*args)


@asynccontextmanager
async def open_store(
    disk: Disk,
    *,
    clock: Clock,
    entropy: Entropy,
    hooks: Hooks | None = None,
    gate: CapabilityGate | None = None,
) -> AsyncIterator[WeightMetadataStore]:
    """`WeightMetadataStore.open` on a simulated disk.

    What opening takes from the machine is exchanged until it has opened, which happens in one step.
    """
    connections: list[SimConnection] = []

    async def connect(connector: object) -> Any:
        del connector
        connections.append(SimConnection(disk, Hooks()))
        return connections[-1]

    def open_files(path: Path, loaded: Any) -> Files:
        if disk.acknowledged > loaded.last_sequence:
            raise StateDirectoryError("the simulated disk has lost acknowledged entries")
        watermark: Any = disk
        return Files(database=path, watermark=watermark)

    opening_store = WeightMetadataStore.open(
        FOLDER, clock=clock, entropy=entropy, gate=gate, connect=connect
    )
    with patch.multiple(opening, DirectoryLock=_NoLock, to_thread=_Inline, _open_files=open_files):
        store = await opening_store.__aenter__()
    for connection in connections:
        connection.hooks = hooks or Hooks()
    try:
        yield store
    except BaseException as error:
        if not await opening_store.__aexit__(type(error), error, error.__traceback__):
            raise
    else:
        await opening_store.__aexit__(None, None, None)
