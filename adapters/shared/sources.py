"""Where a store reads from: a source that fails in ways the loop knows.  Layer: adapters, shared.

A source is somebody else's code: another tier, or a reader that an embedding program made.
Invariant: whatever it raises on being opened or read comes out as a ReconcileError, so that each
tier gives that item an outcome of its own and the rest of the batch goes on.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from weightctl.adapters.shared.translate import error_from_os
from weightctl.controller.errors import (
    InvariantViolationError,
    ReconcileError,
    TerminalError,
    TransientError,
    UnknownOutcomeError,
    WeightctlError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from weightctl.controller.ports import RangedReader, StoreItem

_PASSING = (MemoryError, EOFError)
"""Foreign errors that may pass by themselves; another kind is a mistake that will not."""


class opened_source:  # noqa: N801 - used as the context manager that it is
    """The item's source, open: a context manager that gives a `SourceReader`."""

    def __init__(self, item: StoreItem) -> None:
        self._item = item
        self._what = f"the source of {item.member.key!r}"

    async def __aenter__(self) -> SourceReader:
        """Open it.  Raises ReconcileError."""
        with _translated(self._what):
            self._source = self._item.open_source()
            return SourceReader(await self._source.__aenter__(), self._what)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it.  The bytes are judged by their digest and not by how their source ended."""
        try:
            await self._source.__aexit__(kind, error, trace)
        except InvariantViolationError:
            raise
        except Exception:  # noqa: BLE001, S110 - what the body raised, or nothing, goes on
            pass


class SourceReader:
    """A ranged reader (ports.RangedReader) that raises ReconcileErrors only."""

    def __init__(self, reader: RangedReader, what: str) -> None:
        self._reader = reader
        self._what = what

    @property
    def size_bytes(self) -> int:
        """As the source says."""
        with _translated(self._what):
            return self._reader.size_bytes

    @property
    def instance_id(self) -> str:
        """As the source says."""
        with _translated(self._what):
            return self._reader.instance_id

    async def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill the buffer from byte `offset`.  Raises ReconcileError."""
        with _translated(self._what):
            await self._reader.read_into(offset, buffer)

    def fileno(self) -> int | None:
        """As the source says."""
        with _translated(self._what):
            return self._reader.fileno()


@contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        translated = source_error(error, what)
        if translated is error:
            raise
        raise translated from error


def source_error(error: Exception, what: str) -> WeightctlError:
    """What the loop is to make of an error that a source raised.

    A ReconcileError stays what it is, but for one: of a read, a lost answer leaves nothing behind,
    so it may simply be tried again.  A broken invariant stays, too: it ends the process.  Of a
    group the first error counts.
    """
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, UnknownOutcomeError):
        return TransientError(error.what, error.why, error.todo)
    if isinstance(error, (ReconcileError, InvariantViolationError)):
        return error
    if isinstance(error, OSError):
        return error_from_os(error, what)
    if isinstance(error, WeightctlError):
        return TerminalError(error.what, error.why, error.todo)
    why = f"it raised {type(error).__name__}: {error}"
    if isinstance(error, _PASSING):
        return TransientError(what, why, "it is tried again")
    return TerminalError(what, why, "mend the source, then store it again")
