"""One Mooncake tier as the loop sees it.  Layer: a tier; on the loop.

All kinds of replica are one class over one connection; what differs is in `ReplicaKind`.  A memory
replica comes by a put or, where a cold one exists, by promotion; a cold one by the put itself and a
host's offload, for which a store waits.  Invariants: what is not answered within one epoch is
UNKNOWN; what lies under a key counts as the member only when its digest is known here; nothing is
called done that was not seen.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self

from anyio import to_thread

from weightctl.adapters.mooncake.checking import checks_of, disks
from weightctl.adapters.mooncake.client.transfers import Reader
from weightctl.adapters.mooncake.keys import problem_of
from weightctl.adapters.mooncake.master.replicas import (
    DISK,
    KINDS,
    LOCAL_DISK,
    MEMORY,
    place_of,
    size_of,
    states_of,
)
from weightctl.adapters.mooncake.ownership.strays import MANAGED_PREFIX, strays
from weightctl.adapters.mooncake.parking.dropping import foretold
from weightctl.adapters.mooncake.proof.dead_ends import dead_ends
from weightctl.adapters.mooncake.proof.verifying import Verifying
from weightctl.adapters.mooncake.removal import named, remove
from weightctl.adapters.mooncake.standing import NUMBERS
from weightctl.adapters.mooncake.storing import Storing
from weightctl.adapters.shared.ownership import ForeignMediumError
from weightctl.adapters.shared.translate import outcome_from_error
from weightctl.controller.core.observation import (
    MemberState,
    ReplicaDetail,
    TierObservation,
    unknown_observation,
)
from weightctl.controller.core.tiers import Capabilities, TierCapacity, TierProfile
from weightctl.controller.errors import FencedError, ReconcileError, TransientError
from weightctl.controller.ports import (
    InventoryItem,
    Outcome,
    Permanent,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from weightctl.adapters.mooncake.connection import Connection
    from weightctl.adapters.mooncake.master.replicas import Entry
    from weightctl.adapters.mooncake.options import MooncakeOptions
    from weightctl.controller.core.observation import Member, Members
    from weightctl.controller.ports import Check, DropItem, Fence, Limiter, MediumReport, StoreItem

READ_ONLY = Permanent(detail="the tier was opened for asking only")
_COMPLETE = bytes(value == MemberState.COMPLETE for value in range(256))
_NO_QUARANTINE = Permanent(
    detail="Mooncake cannot take a replica out of sight: look at it, remove it by hand, repair"
)


class MooncakeTier:
    """Replicas of one kind in a Mooncake cluster (ports.Tier)."""

    def __init__(self, name: str, options: MooncakeOptions, connection: Connection) -> None:
        self._kind = KINDS[options.kind]
        hot = self._kind is MEMORY
        self.profile = TierProfile(
            name=name,
            kind=options.kind,
            hot=hot,
            capabilities=Capabilities(
                persistent=not hot,
                shared=True,
                atomic_publish=True,
                ranged_read=hot or self._kind is DISK,
                delete_is_immediate=False,
                # What is put anew gets the address, and the disk, of one of its size.
                instance_is_reused=self._kind is not DISK,
                observe_only=self._kind.observe_only,
            ),
            medium=f"mooncake {options.connection.cluster}",
            bandwidth_bytes_per_s=1_000_000_000 if hot else 500_000_000,
            latency_s=0.001 if hot else 0.005,
        )
        self._connection = connection
        connection.speaker = connection.speaker or name
        self._capacity_bytes = options.capacity_bytes
        self._storing = Storing(connection, self._kind, self.instance_of)
        self._verifying = Verifying(connection, self._kind, self._storing, self.instance_of)

    async def __aenter__(self) -> Self:
        """Open the book; a Master that does not answer is UNKNOWN until it does."""
        await self._connection.enter()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """End the clients with the last tier of the connection."""
        await self._connection.leave()

    def instance_of(self, key: str, entry: Entry) -> str:
        """Names the present copies of a key: which put, after how many drops, lying where."""
        row = self._connection.book.get(key)
        made = f"{row.token}.{row.drops}" if row is not None else "unknown"
        return f"{made}.{place_of(entry, self._kind)}"

    # --- telling ---

    @property
    def numbers(self) -> Sequence[str]:
        """As ports.Reporting."""
        return NUMBERS

    async def report(self) -> MediumReport:
        """As ports.Reporting; of the whole connection."""
        return await self._connection.report()

    async def checks(self, *, evidence_max_age_s: float) -> Sequence[Check]:
        """As ports.Checking; of the whole connection one tier tells, of itself each."""
        found: list[Check] = []
        if self._connection.speaker == self.profile.name:
            found = await checks_of(self._connection, evidence_max_age_s)
        if self._kind is LOCAL_DISK:
            found += await disks(self._connection, self._capacity_bytes or 0)
        return found

    # --- seeing ---

    def unfit(self, member: Member) -> str:
        """As ports.Choosing: by its key and size, by whose key it is, and by the hosts' files."""
        problem = problem_of(member.key, member.size_bytes)
        book = self._connection.book
        if not problem and book.others(member.group_id, [member.key]):
            problem = "Mooncake knows no tenants, and a revision of another one has its key"
        other = book.shares_file(member.key)
        if other and not problem:
            problem = f"on a host's disk it could share a file with {other!r}"
        return problem

    async def unprovable(self, members: Sequence[Member]) -> Mapping[str, str]:
        """As ports.Doubting: of hosts' disks, beside a memory replica."""
        if self._kind is not LOCAL_DISK:
            return {}
        return await dead_ends(self._connection, members)

    def dropping(self, keys: Sequence[str]) -> str:
        """As ports.Foretelling: of memory, which is cleared or parked."""
        return foretold(self._connection, keys) if self._kind is MEMORY else ""

    def remark(self) -> str:
        """As ports.Remarking: that looking kept nothing alive; for the whole connection."""
        return self._connection.remark()

    async def observe(self, members: Members, *, detail: Sequence[int] = ()) -> TierObservation:
        """As ports.Tier.observe.  Takes no lease: over HTTP."""
        count, kind = len(members), self._kind
        states = bytearray(count)
        details: dict[int, ReplicaDetail] = {}
        wanted = frozenset(detail)

        def take(start: int, keys: Sequence[str], entries: Mapping[str, Entry]) -> None:
            stop = start + len(keys)
            sizes_bytes = members.sizes_bytes[start:stop]
            states[start:stop] = states_of(entries, keys, kind, sizes_bytes)
            if kind is MEMORY and self._connection.segments.some_pass:
                for index, key in enumerate(keys, start):
                    if states[index] == MemberState.COMPLETE:
                        is_passing = self._connection.segments.passes(entries.get(key))
                        states[index] = MemberState.PARTIAL if is_passing else states[index]
            for index in wanted.intersection(range(start, stop)) if wanted else ():
                entry = entries.get(members.keys[index])
                shown = self._shown(states[index], members.member(index), entry)
                if shown is not None:
                    details[index] = shown

        try:
            if kind is MEMORY:
                await self._connection.segments.look_for_passing()
            epoch = await self._connection.look.scan(members.keys, take)
        except ReconcileError as error:
            return unknown(count, error)
        self._correct(members, states, details)
        if kind is MEMORY and any(members.sha256):  # without digests nobody manages them yet
            self._connection.book.note_found(members.keys, states, states.translate(_COMPLETE))
        return TierObservation(states=bytes(states), epoch=epoch, details=details)

    def _correct(
        self, members: Members, states: bytearray, details: dict[int, ReplicaDetail]
    ) -> None:
        """What the Master cannot know: whose object it is, and what is being written here."""
        for index in self._connection.book.others(members.group_id, members.keys):
            if states[index] != MemberState.UNKNOWN:
                states[index] = MemberState.ABSENT
                details.pop(index, None)
        for index in self._storing.written(members):
            if states[index] in (MemberState.ABSENT, MemberState.COMPLETE):
                states[index] = MemberState.PARTIAL
                details.pop(index, None)

    def _shown(self, state: int, member: Member, entry: Entry | None) -> ReplicaDetail | None:
        """What lies under a key: the member, or where it is ABSENT what has another size."""
        if entry is None or state not in (MemberState.COMPLETE, MemberState.ABSENT):
            return None
        if state == MemberState.COMPLETE:
            return self._detail(member, entry)
        other_bytes = size_of(entry)
        if other_bytes is None or other_bytes == member.size_bytes:
            return None
        instance_id = self.instance_of(member.key, entry)
        return ReplicaDetail(instance_id=instance_id, size_bytes=other_bytes)

    def _detail(self, member: Member, entry: Entry) -> ReplicaDetail:
        row = self._connection.book.get(member.key)
        return ReplicaDetail(
            instance_id=self.instance_of(member.key, entry),
            size_bytes=member.size_bytes,
            sha256=row.sha256 if row is not None and row.token else None,
            busy_until_ms=self._connection.reads.leased_until_ms(member.group_id),
        )

    async def inventory(self, group_id: str | None = None) -> Mapping[str, Sequence[InventoryItem]]:
        """As ports.Tier.inventory; the Master shows no groups, so of what the book has.

        Without a group also what else lies in the cluster under managed names.
        """
        found = await self._listed(group_id)
        if group_id is None:
            for group, item in await self._strays():
                found.setdefault(group, []).append(item)
        return found

    async def _listed(self, group_id: str | None) -> dict[str, list[InventoryItem]]:
        rows = await to_thread.run_sync(self._connection.book.rows, group_id)
        entries, _ = await self._connection.look.entries([row.key for row in rows])
        found: dict[str, list[InventoryItem]] = {}
        for row in rows:
            item = self._item(row.key, entries.get(row.key), row.size_bytes)
            if item is not None:
                found.setdefault(row.group_id, []).append(item)
        return found

    def _item(self, key: str, entry: Entry | None, size_bytes: int) -> InventoryItem | None:
        """What lies under a key, None for nothing.  Raises TransientError without an answer."""
        state = self._connection.segments.state_of(entry, self._kind, size_bytes)
        if state is MemberState.UNKNOWN or entry is None:
            raise TransientError(
                f"inventory of {self.profile.name}",
                f"the Master did not answer for {key}",
                "it is asked again",
            )
        if state is MemberState.ABSENT:
            return None
        return InventoryItem(
            key=key,
            instance_id=self.instance_of(key, entry),
            size_bytes=size_bytes,
            state="complete" if state is MemberState.COMPLETE else "partial",
        )

    async def _strays(self) -> list[tuple[str, InventoryItem]]:
        """(group, item) of what has a managed name and is not in the book."""
        groups = await self._strange()
        entries, _ = await self._connection.look.entries(list(groups))
        found = []
        for key, group in sorted(groups.items()):
            entry = entries.get(key)
            item = self._item(key, entry, size_of(entry) or 0)
            if item is not None:
                found.append((group, item))
        return found

    async def _strange(self) -> Mapping[str, str]:
        """Group by key of the strays."""
        keys = await self._connection.serving.all_keys(MANAGED_PREFIX)
        rows = await to_thread.run_sync(self._connection.book.rows)
        return await to_thread.run_sync(strays, keys, rows)

    async def capacity(self) -> TierCapacity:
        """As ports.Tier.capacity: of the segments, or of what the options declare."""
        await self._connection.look.settle()
        if self._kind is MEMORY:
            segments = await self._connection.segments.hosts()
            total = sum(one.capacity_bytes for one in segments)
            used = sum(one.used_bytes for one in segments)
        else:
            held = await self._listed(None)
            used = sum(item.size_bytes for items in held.values() for item in items)
            total = self._capacity_bytes or 0
        return TierCapacity(
            used_bytes=used, free_bytes=max(total - used, 0), total_bytes=max(total, used)
        )

    def map_path(self, member: Member) -> str | None:  # noqa: ARG002 - part of the port
        """None: the memory belongs to other processes."""
        return None

    # --- moving ---

    async def store(
        self, batch: Sequence[StoreItem], fence: Fence, *, limit: Limiter | None = None
    ) -> Sequence[Outcome]:
        """As ports.Tier.store; where Mooncake makes the replica itself, wait for it."""
        if self._connection.context.read_only:
            return [READ_ONLY] * len(batch)
        if self._kind.observe_only:
            detail = f"{self._kind.kind} only shows replicas; one is made by {self._kind.made_by}"
            return [Permanent(detail=detail)] * len(batch)
        return await self._storing.store(batch, fence, limit)

    async def verify(
        self, batch: Sequence[Member], *, limit: Limiter | None = None
    ) -> Sequence[Outcome]:
        """As ports.Tier.verify; see `verifying` for what is proven.  Takes Mooncake's leases."""
        return await self._verifying.verify(batch, limit)

    @asynccontextmanager
    async def open(self, member: Member) -> AsyncIterator[Reader]:
        """As ports.Tier.open."""
        connection, key = self._connection, member.key
        connection.reading[key] += 1
        try:
            found = await self._verifying.look([member])
            instance = None if self._storing.is_written(member) else found[key].instance_id
            if instance is None:
                raise TransientError(
                    f"object {key} in tier {self.profile.name}",
                    "no complete replica is there",
                    "it is looked at again",
                )
            yield Reader(connection, member, instance)
        finally:
            connection.reading[key] -= 1
            if not connection.reading[key]:
                del connection.reading[key]

    # --- removing ---

    async def drop(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        """As ports.Tier.drop."""
        if self._connection.context.read_only:
            return [READ_ONLY] * len(batch)
        if not batch:
            await self._admit(fence)
            return []
        try:
            await self._admit(fence)
            return await remove(self._connection, self._kind, batch, self.instance_of)
        except ReconcileError as error:
            return [outcome_from_error(error)] * len(batch)

    async def quarantine(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        """Permanent for what is there: no primitive of Mooncake can do it."""
        if not batch:
            return []
        try:
            entries, _ = await self._connection.look.entries([item.member.key for item in batch])
            await self._admit(fence)
        except ReconcileError as error:
            return [outcome_from_error(error)] * len(batch)
        return [
            named(
                self._connection, self._kind, item, entries.get(item.member.key), self.instance_of
            )
            or _NO_QUARANTINE
            for item in batch
        ]

    async def _admit(self, fence: Fence) -> None:
        await to_thread.run_sync(self._connection.book.admit, fence)


def unknown(count: int, error: ReconcileError) -> TierObservation:
    """Nothing is known, and why."""
    match error:
        case FencedError():
            told = f"{error.what}: {error.why}; {error.todo}"
        case ForeignMediumError():
            told = f"{error.what}: {error.why}"
        case _:
            told = error.why or error.what
    return unknown_observation(count, told)
