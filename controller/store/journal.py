"""The journal's writer: group commit, and what to believe after a failed one.  Layer: store.

Callers submit drafts; one task commits everything that has queued up in a single transaction, then
publishes the drafts in log order, so the in-memory state is at every moment what the log says.  A
draft that failed is never published.  When it cannot be known whether a commit reached the medium,
the journal is poisoned: it refuses every later draft until a restart, where the log decides.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from weightctl.controller.errors import ErrorCode, FencedError, WeightError
from weightctl.controller.store.commit import Commit, Committed, Rejected, Uncertain, append, fold
from weightctl.controller.store.database import column_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weightctl.controller.ports import Clock
    from weightctl.controller.store.commit import (
        EntryDraft,
        Files,
        Outcome,
        RowChange,
        Tail,
        Transaction,
    )
    from weightctl.controller.store.connection import StoreConnection

BATCH_DRAFTS_MAX = 1024
BATCH_BYTES_MAX = 16 * 1024 * 1024
LOG_ENTRIES_MAX = 8192
"""A longer log is folded into the snapshot after each commit, a part at a time."""


_RESTART = "restart: what is in the log then decides; query before trying again"


@dataclass(slots=True, kw_only=True, eq=False)
class Draft:
    """One mutation on its way: its entries and rows become durable together or not at all."""

    subject: object
    """Whose change it is; printed only in an error."""
    entries: Sequence[EntryDraft]
    publish: Callable[[], Any]
    """Makes it visible; called once, after it is durable, and its result goes to the caller."""
    settled: Callable[[], None]
    """Called once in every case: committed, refused or unknown."""
    changes: Sequence[RowChange] = ()
    alone: Transaction | None = None
    """A transaction of its own instead of entries and changes."""
    size_bytes: int = field(init=False)
    future: asyncio.Future[Any] = field(init=False)

    def __post_init__(self) -> None:
        self.size_bytes = sum(len(entry.payload) for entry in self.entries)
        self.future = asyncio.get_running_loop().create_future()


class Journal:
    """Owner of the writing connection; `run` must be running for a draft to settle."""

    def __init__(
        self,
        connection: StoreConnection,
        tail: Tail,
        *,
        clock: Clock,
        counters: Callable[[], tuple[int, int]],
        files: Files,
    ) -> None:
        self._connection = connection
        self._tail = tail
        self._clock = clock
        self._counters = counters
        self._files = files
        self._queue: deque[Draft] = deque()
        self._wake = asyncio.Event()
        self._closing = False
        self._poison = ""
        self._deposed: FencedError | None = None
        self.problem = ""
        """Why the last append failed, for people; empty after one that succeeded."""
        self.commits = 0
        """Transactions committed by this object."""

    @property
    def healthy(self) -> bool:
        """Whether mutations can succeed at all."""
        return not self._poison

    @property
    def last_sequence(self) -> int:
        """Sequence of the last durable entry."""
        return self._tail.last_sequence

    @property
    def folded_sequence(self) -> int:
        """Entries up to this one live in the snapshot."""
        return self._tail.header.folded_sequence

    def submit(self, draft: Draft) -> asyncio.Future[Any]:
        """Queue a draft.  Raises DURABILITY_FAILED at once when it cannot be taken.

        The future gives what `publish` returned, or DURABILITY_FAILED.  Cancelling it takes nothing
        back.
        """
        if self._poison:
            raise _failed(draft.subject, self._poison, _RESTART)
        if self._closing:
            raise _failed(draft.subject, "StoreClosed: the store is shutting down", "open it again")
        self._queue.append(draft)
        self._wake.set()
        return draft.future

    async def run(self) -> None:
        """Commit until `close`; ends early only poisoned.

        Raises FencedError when another process has opened the directory for writing since: this
        one must not go on acting on what it knows.
        """
        try:
            with anyio.CancelScope(shield=True):  # `close` ends it, after the last caller has left
                while await self._next():
                    await self._commit(self._take_batch())
        except Exception as error:  # noqa: BLE001 - callers must hear of it and never hang
            self._poisoned(f"WriterFailed: {type(error).__name__}: {error}")
        finally:
            if not self._poison and not (self._closing and not self._queue):
                self._poisoned("WriterEnded: the journal's writer was cancelled")
            self._refuse_queued()
        if self._deposed is not None:
            raise self._deposed

    def close(self) -> None:
        """Let `run` settle what is queued and end; no new draft is taken."""
        self._closing = True
        self._wake.set()

    async def _next(self) -> bool:
        while not self._queue and not self._poison:
            if self._closing:
                return False
            self._wake.clear()
            await self._wake.wait()
        return not self._poison

    def _take_batch(self) -> list[Draft]:
        batch: list[Draft] = []
        size = 0
        while self._queue and len(batch) < BATCH_DRAFTS_MAX and size < BATCH_BYTES_MAX:
            if self._queue[0].alone is not None and batch:
                break
            draft = self._queue.popleft()
            size += draft.size_bytes
            batch.append(draft)
            if draft.alone is not None:
                break
        return batch

    def _transaction_of(self, batch: Sequence[Draft]) -> Transaction:
        if batch[0].alone is not None:
            return batch[0].alone
        request = Commit(
            time_ms=column_time(self._clock),
            entries=[entry for draft in batch for entry in draft.entries],
            changes=[change for draft in batch for change in draft.changes],
        )
        return partial(append, request)

    async def _commit(self, batch: Sequence[Draft]) -> None:
        if self._poison:
            self._refuse(batch)
            return
        try:
            transaction = self._transaction_of(batch)
            outcome = await self._connection.run(transaction, self._tail, self._files)
        except BaseException as error:  # nobody knows what the thread has done
            self._poisoned(f"WriterFailed: {type(error).__name__}: {error}")
            self._refuse(batch, certain=False)
            raise
        if isinstance(outcome, Rejected) and outcome.by_content and len(batch) > 1:
            for draft in batch:  # one of them is at fault; the others must not fail with it
                await self._commit([draft])
            return
        self._settle(batch, outcome)
        if isinstance(outcome, Committed) and self.healthy:
            await self._fold_if_long()

    def _settle(self, batch: Sequence[Draft], outcome: Outcome) -> None:
        match outcome:
            case Committed(tail=tail):
                self._tail = tail
                self.commits += 1
                self.problem = ""
                self._publish(batch)
            case Rejected(why=why, todo=todo, deposed=deposed):
                self.problem = why
                self._refuse(batch, why, todo)
                if deposed:
                    self._poisoned(why)
                    self._deposed = FencedError("the journal", why, todo)
            case Uncertain(why=why):
                self._poisoned(why)
                self._refuse(batch, certain=False)

    def _publish(self, batch: Sequence[Draft]) -> None:
        for index, draft in enumerate(batch):
            try:
                result = draft.publish()
            except Exception as error:  # noqa: BLE001 - memory and log have parted
                self._poisoned(f"PublishFailed: {type(error).__name__}: {error}")
                self._refuse(batch[index:], certain=False)
                return
            draft.settled()
            if not draft.future.done():
                draft.future.set_result(result)

    def _refuse(
        self, batch: Sequence[Draft], why: str = "", todo: str = "", *, certain: bool = True
    ) -> None:
        if self._poison:
            why, todo = self._poison, _RESTART
        for draft in batch:
            draft.settled()
            if not draft.future.done():
                draft.future.set_exception(_failed(draft.subject, why, todo, certain=certain))

    def _refuse_queued(self) -> None:
        queued, self._queue = self._queue, deque()
        self._refuse(queued, "StoreClosed: the store is shutting down", "open it again")

    def _poisoned(self, why: str) -> None:
        self.problem = why
        self._poison = why

    async def _fold_if_long(self) -> None:
        """Move the oldest entries into the snapshot; a refused fold only leaves a longer log."""
        while self._tail.log_entries >= LOG_ENTRIES_MAX:
            transaction = partial(fold, self._counters())
            outcome = await self._connection.run(transaction, self._tail, self._files)
            self._settle((), outcome)
            if not isinstance(outcome, Committed):
                return


def _failed(subject: object, why: str, todo: str, *, certain: bool = True) -> WeightError:
    outcome = "was not written" if certain else "may or may not have been written"
    return WeightError(ErrorCode.DURABILITY_FAILED, f"a change of {subject} {outcome}", why, todo)
