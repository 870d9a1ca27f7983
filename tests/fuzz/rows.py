"""Rows of a database as an input: a JSON array of columns, bytes as {"b": latin-1 text}."""

import json
from collections.abc import Iterator, Sequence
from typing import Any


def columns(raw: bytes) -> list[Any]:
    """The columns; none where the input is no row."""
    try:
        row = json.loads(raw)
    except (ValueError, RecursionError):
        return []
    return list(map(_column, row)) if isinstance(row, list) else []


def spelled(row: Sequence[Any]) -> bytes:
    return json.dumps(
        [{"b": one.decode("latin-1")} if isinstance(one, bytes) else one for one in row],
        separators=(",", ":"),
    ).encode()


def _column(value: Any) -> Any:
    """SQLite knows integers of 64 bits, floats, texts, bytes and nothing."""
    if isinstance(value, dict):
        text = next((one for one in value.values() if isinstance(one, str)), "")
        return text.encode("latin-1", "replace")
    if isinstance(value, list):
        return None
    if isinstance(value, int):
        return (int(value) + 2**63) % 2**64 - 2**63
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return value


class Connection:
    """Answers every statement with the same rows."""

    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        self.rows = rows

    def execute(self, statement: str, parameters: object = ()) -> "Connection":
        return self

    def fetchone(self) -> tuple[Any, ...] | None:
        return self.rows[0] if self.rows else None

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self.rows

    def fetchmany(self, size: int) -> list[tuple[Any, ...]]:
        rows, self.rows = self.rows[:size], self.rows[size:]
        return rows

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.rows)
