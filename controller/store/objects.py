"""The generic paths of plain objects, with the guard of managed groups.  Layer: store.

Plain objects live beside managed groups, as a cache: they may be removed, evicted and cleared at
any time. Members of a managed group never are, whatever state its revision is in; each path refuses
them or skips them, and judges by the group that an object is in, not only by the one that a caller
names. Groups are scoped by tenant: another tenant's object is never a member, whatever group it
names. A row is durable before its bytes are written and goes after them, so no byte is unaccounted
for.
"""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weightctl.controller.core.group import is_managed, may_change_members, owner_of
from weightctl.controller.core.identity import DEFAULT_TENANT, text_bytes
from weightctl.controller.core.observation import Member, MemberState
from weightctl.controller.core.records import DataType
from weightctl.controller.core.refusals import conflict, invalid, not_found
from weightctl.controller.errors import CapacityError, ManagedGroupError, WeightctlError
from weightctl.controller.ports import NoCapacity, StoreItem
from weightctl.controller.store.arguments import mistyped_field
from weightctl.controller.store.locks import KeyedLocks
from weightctl.controller.store.replicas import (
    Replica,
    drop,
    failure_of,
    key_of,
    locate,
    member_of,
)
from weightctl.controller.store.rows import ObjectRow, all_groups, object_problem, objects_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from weightctl.controller.ports import Fence, RangedReader, Tier
    from weightctl.controller.store.archive import StoredObject
    from weightctl.controller.store.commit import RowChange
    from weightctl.controller.store.connection import StoreConnection
    from weightctl.controller.store.directory import Directory
    from weightctl.controller.store.engine import Engine
    from weightctl.controller.store.object_table import ObjectTable

    Source = Callable[[], AbstractAsyncContextManager[RangedReader]]

