"""Which terms were this directory's own.  Layer: store; blocking calls.

A copy of the directory draws others from where it was made on, so that its terms are told from
these whatever their order, and however often it is started.  Invariant: a term is here before
anything is done for it.  Bounded: of the longest past only the order is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weightctl.controller.store.statements import load

if TYPE_CHECKING:
    import sqlite3

_SQL = load("terms")
ROWS_MAX = 256


def record(connection: sqlite3.Connection, former: int, term_above: int, term: int) -> None:
    """Within a transaction: the next start's term, after that of the start before, 0 for none.

    term_above: all terms up to this are past, whose ever they were.
    """
    connection.execute(_SQL["create"])  # directories of the first days have no such table
    connection.executemany(_SQL["record"], [(of,) for of in (former, term_above, term) if of])
    connection.execute(_SQL["forget_below"], (term_above,))
    connection.execute(_SQL["trim"], (ROWS_MAX,))


def read_past(connection: sqlite3.Connection, term: int) -> tuple[int, ...]:
    """The terms before this one, ascending."""
    return tuple(of for (of,) in connection.execute(_SQL["read"], (term,)))
