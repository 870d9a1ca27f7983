"""Bringing replicas in: put, promote, or wait for an offload.  Layer: a tier; on the loop.

One look decides for each item; puts go one after another, and what Mooncake makes by itself is
waited for together.  A key that another tier of this connection is putting is waited for, too: one
put makes both replicas.  Invariant: an object that was there before counts as the member only when
its digest is known, by our own put or by reading it.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from anyio import to_thread

from weightctl.adapters.mooncake.belated import Belated
from weightctl.adapters.mooncake.client.engine import Engine
from weightctl.adapters.mooncake.keys import problem_of
from weightctl.adapters.mooncake.master.replicas import (
    MEMORY,
    in_memory,
    is_absent,
    is_there,
    size_of,
    state_of,
)
from weightctl.adapters.mooncake.proof.cold import doubts, learn, note_sole
from weightctl.adapters.mooncake.proof.content import other_than, record
from weightctl.adapters.mooncake.putting import alone, bring
from weightctl.adapters.shared.translate import outcome_from_error
from weightctl.controller.core.observation import MemberState
from weightctl.controller.errors import ReconcileError
from weightctl.controller.ports import (
    PIECE_BYTES,
    Busy,
    Conflict,
    Done,
    NoOp,
    Outcome,
    Permanent,
    Retry,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from weightctl.adapters.mooncake.connection import Connection
    from weightctl.adapters.mooncake.master.replicas import Entry, ReplicaKind
    from weightctl.controller.core.observation import Member, Members
    from weightctl.controller.ports import Fence, Limiter, StoreItem

    InstanceOf = Callable[[str, Entry], str]

POLL_S = (0.05, 0.5)
"""Least and longest pause between two looks for a replica that Mooncake makes."""
POLL_SHARE = 0.1
"""Of the time waited so far: so late may be seen what came."""
TOUCH_S = 1.0
"""Pause between two requests to promote: one may be refused without a word."""


class Storing:
    """The stores of one tier, and which members it is writing."""

    def __init__(self, connection: Connection, kind: ReplicaKind, instance_of: InstanceOf) -> None:
        self._connection = connection
        self._kind = kind
        self._instance_of = instance_of
        self._writing: set[tuple[str, str]] = set()
        self._fresh: set[str] = set()
        """Keys that were put and not looked at since."""
        self._belated = Belated(connection, kind)

    def written(self, members: Members) -> list[int]:
        """Indexes of the members that this tier is writing."""
        keys = {key for group_id, key in self._writing if group_id == members.group_id}
        return [index for index, key in enumerate(members.keys) if key in keys] if keys else []

    def is_written(self, member: Member) -> bool:
        """Whether this tier is writing the member."""
        return (member.group_id, member.key) in self._writing

    async def store(
        self, batch: Sequence[StoreItem], fence: Fence, limit: Limiter | None
    ) -> list[Outcome]:
        """As ports.Tier.store."""
        outcomes: list[Outcome] = [Retry(detail="not tried")] * len(batch)
        try:
            await to_thread.run_sync(self._connection.book.admit, fence)
        except ReconcileError as error:
            return [outcome_from_error(error)] * len(batch)
        self._connection.reads.wanted_back(item.member.key for item in batch)
        await self._connection.clients.revoke_left()
        free = [index for index, item in enumerate(batch) if not self.is_written(item.member)]
        for index in set(range(len(batch))) - set(free):
            outcomes[index] = Busy(detail="it is being written by this process")
        with self.claimed([batch[index].member for index in free]):
            seen = await self._looked_at([batch[index].member for index in free])
            awaited = []
            for index in free:
                entry = seen.get(batch[index].member.key)
                outcome = await self._start(batch[index], entry, fence, limit)
                if outcome is None:
                    awaited.append(index)
                else:
                    outcomes[index] = outcome
            if awaited:
                members = [batch[index].member for index in awaited]
                for index, outcome in zip(awaited, await self._appear(members), strict=True):
                    outcomes[index] = outcome
        return outcomes

    async def recognise(self, member: Member) -> str | None:
        """Take an object whose bytes were just read right into the book; its instance after it."""
        row = self._connection.book.get(member.key)
        if row is not None and row.says(member.sha256):
            return None
        await record(self._connection, member)
        entries, _ = await self._connection.look.entries([member.key])
        entry = entries.get(member.key)
        return self._instance_of(member.key, entry) if entry is not None else None

    @contextmanager
    def claimed(self, members: Sequence[Member]) -> Iterator[None]:
        """This tier writes the members within the block."""
        claims = {(member.group_id, member.key) for member in members}
        self._writing |= claims
        try:
            yield
        finally:
            self._writing -= claims

    # --- one item ---

    async def _looked_at(self, members: Sequence[Member]) -> Mapping[str, Entry]:
        """By one look, the objects of which Mooncake has to make a replica of this kind.

        Each is looked at again while it is waited for; every other one is, before it is judged.
        """
        asked = {one.key: one for one in members if not problem_of(one.key, one.size_bytes)}
        with suppress(ReconcileError):
            entries, _ = await self._connection.look.entries(list(asked))
            return {
                key: entry
                for key, one in asked.items()
                if (entry := entries.get(key)) is not None
                and is_there(entry)
                and state_of(entry, self._kind, one.size_bytes) is MemberState.ABSENT
            }
        return {}

    async def _start(
        self, item: StoreItem, entry: Entry | None, fence: Fence, limit: Limiter | None
    ) -> Outcome | None:
        """The outcome, or None when the replica will appear by itself.

        entry: what lies under the key; None to look once nobody else is putting it.
        """
        member = item.member
        problem = problem_of(member.key, member.size_bytes)
        if problem:
            return Permanent(detail=f"Mooncake cannot keep it: {problem}")
        try:
            if entry is None or self._is_only_a_file(entry):
                async with alone(self._connection, member.key):
                    entries, _ = await self._connection.look.entries([member.key])
                    entry = entries.get(member.key)
                    if is_absent(entry):
                        return await self._put(item, fence, limit)
                    if self._is_only_a_file(entry):
                        return await self._put(item, fence, limit, over=True)
            if not is_there(entry) or entry is None:
                return Busy(detail="it is being written")
            refused = await self.other_content(member, entry)
            if refused is not None:
                return refused
            state = self._connection.segments.state_of(entry, self._kind, member.size_bytes)
            if state is MemberState.COMPLETE and (
                self._kind.hot or not await doubts(self._connection, [member], {member.key: entry})
            ):
                return NoOp(instance_id=self._instance_of(member.key, entry))
            if self._belated.is_due(member, entry, fence):
                async with alone(self._connection, member.key):
                    left = await self._belated.take_back(item, fence)
                    return left or await self._put(item, fence, limit)
            await _charge(limit, member.size_bytes)
        except (ReconcileError, OSError) as error:
            return outcome_from_error(error, expected_sha256=member.sha256)
        return None

    def _is_only_a_file(self, entry: Entry | None) -> bool:
        """Whether it is wanted in memory and nothing is left that Mooncake could promote."""
        if not self._kind.hot or self._connection.disk is None or entry is None:
            return False
        return bool(entry.disk) and not (entry.memory or entry.local_disk)

    async def other_content(self, member: Member, entry: Entry) -> Outcome | None:
        """Conflict when something else lies under the key; None when it is the member.

        Busy when that can only be told by reading it, which has to wait.
        """
        row = self._connection.book.get(member.key)
        if row is not None and row.group_id != member.group_id:
            return Conflict(detail=f"its key belongs to group {row.group_id}")
        if size_of(entry) != member.size_bytes:
            return Conflict(detail=f"an object of {size_of(entry)} bytes lies under its key")
        if row is not None and row.token:
            same = row.says(member.sha256)
            return None if same else Conflict(detail="other content was put under its key")
        return await other_than(self._connection, member)

    async def _put(
        self, item: StoreItem, fence: Fence, limit: Limiter | None, *, over: bool = False
    ) -> Outcome | None:
        outcome = await bring(self._connection, item, fence, limit, over=over)
        if not isinstance(outcome, Done):
            return outcome
        self._fresh.add(item.member.key)
        self._connection.sole.pop(item.member.key, None)
        return None  # there is more to wait for: what was ended is not yet what is seen

    # --- what Mooncake makes ---

    async def _appear(self, members: Sequence[Member]) -> list[Outcome]:
        """Wait until each has a complete replica of this kind, asking for it where one can."""
        clock = self._connection.context.clock
        outcomes: dict[str, Outcome] = {}
        left = {member.key: member for member in members}
        started_s = clock.monotonic_s()
        touch_at_s = started_s
        doubted: dict[str, str] = {}
        entries: Mapping[str, Entry] = {}
        while left and clock.monotonic_s() - started_s < self._connection.options.appear_s:
            try:
                entries, _ = await self._connection.look.entries(list(left))
                doubted = await self._doubted(left, entries)
                for key, member in list(left.items()):
                    entry = entries.get(key)
                    if entry is None or key in doubted:
                        continue
                    state = self._connection.segments.state_of(entry, self._kind, member.size_bytes)
                    if state is MemberState.COMPLETE:
                        instance_id = self._instance_of(key, entry)
                        outcomes[key] = Done(instance_id=instance_id, moved_bytes=member.size_bytes)
                        del left[key]
                    elif is_absent(entry):
                        outcomes[key] = Retry(detail="the object vanished meanwhile")
                        del left[key]
                if left and self._kind is MEMORY and clock.monotonic_s() >= touch_at_s:
                    async with self._connection.clients.reader() as worker:
                        await worker.call(Engine.touch, list(left))
                    touch_at_s = clock.monotonic_s() + TOUCH_S
            except ReconcileError as error:
                refused = outcome_from_error(error)
                outcomes |= dict.fromkeys(left, refused)
                break
            if left:
                waited_s = clock.monotonic_s() - started_s
                await clock.sleep(min(max(waited_s * POLL_SHARE, POLL_S[0]), POLL_S[1]))
        for key in left:  # what comes later may come from elsewhere
            self._connection.sole.pop(key, None)
        self._belated.ended(key for key, one in outcomes.items() if isinstance(one, Done))
        self._belated.waited(left, entries, came=bool(outcomes))
        late = (
            f"no such replica within {self._connection.options.appear_s:g} s; it is made by"
            f" {self._kind.made_by}"
        )
        return [
            outcomes.get(member.key)
            or Retry(detail=doubted.get(member.key, late + self._belated.told(member.key)))
            for member in members
        ]

    async def _doubted(
        self, awaited: Mapping[str, Member], entries: Mapping[str, Entry]
    ) -> dict[str, str]:
        """By key why a replica that is there does not count; notes whose disk keeps what was put.

        Raises ReconcileError.
        """
        note_sole(self._connection, entries)
        put = [
            member
            for key, member in awaited.items()
            if key in self._fresh and in_memory(entries.get(key))
        ]
        if put:
            await learn(self._connection, put, entries, just_put=True)
            self._fresh -= {member.key for member in put}
        if self._kind.hot:
            return {}
        there = [
            member
            for key, member in awaited.items()
            if state_of(entries.get(key), self._kind, member.size_bytes) is MemberState.COMPLETE
        ]
        return await doubts(self._connection, there, entries) if there else {}


async def _charge(limit: Limiter | None, size_bytes: int) -> None:
    """Charge bytes that Mooncake moves by itself."""
    if limit is not None:
        for start in range(0, size_bytes, PIECE_BYTES):
            await limit.charge(min(PIECE_BYTES, size_bytes - start))
