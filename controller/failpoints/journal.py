"""A journal whose every commit passes two failpoints.  Layer: failpoints; in the journal's thread.

`journal.KIND.before` is reached when all of a transaction is written and its COMMIT is about to
begin: what a kill leaves there is the state before.  `.after` is reached when the commit is on the
medium and nobody has heard of it: what a kill leaves there is the state after.  An error after it
is an `Uncertain` outcome, though the change is written.
"""

from __future__ import annotations

import sqlite3
from functools import partial
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar, cast

from weightctl.controller.store.commit import Uncertain
from weightctl.controller.store.connection import StoreConnection, connect

if TYPE_CHECKING:
    from collections.abc import Callable

    from weightctl.controller.failpoints.points import Failpoints

P = ParamSpec("P")
T = TypeVar("T")

KINDS = {
    "_load": "create",
    "_next_term": "term",
    "append": "append",
    "fold": "fold",
    "replace_all": "replace",
}
"""By the name of the function that does the transaction."""


async def connect_with(
    points: Failpoints, connector: Callable[[], sqlite3.Connection]
) -> StoreConnection:
    """As `connection.connect`, with failpoints around each commit."""
    return await connect(connector, partial(_Connection, points))


class _Connection(StoreConnection):
    def __init__(
        self, points: Failpoints, connector: Callable[[], sqlite3.Connection], chunk_rows: int
    ) -> None:
        super().__init__(connector, chunk_rows)
        self._points = points

    async def run(
        self,
        function: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        done = getattr(function, "func", function)
        kind = KINDS.get(done.__name__)
        if kind is None:
            return await super().run(function, *args, **kwargs)

        def watched(connection: sqlite3.Connection) -> T:
            committed = False

            def trace(statement: str) -> None:
                nonlocal committed
                if statement == "COMMIT":
                    committed = True
                    self._points.reach(f"journal.{kind}.before")

            connection.set_trace_callback(trace)
            try:
                outcome = function(connection, *args, **kwargs)
            finally:
                connection.set_trace_callback(None)
            if committed and self._points.reach(f"journal.{kind}.after"):
                return cast("T", Uncertain(why="Failpoint: an error was asked for"))
            return outcome

        return await super().run(watched)
