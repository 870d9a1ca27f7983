"""How every mutation goes: prepare, check, gate, append, publish.  Layer: store.

Owns the in-memory state, the per-revision locks and the journal. A revision's lock is held from
before Prepare until its draft has settled, so no other mutation of it prepares against a record
that is about to change. Publishing happens in the journal's task, in log order, right after the
commit.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from weightctl.controller.core.identity import Identity
from weightctl.controller.core.leases import apply_lease, check_lease, prepare_expire
from weightctl.controller.core.lifecycle import apply_metadata, check_metadata
from weightctl.controller.core.mutations import (
    LeaseMutation,
    MetadataMutation,
    OperationMutation,
)
from weightctl.controller.core.operations import apply_operation, check_operation
from weightctl.controller.core.oplog import emitted, identity_of
from weightctl.controller.core.records import ResidencyOperation, RevisionLease, RevisionMetadata
from weightctl.controller.store.entries import entry_of
from weightctl.controller.store.journal import Draft, Journal
from weightctl.controller.store.locks import KeyedLocks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Sequence

    from weightctl.controller.core.oplog import Payload
    from weightctl.controller.core.state import WeightState
    from weightctl.controller.ports import Clock
    from weightctl.controller.store.commit import RowChange, Transaction
    from weightctl.controller.store.gate import CapabilityGate
    from weightctl.controller.store.opening import OpenDirectory

M = TypeVar("M", MetadataMutation, LeaseMutation, OperationMutation)
R = TypeVar("R")

log = logging.getLogger("weightctl.store")


@dataclass(frozen=True, slots=True)
class Family(Generic[M, R]):
    """The two halves of Publish for one kind of mutation."""

    check: Callable[[WeightState, M], object]
    apply: Callable[[WeightState, M], R]


METADATA: Family[MetadataMutation, RevisionMetadata | None] = Family(check_metadata, apply_metadata)
LEASE: Family[LeaseMutation, RevisionLease] = Family(check_lease, apply_lease)
OPERATION: Family[OperationMutation, ResidencyOperation] = Family(check_operation, apply_operation)


def _nothing() -> None:
    """For rows that nobody waits for beside the caller."""


class Engine:
    """The one way from a request to a durable, visible change."""

    def __init__(self, opened: OpenDirectory, *, clock: Clock, gate: CapabilityGate) -> None:
        self.state = opened.state
        self.clock = clock
        self.locks = KeyedLocks()
        """By revision, outermost."""
        self.object_locks = KeyedLocks()
        """By group, for the object tables; taken inside a revision's lock, never around one."""
        self.journal = Journal(
            opened.writer, opened.tail, clock=clock, files=opened.files, counters=self._counters
        )
        self._gate = gate
        self._subscribers: dict[int, Callable[[Identity], None]] = {}
        self._subscriptions = 0

    def subscribe(self, callback: Callable[[Identity], None]) -> Callable[[], None]:
        """Call `callback` after each publication; a hint, so its own failure is only logged."""
        self._subscriptions += 1
        number = self._subscriptions
        self._subscribers[number] = callback
        return lambda: self._subscribers.pop(number, None) and None

    def announce(self, identity: Identity) -> None:
        """Tell every subscriber that the revision changed."""
        for callback in tuple(self._subscribers.values()):
            try:
                callback(identity)
            except Exception:
                log.exception("a subscriber failed on revision %s", identity)

    async def mutate(
        self,
        key: Hashable,
        prepare: Callable[..., M],
        family: Family[M, R],
        changes: Sequence[RowChange] = (),
    ) -> R:
        """Run one mutation; `prepare(state, now_ms=)` decides it while the lock is held.

        `key` is the revision's identity, or any stand-in that no revision has where none is known.
        Raises WeightError.  A cancelled caller leaves without knowing the outcome.
        """
        await self.locks.acquire(key)
        try:
            mutation = prepare(self.state, now_ms=self.clock.wall_ms())
            family.check(self.state, mutation)
            if mutation.no_op:
                result = family.apply(self.state, mutation)
                self.locks.release(key)
                return result
            future = self.enqueue(key, mutation, family, changes)
        except BaseException:
            self.locks.release(key)
            raise
        settled: R = await future
        return settled

    def enqueue(
        self,
        key: Hashable,
        mutation: M,
        family: Family[M, R],
        changes: Sequence[RowChange] = (),
    ) -> asyncio.Future[Any]:
        """Gate a checked mutation and hand it to the journal, which then owns the lock of `key`."""
        payloads = emitted(mutation)
        identity = identity_of(payloads[-1])

        def publish() -> R:
            result = family.apply(self.state, mutation)
            self.announce(identity)
            return result

        return self._submit(key, identity, payloads, publish, changes)

    def append_rows(
        self,
        subject: object,
        changes: Sequence[RowChange],
        *,
        payloads: Sequence[Payload] = (),
        publish: Callable[[], Any] = _nothing,
        settled: Callable[[], None] = _nothing,
    ) -> asyncio.Future[Any]:
        """Change rows that are no part of the op-log, with the entries that go with them.

        Durable when the future is done.
        """
        return self.journal.submit(
            Draft(
                subject=subject,
                entries=[entry_of(payload) for payload in payloads],
                changes=changes,
                publish=publish,
                settled=settled,
            )
        )

    async def change_objects(
        self,
        group: tuple[str, str],
        plan: Callable[[], Awaitable[Sequence[RowChange]]],
        *,
        payloads: Sequence[Payload] = (),
        publish: Callable[[], Any] = _nothing,
        ended: Callable[[], None] = _nothing,
    ) -> bool:
        """Make planned changes of a (tenant, group id) durable; False when there is nothing to do.

        The group is held from before `plan` looks until the change is settled; `ended` is called
        then, once, in every case.  `payloads` go into the op-log in the same transaction; they pass
        the gate, and the caller holds their revision.
        """
        try:
            await self.object_locks.acquire(group)
        except BaseException:
            ended()
            raise

        def settled() -> None:
            self.object_locks.release(group)
            ended()

        try:
            changes = await plan()
            if not changes and not payloads:
                settled()
                return False
            subject = f"group {group[1]!r}"
            if payloads:
                self._gate.admit(subject)
            future = self.append_rows(
                subject, changes, payloads=payloads, publish=publish, settled=settled
            )
        except BaseException:
            settled()
            raise
        await future
        return True

    async def close_all(self) -> None:
        """Keep every mutation and object change out until `reopen_all`."""
        await self.locks.close()
        try:
            await self.object_locks.close()
        except BaseException:
            self.locks.reopen()
            raise

    def reopen_all(self) -> None:
        """End what `close_all` began."""
        self.object_locks.reopen()
        self.locks.reopen()

    def replace(self, state: WeightState, transaction: Transaction) -> asyncio.Future[Any]:
        """Gate another state, make it durable and visible; ends `close_all` when it is settled.

        Raises WeightError while the gate is closed; the caller then still holds everything.
        """
        subject = "the whole state"
        self._gate.admit(subject)

        def publish() -> None:
            self.state = state

        return self.journal.submit(
            Draft(
                subject=subject,
                entries=(),
                publish=publish,
                settled=self.reopen_all,
                alone=transaction,
            )
        )

    async def expire(self, identity: Identity | None) -> tuple[RevisionLease, ...]:
        """Erase the dead leases of one revision or of all, by ascending id.

        Each revision's leases are judged again under its lock, where a renewal that came first
        wins; all of them share commits.  Raises WeightError; what was durable by then is erased.
        """
        found = prepare_expire(self.state, identity=identity, now_ms=self.clock.wall_ms())
        owners = {mutation.previous.identity for mutation in found if mutation.previous}
        futures: list[asyncio.Future[Any]] = []
        try:
            for owner in sorted(owners, key=Identity.sort_key):
                futures += await self._enqueue_expiry(owner)
        finally:
            settled = await asyncio.gather(*futures, return_exceptions=True)
        erased: list[RevisionLease] = []
        for result in settled:
            if isinstance(result, BaseException):
                raise result
            erased += result
        return tuple(sorted(erased, key=lambda lease: lease.lease_id))

    async def _enqueue_expiry(self, owner: Identity) -> list[asyncio.Future[Any]]:
        await self.locks.acquire(owner)
        try:
            now_ms = self.clock.wall_ms()
            mutations = prepare_expire(self.state, identity=owner, now_ms=now_ms)
            for mutation in mutations:
                check_lease(self.state, mutation)
            if mutations:
                payloads = [payload for mutation in mutations for payload in emitted(mutation)]

                def publish() -> list[RevisionLease]:
                    erased = [apply_lease(self.state, mutation) for mutation in mutations]
                    self.announce(owner)
                    return erased

                return [self._submit(owner, owner, payloads, publish)]
        except BaseException:
            self.locks.release(owner)
            raise
        self.locks.release(owner)
        return []

    def _submit(
        self,
        key: Hashable,
        identity: Identity,
        payloads: Sequence[Payload],
        publish: Callable[[], Any],
        changes: Sequence[RowChange] = (),
    ) -> asyncio.Future[Any]:
        self._gate.admit(identity)
        draft = Draft(
            subject=identity,
            entries=[entry_of(payload) for payload in payloads],
            changes=changes,
            publish=publish,
            settled=lambda: self.locks.release(key),
        )
        return self.journal.submit(draft)

    def _counters(self) -> tuple[int, int]:
        return self.state.next_lease_id, self.state.next_operation_id
