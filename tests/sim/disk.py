"""The state directory of a simulated process: real SQL in memory, no file, no thread.

The seam is the connection: `SimConnection` stands for the store's `StoreConnection` and runs each
whole transaction in one step, so a process that dies before that step has lost it and one that
dies after it has it. Everything above (journal, engine, loading, term, watermark) is the product's.
"""

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio

from weightctl.controller.errors import StateDirectoryError
from weightctl.controller.ports import Clock, Entropy
from weightctl.controller.store import opening
from weightctl.controller.store.commit import Committed, Files, Rejected, Tail, Uncertain, append
from weightctl.controller.store.database import Header, column_time
from weightctl.controller.store.engine import Engine
from weightctl.controller.store.evidence import EvidenceRow, read_epochs, read_evidence
from weightctl.controller.store.gate import CapabilityGate
from weightctl.controller.store.loading import StoredEntry, read_log
from weightctl.controller.store.opening import OpenDirectory
from weightctl.controller.store.store import WeightMetadataStore

T = TypeVar("T")

PATH = Path("/simulated/weightctl.db")


class Disk:
    """What survives every process: the database, and the last acknowledged sequence."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        self.acknowledged = 0
        self.commits = 0
        self.last_sequence = 0

    def advance(self, sequence: int) -> None:
        """As `Watermark.advance`."""
        self.acknowledged = max(self.acknowledged, sequence)

    def close(self) -> None:
        self.connection.close()

    def new_entries(self) -> list[StoredEntry]:
        """What the log has got since the last call, read back from the rows."""
        found = list(read_log(self.connection, self.last_sequence + 1))
        if found:
            self.last_sequence = found[-1].sequence
        return found

    def evidence(self, identity: Any) -> tuple[EvidenceRow, ...]:
        return read_evidence(self.connection, identity)

    def epochs(self) -> dict[str, str]:
        return read_epochs(self.connection)


class Hooks:
    """What a simulation does around a transaction; these defaults do nothing."""

    async def before(self, kind: str) -> Committed | Rejected | Uncertain | None:
        """Wait, raise, or give an outcome instead of carrying the transaction out."""
        del kind
        await anyio.lowlevel.checkpoint()
        return None

    async def after(self, kind: str, outcome: object) -> object:
        """The outcome that the caller gets; the transaction has been carried out."""
        del kind
        await anyio.lowlevel.checkpoint()
        return outcome


class SimConnection:
    """Stands for `StoreConnection`."""

    def __init__(self, disk: Disk, hooks: Hooks) -> None:
        self._disk = disk
        self._hooks = hooks

    async def run(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """`function(connection, ...)`, all of it at one moment."""
        called = getattr(function, "func", function)
        kind = "commit" if called is append else called.__name__
        instead = await self._hooks.before(kind)
        if instead is not None:
            return instead  # type: ignore[return-value]
        result = function(self._disk.connection, *args, **kwargs)
        if isinstance(result, Committed):
            self._disk.commits += 1
        return await self._hooks.after(kind, result)  # type: ignore[return-value]


def _load(disk: Disk, hooks: Hooks, clock: Clock, entropy: Entropy) -> OpenDirectory:
    fresh = Header(store_id=entropy.token(16), term=0, created_ms=column_time(clock))
    loaded = opening._load(disk.connection, PATH, fresh)
    if disk.acknowledged > loaded.last_sequence:
        raise StateDirectoryError("the simulated disk has lost acknowledged entries")
    header = opening._next_term(disk.connection, PATH, loaded.header)
    connection: Any = SimConnection(disk, hooks)
    watermark: Any = disk
    return OpenDirectory(
        writer=connection,
        reader=connection,
        files=Files(database=PATH, watermark=watermark),
        tail=Tail(header=header, last_sequence=loaded.last_sequence),
        state=loaded.state,
        last_group_number=loaded.last_group_number,
        tier_epochs=loaded.tier_epochs,
    )


@asynccontextmanager
async def open_store(
    disk: Disk,
    *,
    clock: Clock,
    entropy: Entropy,
    hooks: Hooks | None = None,
    gate: CapabilityGate | None = None,
) -> AsyncIterator[WeightMetadataStore]:
    """As `WeightMetadataStore.open`, on a simulated disk."""
    opened = _load(disk, hooks or Hooks(), clock, entropy)
    engine = Engine(opened, clock=clock, gate=gate or CapabilityGate())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(engine.journal.run)
        try:
            yield WeightMetadataStore(opened, engine, clock=clock)
        finally:
            engine.journal.close()
