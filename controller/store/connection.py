"""aiosqlite with one thread hop per transaction.  Layer: store.

aiosqlite gives each connection a thread of its own; every plain call costs two switches.  `run`
carries a whole function over in one go.  A connection must be closed explicitly: its thread would
outlive the loop.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

import aiosqlite
import anyio

P = ParamSpec("P")
T = TypeVar("T")

Connector = Callable[[], sqlite3.Connection]
Connect = Callable[[Connector], Awaitable["StoreConnection"]]
"""Opens a connection in a thread of its own."""

_CHUNK_ROWS = 256


class StoreConnection(aiosqlite.Connection):
    """A connection whose thread runs whole functions and never outlives a failed opening."""

    stopping: asyncio.Future[object] | None = None

    def stop(self) -> asyncio.Future[object] | None:
        """End the thread; keeps what tells when it has ended, which a failed opening drops."""
        self.stopping = super().stop()
        return self.stopping

    async def run(
        self,
        function: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """`function(connection, ...)` in the connection's thread.

        A cancelled caller leaves; the function still runs to its end.
        """
        carried = partial(function, self._conn, *args, **kwargs)
        result: T = await self._execute(carried)  # type: ignore[no-untyped-call]
        return result


async def connect(
    connector: Connector, kind: Callable[[Connector, int], StoreConnection] = StoreConnection
) -> StoreConnection:
    """Open with `connector` in the connection's own thread."""
    connection = kind(connector, _CHUNK_ROWS)
    try:
        await connection
    except BaseException:
        if connection.stopping is not None:
            with anyio.CancelScope(shield=True):
                await connection.stopping
        raise
    return connection
