"""The object directory: which members a payload group has.  Layer: store.

Members are registered while their revision is IMPORTING and leave in the transaction that makes it
DELETED.  Reads use a connection of their own, so they never wait for a commit; what they give was
checked against the group's recorded checksum.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from weightctl.controller.core.adoption import apply_adoption
from weightctl.controller.core.identity import (
    DEFAULT_TENANT,
    Identity,
    payload_group_id,
    text_bytes,
)
from weightctl.controller.core.observation import Members
from weightctl.controller.core.oplog import emitted
from weightctl.controller.core.records import Availability, DataType
from weightctl.controller.core.refusals import conflict, invalid, not_found
from weightctl.controller.errors import InvariantViolationError
from weightctl.controller.store.arguments import mistyped_field
from weightctl.controller.store.group_batches import read_members_of
from weightctl.controller.store.object_table import removed_group
from weightctl.controller.store.rows import ObjectRow, all_groups, object_problem, read_members

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weightctl.controller.core.adoption import Adoption
    from weightctl.controller.core.observation import Member
    from weightctl.controller.core.records import RevisionMetadata
    from weightctl.controller.core.state import WeightState
    from weightctl.controller.store.commit import RowChange
    from weightctl.controller.store.connection import StoreConnection
    from weightctl.controller.store.engine import Engine
    from weightctl.controller.store.imports import ImportSigns
    from weightctl.controller.store.object_table import ObjectTable

CACHED_MEMBERS_MAX = 200_000
"""Members that the cache of recently read groups holds in all."""


class Directory:
    """Members of each group, durable with the records."""

    def __init__(
        self, engine: Engine, reader: StoreConnection, table: ObjectTable, imports: ImportSigns
    ) -> None:
        self._engine = engine
        self._reader = reader
        self._table = table
        self._imports = imports
        self._cache: OrderedDict[str, Members] = OrderedDict()
        self._cached_members = 0
        self._changes = 0

    async def register(self, identity: Identity, members: Sequence[Member]) -> None:
        """Add members to the group of an IMPORTING revision; durable when it returns.

        Registering the same again is a no-op.  Raises INVALID_ARGUMENT, NOT_FOUND, and CONFLICT for
        other content under a key, a key of another group, or a revision past IMPORTING.
        """
        rows = _checked_rows(identity, members)
        group_id = payload_group_id(identity)

        reservation = self._table.reservation(identity.tenant_id, rows)

        async def plan() -> list[RowChange]:
            reservation.begin()
            fresh = await self._unknown(identity, rows)
            return await self._table.added(identity.tenant_id, group_id, fresh)

        locks = self._engine.locks
        await locks.acquire(identity)
        try:
            self._check_importing(identity)
        except BaseException:
            locks.release(identity)
            raise
        self._imports.touch(identity)

        def ended() -> None:
            reservation.end()
            locks.release(identity)

        await self._engine.change_objects(
            (identity.tenant_id, group_id), plan, publish=lambda: self.forget(group_id), ended=ended
        )

    async def adopt(
        self,
        identity: Identity,
        members: Sequence[Member],
        prepare: Callable[[WeightState], Adoption],
    ) -> RevisionMetadata:
        """Publish a revision together with its members: all of it in one transaction, or nothing.

        `prepare` decides while the revision is held.  Raises as `register`, and what it raises.
        """
        rows = _checked_rows(identity, members)
        group = (identity.tenant_id, payload_group_id(identity))
        reservation = self._table.reservation(identity.tenant_id, rows)
        published: list[RevisionMetadata | None] = []

        async def plan() -> list[RowChange]:
            reservation.begin()
            fresh = await self._unknown(identity, rows)
            return await self._table.added(*group, fresh)

        locks = self._engine.locks
        await locks.acquire(identity)
        try:
            adoption = prepare(self._engine.state)
        except BaseException:
            locks.release(identity)
            raise

        def ended() -> None:
            reservation.end()
            locks.release(identity)

        def publish() -> None:
            published.append(apply_adoption(self._engine.state, adoption))
            self.forget(group[1])
            self._engine.announce(identity)

        payloads = [payload for mutation in adoption for payload in emitted(mutation)]
        await self._engine.change_objects(
            group, plan, payloads=payloads, publish=publish, ended=ended
        )
        (record,) = published
        if record is None:
            raise InvariantViolationError("an adoption left no record")
        return record

    async def members(self, group_id: str) -> Members:
        """Every member in key order, empty for an unknown group.

        Of a group that no revision manages: what the default tenant put there.

        Raises StateDirectoryError when the rows are not those that were written.
        """
        cached = self._cache.get(group_id)
        if cached is not None:
            self._cache.move_to_end(group_id)
            return cached
        changes = self._changes
        owner = self._engine.state.groups.get(group_id)
        tenant_id = DEFAULT_TENANT if owner is None else owner.tenant_id
        members = await self._reader.run(read_members, tenant_id, group_id)
        if changes == self._changes and owner is not None:  # whose group it will be is not known
            self._remember(members)
        return members

    async def groups(self) -> list[str]:
        """Ids of all groups that have rows, whoever put them there."""
        return [group_id for _, _, group_id in await self._reader.run(all_groups)]

    async def members_of(self, group_ids: Sequence[str]) -> list[Members]:
        """Members of many groups with one wait; the cache is used but not filled.

        Raises StateDirectoryError when a group's rows are not those that were written.
        """
        owners = [self._engine.state.groups.get(group_id) for group_id in group_ids]
        wanted = [
            (DEFAULT_TENANT if owner is None else owner.tenant_id, group_id)
            for owner, group_id in zip(owners, group_ids, strict=True)
            if group_id not in self._cache
        ]
        cached = [self._cache.get(group_id) for group_id in group_ids]
        read = iter(await self._reader.run(read_members_of, wanted) if wanted else ())
        return [next(read) if known is None else known for known in cached]

    def forget(self, group_id: str) -> None:
        """Drop what the cache holds of a group that has changed."""
        self._changes += 1
        self._cached_members -= len(self._cache.pop(group_id, ()))

    def clear(self) -> None:
        """Drop the whole cache."""
        self._changes += 1
        self._cache.clear()
        self._cached_members = 0

    def _remember(self, members: Members) -> None:
        self._cached_members += len(members) - len(self._cache.get(members.group_id, ()))
        self._cache[members.group_id] = members
        while self._cached_members > CACHED_MEMBERS_MAX:
            self._cached_members -= len(self._cache.popitem(last=False)[1])

    def _check_importing(self, identity: Identity) -> None:
        record = self._engine.state.metadata.get(identity)
        if record is None:
            raise not_found(f"revision {identity}")
        if record.availability != Availability.IMPORTING:
            raise conflict(
                f"members of {identity}",
                f"the revision is {record.availability.name}, not IMPORTING",
                "import other content under a new weight generation",
            )

    async def _unknown(self, identity: Identity, rows: Sequence[ObjectRow]) -> list[ObjectRow]:
        """The rows that are not registered yet.  Raises CONFLICT for a differing one."""
        group_id = payload_group_id(identity)
        found = await self._table.find(identity.tenant_id, [row.key for row in rows])
        fresh = []
        for row in rows:
            known = found.get(row.key)
            if known is None:
                fresh.append(row)
            elif known != (group_id, row):
                key = row.key.decode("utf-8", "surrogateescape")
                raise conflict(
                    f"member {key} of {identity}",
                    "it is registered with other content or in another group",
                    "abort this import; other content needs a new weight generation",
                )
        return fresh


def removal_of(identity: Identity) -> list[RowChange]:
    """What finishing a delete changes in the directory, in the same transaction."""
    return removed_group(identity.tenant_id, payload_group_id(identity))


def _checked_rows(identity: Identity, members: Sequence[Member]) -> list[ObjectRow]:
    what = f"members of {identity}"
    problem = identity.problem()
    if problem is not None:
        raise invalid(what, problem)
    group_id = payload_group_id(identity)
    rows: dict[bytes, ObjectRow] = {}
    for member in members:
        problem = mistyped_field(member)
        if problem is not None:
            raise invalid(f"a member of {identity}", problem)
        row = member_row(member)
        problem = object_problem(identity.tenant_id, group_id, row)
        if member.group_id != group_id:
            problem = "it names another payload group"
        if problem is not None:
            raise invalid(f"member {member.key!r:.200} of {identity}", problem)
        if rows.setdefault(row.key, row) != row:
            raise conflict(f"member {member.key} of {identity}", "it is named twice, differently")
    return list(rows.values())


def member_row(member: Member) -> ObjectRow:
    """The row of a member; the manifest is hard-pinned."""
    return ObjectRow(
        key=text_bytes(member.key),
        data_type=int(member.data_type),
        size_bytes=member.size_bytes,
        sha256=member.sha256,
        hard_pin=int(member.data_type == DataType.METADATA),
    )
