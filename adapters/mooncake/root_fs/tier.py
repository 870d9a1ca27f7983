"""The tier of DISK replicas below a Master's `root_fs_dir`.  Layer: a tier; on the loop.

What is seen here is the file, by its path from the Master or from the book: it stays readable when
the Master has forgotten it, and is not there when somebody has deleted it though the Master lists
it.  Reading and verifying go to the file, take no lease and promote nothing.  Invariants: no
answer of the Master, or of the folder, is UNKNOWN; a file that was not read right since its last
change is shown without a digest.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Self

from anyio import to_thread

from weightctl.adapters.mooncake.keys import problem_of_file
from weightctl.adapters.mooncake.master.replicas import (
    DISK,
    is_absent,
    size_of,
    states_of,
)
from weightctl.adapters.mooncake.ownership.book import row_of
from weightctl.adapters.mooncake.removal import ALONE, Work, remove_whole
from weightctl.adapters.mooncake.root_fs.checking import folder_of
from weightctl.adapters.mooncake.root_fs.engine import FileEngine, size_of_stamp
from weightctl.adapters.mooncake.root_fs.files import DiskFiles, FileReader, instance_of
from weightctl.adapters.mooncake.root_fs.storing import store_one
from weightctl.adapters.mooncake.tier import READ_ONLY, MooncakeTier, unknown
from weightctl.adapters.shared.translate import outcome_from_error
from weightctl.controller.core.observation import (
    Member,
    MemberState,
    ReplicaDetail,
    TierObservation,
)
from weightctl.controller.errors import ReconcileError, TransientError
from weightctl.controller.ports import (
    PIECE_BYTES,
    Busy,
    Conflict,
    Corrupt,
    Done,
    InventoryItem,
    NoOp,
    Outcome,
    Permanent,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from weightctl.adapters.mooncake.connection import Connection
    from weightctl.adapters.mooncake.master.replicas import Entry
    from weightctl.adapters.mooncake.options import MooncakeOptions
    from weightctl.adapters.mooncake.root_fs.files import Copy, Stamps
    from weightctl.adapters.mooncake.storing import Storing
    from weightctl.controller.core.observation import Members
    from weightctl.controller.ports import Check, DropItem, Fence, Limiter, StoreItem


class DiskTier(MooncakeTier):
    """Files below `root_fs_dir` (ports.Tier); beside it every put of the connection makes one."""

    def __init__(self, name: str, options: MooncakeOptions, connection: Connection) -> None:
        super().__init__(name, options, connection)
        self.files = DiskFiles(connection.options, connection.context, connection.book)
        connection.disk = self.files
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """As the other tiers, and with workers for the files."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.files.running())
            await super().__aenter__()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """End them with the tier."""
        async with self._stack:
            await super().__aexit__(*exc_info)

    @property
    def connection(self) -> Connection:
        """The connection that the tiers share."""
        return self._connection

    @property
    def storing(self) -> Storing:
        """What this tier is storing."""
        return self._storing

    async def checks(self, *, evidence_max_age_s: float) -> Sequence[Check]:
        """As ports.Checking: also whether the Master writes files, and they are seen here."""
        found = await super().checks(evidence_max_age_s=evidence_max_age_s)
        return [*found, *await folder_of(self._connection, self.files)]

    # --- seeing ---

    def unfit(self, member: Member) -> str:
        """As ports.Choosing: also by the name of its file."""
        return problem_of_file(member.key, member.size_bytes) or super().unfit(member)

    async def observe(self, members: Members, *, detail: Sequence[int] = ()) -> TierObservation:
        """As ports.Tier.observe.  Takes no lease: over HTTP, and from the files' folder."""
        states = bytearray(len(members))
        entries: dict[str, Entry] = {}
        paths: dict[int, str] = {}

        def take(start: int, keys: Sequence[str], answered: Mapping[str, Entry]) -> None:
            sizes_bytes = members.sizes_bytes[start : start + len(keys)]
            states[start : start + len(keys)] = states_of(answered, keys, DISK, sizes_bytes)
            entries.update(answered)
            for index, key in enumerate(keys, start):
                path = self.files.path_of(key, answered)
                if path:
                    paths[index] = path

        try:
            epoch = await self._connection.look.scan(members.keys, take)
            looked = await self.files.look(list(paths.values()))
        except ReconcileError as error:
            return unknown(len(members), error)
        seen = dict(zip(paths.items(), looked, strict=True))
        details = await to_thread.run_sync(
            self._judge, members, states, entries, seen, frozenset(detail)
        )
        self._correct(members, states, details)
        return TierObservation(states=bytes(states), epoch=epoch, details=details)

    def _judge(
        self,
        members: Members,
        states: bytearray,
        entries: Mapping[str, Entry],
        seen: Mapping[tuple[int, str], Stamps],
        wanted: frozenset[int],
    ) -> dict[int, ReplicaDetail]:
        """Let the files say what the states are; the details of the wanted ones."""
        details = {}
        for (index, path), stamps in seen.items():
            if states[index] == MemberState.UNKNOWN:
                continue
            key, size_bytes = members.keys[index], members.sizes_bytes[index]
            copy = self.files.judged(key, size_bytes, members.digest(index), path, stamps)
            if copy is not None:
                states[index] = MemberState.COMPLETE
            elif states[index] == MemberState.COMPLETE:
                states[index] = MemberState.ABSENT
            if index in wanted:
                details[index] = self._detail_of(members.member(index), copy, entries.get(key))
        return {index: told for index, told in details.items() if told is not None}

    def _detail_of(
        self, member: Member, copy: Copy | None, entry: Entry | None
    ) -> ReplicaDetail | None:
        """The file, or what of another size lies under the key."""
        if copy is not None:
            return ReplicaDetail(
                instance_id=copy.instance_id,
                size_bytes=member.size_bytes,
                sha256=member.sha256 if copy.known else None,
                busy_until_ms=self._connection.reads.leased_until_ms(member.group_id),
            )
        if entry is None or not entry.disk or size_of(entry) in (None, member.size_bytes):
            return None
        return ReplicaDetail(
            instance_id=self.instance_of(member.key, entry), size_bytes=entry.disk[0].size_bytes
        )

    async def _listed(self, group_id: str | None) -> dict[str, list[InventoryItem]]:
        rows = await to_thread.run_sync(self._connection.book.rows, group_id)
        members = [
            Member(key=row.key, group_id=row.group_id, size_bytes=row.size_bytes, sha256=row.sha256)
            for row in rows
        ]
        return await self._items(members)

    async def _strays(self) -> list[tuple[str, InventoryItem]]:
        groups = await self._strange()
        entries, _ = await self._connection.look.entries(list(groups))
        members = [
            Member(key=key, group_id=group, size_bytes=size_of(entries.get(key)) or 0, sha256=b"")
            for key, group in sorted(groups.items())
        ]
        return [
            (group, item) for group, items in (await self._items(members)).items() for item in items
        ]

    async def _items(self, members: Sequence[Member]) -> dict[str, list[InventoryItem]]:
        entries, copies = await self._copies(members)
        asides = await self.files.asides(members, entries)
        found: dict[str, list[InventoryItem]] = {}
        for member in members:
            if member.key not in entries:
                raise TransientError(
                    f"inventory of {self.profile.name}",
                    f"the Master did not answer for {member.key}",
                    "it is asked again",
                )
            if (copy := copies.get(member.key)) is not None:
                found.setdefault(member.group_id, []).append(_item(member.key, copy.stamp))
            if (stamp := asides.get(member.key)) is not None:
                item = _item(member.key, stamp, state="quarantined")
                found.setdefault(member.group_id, []).append(item)
        return found

    async def _copies(self, members: Sequence[Member]) -> tuple[dict[str, Entry], dict[str, Copy]]:
        entries, _ = await self._connection.look.entries([member.key for member in members])
        return entries, await self.files.copies(members, entries)

    # --- moving ---

    async def store(
        self, batch: Sequence[StoreItem], fence: Fence, *, limit: Limiter | None = None
    ) -> Sequence[Outcome]:
        """As ports.Tier.store; see `storing`."""
        if self._connection.context.read_only:
            return [READ_ONLY] * len(batch)
        try:
            await self._admit(fence)
        except ReconcileError as error:
            return [outcome_from_error(error)] * len(batch)
        outcomes: list[Outcome] = []
        for item in batch:
            if self._storing.is_written(item.member):
                outcomes.append(Busy(detail="it is being written by this process"))
                continue
            with self._storing.claimed([item.member]):
                outcomes.append(await store_one(self, item, fence, limit))
        return outcomes

    async def verify(
        self, batch: Sequence[Member], *, limit: Limiter | None = None
    ) -> Sequence[Outcome]:
        """As ports.Tier.verify: reads the file itself, so that it proves this very copy."""
        try:
            _, copies = await self._copies(batch)
            return [await self._verified(one, copies.get(one.key), limit) for one in batch]
        except ReconcileError as error:
            return [outcome_from_error(error)] * len(batch)

    async def _verified(self, member: Member, copy: Copy | None, limit: Limiter | None) -> Outcome:
        if self._storing.is_written(member):
            return Busy(detail="it is being written by this process")
        if copy is None:
            return Conflict(detail="no complete replica is there")
        try:
            await _charge(limit, member.size_bytes)
            if copy.in_place:
                stamp, got = await self.files.call(FileEngine.seal, copy.path)
                copy = replace(copy, stamp=stamp)
            else:
                got = await self.files.call(FileEngine.digest, copy.path, copy.stamp)
            if got != member.sha256:
                return Corrupt(expected=member.sha256, got=got, instance_id=copy.instance_id)
            return await self._note(member, copy)
        except ReconcileError as error:
            return outcome_from_error(error, expected_sha256=member.sha256)

    async def _note(self, member: Member, copy: Copy) -> Outcome:
        """The file is right: have it in the book, which says nothing of what is in memory by it."""
        book = self._connection.book
        row = book.get(member.key)
        if row is None or (row.group_id, row.sha256) != (member.group_id, member.sha256):
            row = row_of(member, token="", owner="")
        known = replace(row, file=copy.path, file_stamp=copy.stamp)
        if known != book.get(member.key) and not self._connection.context.read_only:
            await to_thread.run_sync(book.put, [known])
        return Done(instance_id=copy.instance_id, moved_bytes=member.size_bytes)

    @asynccontextmanager
    async def open(self, member: Member) -> AsyncIterator[FileReader]:  # type: ignore[override]
        """As ports.Tier.open: the file, which takes no lease."""
        connection, key = self._connection, member.key
        connection.reading[key] += 1
        try:
            _, copies = await self._copies([member])
            copy = copies.get(key)
            if copy is None or self._storing.is_written(member):
                raise TransientError(
                    f"object {key} in tier {self.profile.name}",
                    "no complete replica is there",
                    "it is looked at again",
                )
            yield FileReader(self.files, copy, member.size_bytes, copy.instance_id)
        finally:
            connection.reading[key] -= 1
            if not connection.reading[key]:
                del connection.reading[key]

    # --- removing ---

    async def drop(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        """As ports.Tier.drop: whole objects with their files, and files that stand alone."""
        if self._connection.context.read_only:
            return [READ_ONLY] * len(batch)
        try:
            await self._admit(fence)
            return await self._dropped(batch) if batch else []
        except ReconcileError as error:
            return [outcome_from_error(error)] * len(batch)

    async def _dropped(self, batch: Sequence[DropItem]) -> Sequence[Outcome]:
        entries, copies = await self._copies([item.member for item in batch])
        asides = await self.files.asides([item.member for item in batch], entries)
        work = Work()
        for index, item in enumerate(batch):
            entry = entries.get(item.member.key)
            refused = self._named(item, copies.get(item.member.key))
            if item.instance_id == instance_of(asides.get(item.member.key, "")):
                path = self.files.path_of(item.member.key, entries)
                await self.files.call(FileEngine.remove_aside, path)
                work.outcomes[index] = Done(instance_id=item.instance_id)
            elif refused is not None:
                work.outcomes[index] = refused
            elif item.whole or is_absent(entry):
                work.whole.append(index)
            else:
                work.outcomes[index] = Permanent(detail=ALONE)
        if work.whole:
            whole = tuple(work.whole)
            await remove_whole(self._connection, batch, work, entries)
            for index in whole:  # of an object that the Master had forgotten the file was there
                if isinstance(work.outcomes[index], NoOp):
                    work.outcomes[index] = Done(instance_id=batch[index].instance_id)
        return [work.outcomes[index] for index in range(len(batch))]

    def _named(self, item: DropItem, copy: Copy | None) -> Outcome | None:
        """Why the named file cannot go, or has gone; None when it is there."""
        member = item.member
        if copy is None or self._connection.book.others(member.group_id, [member.key]):
            return NoOp()
        if copy.instance_id != item.instance_id:
            return Conflict(detail="another copy is there")
        if self._connection.reading[item.member.key]:
            return Busy(detail="it is open for reading in this process")
        return None

    async def quarantine(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        """As ports.Tier.quarantine: Mooncake's readers fail then, and get no wrong bytes."""
        if self._connection.context.read_only:
            return [READ_ONLY] * len(batch)
        try:
            await self._admit(fence)
            _, copies = await self._copies([item.member for item in batch])
            return [await self._set_aside(item, copies.get(item.member.key)) for item in batch]
        except ReconcileError as error:
            return [outcome_from_error(error)] * len(batch)

    async def _set_aside(self, item: DropItem, copy: Copy | None) -> Outcome:
        refused = self._named(item, copy)
        if refused is not None or copy is None:
            return refused or NoOp()
        try:
            await self.files.call(FileEngine.set_aside, copy.path, copy.stamp)
        except ReconcileError as error:
            return outcome_from_error(error)
        return Done(instance_id=item.instance_id)


def _item(
    key: str, stamp: str, state: Literal["complete", "quarantined"] = "complete"
) -> InventoryItem:
    return InventoryItem(
        key=key, instance_id=instance_of(stamp), size_bytes=size_of_stamp(stamp), state=state
    )


async def _charge(limit: Limiter | None, size_bytes: int) -> None:
    if limit is not None:
        for start in range(0, size_bytes, PIECE_BYTES):
            await limit.charge(min(PIECE_BYTES, size_bytes - start))