Results = dict[str, WeightctlError | None]
"""Per key what went wrong, None for success."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainObject:
    """An object to put: its names, and what its bytes are."""

    key: str
    size_bytes: int
    sha256: bytes
    """Raw digest, 32 bytes."""
    tenant_id: str = DEFAULT_TENANT
    group_id: str = ""
    data_type: DataType = DataType.OTHER
    hard_pin: bool = False
    """Kept by eviction; still removable."""

    def row(self) -> ObjectRow:
        """Its row in the directory."""
        return ObjectRow(
            text_bytes(self.key), self.data_type, self.size_bytes, self.sha256, int(self.hard_pin)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """What a sweeping removal did; `whole` is False when anything of the tenant stays."""

    removed: int
    whole: bool


class PlainObjects:
    """Put, remove, evict, clear and clean up plain objects; each call names its tiers."""

    def __init__(
        self,
        engine: Engine,
        reader: StoreConnection,
        table: ObjectTable,
        directory: Directory,
        fence: Fence,
    ) -> None:
        self._engine = engine
        self._reader = reader
        self._table = table
        self._directory = directory
        self._fence = fence
        self._writers = KeyedLocks()

    # --- put --------------------------------------------------------------------------------------

    async def put(self, item: PlainObject, tier: Tier, open_source: Source) -> None:
        """Store an object; the same content again is a no-op.

        Into a managed group of its tenant only while it is IMPORTING, as a member.  Evicts plain
        objects of the tier when it is full.  Raises ManagedGroupError, INVALID_ARGUMENT, CONFLICT
        for other content under the key, CapacityError, TransientError.
        """
        problem = mistyped_field(item) or object_problem(item.tenant_id, item.group_id, item.row())
        if problem is not None:
            raise invalid(f"object {item.key!r:.200}", problem)
        owner = owner_of(self._engine.state, item.tenant_id, item.group_id)
        if not may_change_members(self._engine.state, item.tenant_id, item.group_id):
            raise _managed(item.key, item.group_id)
        stored = (item.tenant_id, item.group_id, item.row())
        if owner is not None:
            member = _member_in(item.group_id, item)
            await self._directory.register(owner, [member])
            await self._write(member, tier, open_source)
            return
        async with self._writing([stored]):
            fresh = await self._insert(stored)
            try:
                await self._write(member_of(stored), tier, open_source)
            except WeightctlError:
                if fresh:
                    await self._forget([stored])
                raise

    async def _insert(self, stored: StoredObject) -> bool:
        """Make the row durable; False when it was there already."""
        tenant_id, group_id, row = stored
        reservation = self._table.reservation(tenant_id, [row])

        async def plan() -> list[RowChange]:
            reservation.begin()
            known = (await self._table.find(tenant_id, [row.key])).get(row.key)
            if known == (group_id, row):
                return []
            if known is not None and is_managed(self._engine.state, tenant_id, known[0]):
                raise _managed(key_of(stored), known[0])
            if known is not None:
                raise conflict(f"object {key_of(stored)}", "it exists with other content or group")
            return await self._table.added(tenant_id, group_id, [row])

        return await self._engine.change_objects(
            (tenant_id, group_id),
            plan,
            publish=lambda: self._directory.forget(group_id),
            ended=reservation.end,
        )

    @asynccontextmanager
    async def _writing(self, objects: Sequence[StoredObject]) -> AsyncIterator[None]:
        """One writer or remover of an object at a time, so that none undoes another's work."""
        names = sorted({(tenant_id, row.key) for tenant_id, _, row in objects})
        held: list[tuple[str, bytes]] = []
        try:
            for name in names:  # all in one order, so that two of them never wait for each other
                await self._writers.acquire(name)
                held.append(name)
            yield
        finally:
            for name in held:
                self._writers.release(name)

    async def _write(self, member: Member, tier: Tier, open_source: Source) -> None:
        item = StoreItem(member=member, open_source=open_source)
        (outcome,) = await tier.store([item], self._fence)
        if isinstance(outcome, NoCapacity):
            missing = outcome.needed_bytes - outcome.free_bytes
            if await self.batch_evict(tier, missing) >= missing:
                (outcome,) = await tier.store([item], self._fence)
        if isinstance(outcome, NoCapacity):
            raise CapacityError(
                outcome.needed_bytes,
                outcome.free_bytes,
                f"object {member.key} does not fit into tier {tier.profile.name}",
                "NO_AVAILABLE_HANDLE: nothing else may be evicted; managed groups never are",
                "evict a revision, remove objects, or give the tier more room",
            )
        failure = failure_of(member.key, tier, outcome)
        if failure is not None:
            raise failure

    # --- removal ----------------------------------------------------------------------------------

    async def remove(
        self, key: str, tiers: Sequence[Tier], *, tenant_id: str = DEFAULT_TENANT
    ) -> None:
        """Remove an object from every tier, then its row.

        Raises ManagedGroupError in every state of the revision, NOT_FOUND, or TransientError when a
        tier did not do it; the object then stays known.
        """
        failure = (await self.batch_remove([key], tiers, tenant_id=tenant_id))[key]
        if failure is not None:
            raise failure

    async def batch_remove(
        self, keys: Sequence[str], tiers: Sequence[Tier], *, tenant_id: str = DEFAULT_TENANT
    ) -> Results:
        """Remove many; each key has its own result, and managed ones do not stop the others."""
        results, plain = await self._sort_out(keys, tenant_id)
        return results | await self._remove(plain, tiers)

    async def remove_by_regex(
        self, pattern: str, tiers: Sequence[Tier], *, tenant_id: str = DEFAULT_TENANT
    ) -> int:
        """Remove plain objects whose whole key matches; members are skipped and not counted."""
        try:
            matcher = re.compile(pattern)
        except re.error as error:
            raise invalid(f"pattern {pattern!r}", str(error)) from error
        plain = [each for each in await self._plain(tenant_id) if matcher.fullmatch(key_of(each))]
        return _successes(await self._remove(plain, tiers))

    async def remove_all(
        self, tiers: Sequence[Tier], *, tenant_id: str = DEFAULT_TENANT
    ) -> Cleared:
        """Remove every plain object of a tenant; it is not whole while managed groups exist."""
        plain = await self._plain(tenant_id)
        removed = _successes(await self._remove(plain, tiers))
        managed = any(owner.tenant_id == tenant_id for owner in self._engine.state.groups.values())
        return Cleared(removed=removed, whole=removed == len(plain) and not managed)

    # --- eviction, clearing, cleaning up ----------------------------------------------------------

    async def batch_evict(
        self, tier: Tier, wanted_bytes: int, *, tenant_id: str | None = None
    ) -> int:
        """Drop unpinned plain replicas of a tier until so many bytes are freed; gives how many.

        Managed groups are skipped, whatever the pressure.
        """
        plain = [stored for stored in await self._plain(tenant_id) if not stored[2].hard_pin]
        chosen: list[Replica] = []
        chosen_bytes = 0
        for replica in await locate(plain, tier):
            if replica.item is not None and chosen_bytes < wanted_bytes:
                chosen.append(replica)
                chosen_bytes += replica.stored[2].size_bytes
        failures = await drop(chosen, tier, self._fence)
        return sum(
            replica.stored[2].size_bytes
            for replica, failure in zip(chosen, failures, strict=True)
            if failure is None
        )

    async def quota_evict(self, tenant_id: str, quota_bytes: int, tier: Tier) -> int:
        """Evict a tenant's plain objects from a tier down to a quota; gives the bytes freed."""
        replicas = await locate(await self._plain(tenant_id), tier)
        held_bytes = sum(each.stored[2].size_bytes for each in replicas if each.item is not None)
        return await self.batch_evict(tier, held_bytes - quota_bytes, tenant_id=tenant_id)

    async def replica_clear(
        self, keys: Sequence[str], tier: Tier, *, tenant_id: str = DEFAULT_TENANT
    ) -> Results:
        """Drop the replicas of plain objects in one tier; members of managed groups are refused."""
        results, plain = await self._sort_out(keys, tenant_id)
        failures = await drop(await locate(plain, tier), tier, self._fence)
        return results | dict(zip(map(key_of, plain), failures, strict=True))

    async def cleanup(self, tiers: Sequence[Tier]) -> int:
        """Forget plain objects that every tier says it does not hold; gives how many.

        A tier that does not answer keeps its objects known; managed groups are skipped.
        """
        gone = await self._plain(None)
        for tier in tiers:
            replicas = await locate(gone, tier)
            gone = [each.stored for each in replicas if each.state == MemberState.ABSENT]
        return await self._forget(gone)

    # --- shared -----------------------------------------------------------------------------------

    async def _plain(self, tenant_id: str | None) -> list[StoredObject]:
        """Every object outside managed groups, of one tenant or of all, in order."""
        groups = [
            group
            for group in await self._reader.run(all_groups)
            if tenant_id in {None, group[1]} and not is_managed(self._engine.state, *group[1:])
        ]
        return await self._reader.run(objects_of, groups)

    async def _sort_out(
        self, keys: Sequence[str], tenant_id: str
    ) -> tuple[Results, list[StoredObject]]:
        """What refuses each key at once, and the objects that may be touched."""
        found = await self._table.find(tenant_id, [text_bytes(key) for key in keys])
        results: Results = {}
        plain: list[StoredObject] = []
        for key in dict.fromkeys(keys):
            located = found.get(text_bytes(key))
            if located is None:
                results[key] = not_found(f"object {key} of tenant {tenant_id!r}")
            elif is_managed(self._engine.state, tenant_id, located[0]):
                results[key] = _managed(key, located[0])
            else:
                plain.append((tenant_id, *located))
        return results, plain

    async def _remove(self, objects: Sequence[StoredObject], tiers: Sequence[Tier]) -> Results:
        results: Results = {key_of(stored): None for stored in objects}
        async with self._writing(objects):
            for tier in tiers:
                failures = await drop(await locate(objects, tier), tier, self._fence)
                for stored, failure in zip(objects, failures, strict=True):
                    results[key_of(stored)] = results[key_of(stored)] or failure
            await self._forget([each for each in objects if results[key_of(each)] is None])
        return results

    async def _forget(self, objects: Sequence[StoredObject]) -> int:
        """Delete the rows that are still as they were seen; gives how many."""
        groups: dict[tuple[str, str], list[ObjectRow]] = {}
        for tenant_id, group_id, row in objects:
            groups.setdefault((tenant_id, group_id), []).append(row)
        counts = [await self._forget_rows(*name, rows) for name, rows in groups.items()]
        return sum(counts)

    async def _forget_rows(self, tenant_id: str, group_id: str, rows: list[ObjectRow]) -> int:
        left: list[ObjectRow] = []
        reservation = self._table.reservation(tenant_id, rows)

        async def plan() -> list[RowChange]:
            reservation.begin()
            found = await self._table.find(tenant_id, [row.key for row in rows])
            left.extend(row for row in rows if found.get(row.key) == (group_id, row))
            return await self._table.removed(tenant_id, group_id, left)

        await self._engine.change_objects(
            (tenant_id, group_id),
            plan,
            publish=lambda: self._directory.forget(group_id),
            ended=reservation.end,
        )
        return len(left)


def _managed(key: str, group_id: str) -> ManagedGroupError:
    return ManagedGroupError(
        f"object {key} is a member of group {group_id}",
        "UNAVAILABLE_IN_CURRENT_STATUS: the group is managed by its revision",
        "delete the revision, or evict it as a whole",
    )


def _member_in(group_id: str, item: PlainObject) -> Member:
    return Member(
        group_id=group_id,
        key=item.key,
        size_bytes=item.size_bytes,
        sha256=item.sha256,
        data_type=item.data_type,
    )


def _successes(results: Results) -> int:
    return sum(failure is None for failure in results.values())
