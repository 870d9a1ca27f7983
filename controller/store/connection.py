"""aiosqlite with one thread hop per transaction.  Layer: store.

aiosqlite gives each connection a thread of its own; every plain call costs two switches.  `run`
carries a whole function over in one go.  A connection must be closed explicitly: its thread would
outlive the loop.
"""

from __future__ import annotations

import sqlite3
from functools import partial
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

import aiosqlite

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")

_CHUNK_ROWS = 256


class StoreConnection(aiosqlite.Connection):
    """A connection whose thread runs whole functions."""

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


async def connect(connector: Callable[[], sqlite3.Connection]) -> StoreConnection:
    """Open with `connector` in the connection's own thread."""
    connection = StoreConnection(connector, _CHUNK_ROWS)
    await connection
    return connection
