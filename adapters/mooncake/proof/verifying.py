"""Reading back: what is proven of a replica, and what cannot be.  Layer: a tier; on the loop.

A reader is given the memory replica of an object where there is one, so a disk copy beside it
cannot be read.  Done for a cold kind says: the object's bytes are right, and its disk copy was made
by its host from this very put, or was read itself before, and that host answers now (`cold`).
Invariant: where that is not known it is Retry with the reason, and never Done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from weightctl.adapters.mooncake.client.transfers import digest_of
from weightctl.adapters.mooncake.master.replicas import LOCAL_DISK, in_memory, state_of
from weightctl.adapters.mooncake.proof import on_disk
from weightctl.adapters.mooncake.proof.cold import doubts, note_sole, was_read
from weightctl.adapters.shared.translate import outcome_from_error
from weightctl.controller.core.observation import MemberState
from weightctl.controller.errors import ReconcileError, TerminalError, TransientError
from weightctl.controller.ports import Busy, Conflict, Corrupt, Done, Outcome, Retry

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from weightctl.adapters.mooncake.connection import Connection
    from weightctl.adapters.mooncake.master.replicas import Entry, OnLocalDisk, ReplicaKind
    from weightctl.adapters.mooncake.storing import Storing
    from weightctl.controller.core.observation import Member
    from weightctl.controller.ports import Limiter

    InstanceOf = Callable[[str, Entry], str]


@dataclass(frozen=True, slots=True)
class Seen:
    """What lies under a key, and the instance of it that is complete; None for none."""

    entry: Entry
    instance_id: str | None


class Verifying:
    """The verifications of one tier."""

    def __init__(
        self,
        connection: Connection,
        kind: ReplicaKind,
        storing: Storing,
        instance_of: InstanceOf,
    ) -> None:
        self._connection = connection
        self._kind = kind
        self._storing = storing
        self._instance_of = instance_of

    async def look(self, members: Sequence[Member]) -> dict[str, Seen]:
        """By key what is there.  Raises TransientError."""
        entries, _ = await self._connection.look.entries([member.key for member in members])
        found = {}
        for member in members:
            entry = entries.get(member.key)
            if entry is None:
                raise TransientError(f"object {member.key}", "the Master did not answer for it")
            there = state_of(entry, self._kind, member.size_bytes) is MemberState.COMPLETE
            instance_id = self._instance_of(member.key, entry) if there else None
            found[member.key] = Seen(entry, instance_id)
        return found

    async def verify(self, batch: Sequence[Member], limit: Limiter | None) -> Sequence[Outcome]:
        """As ports.Tier.verify."""
        try:
            before = await self.look(batch)
            note_sole(self._connection, {key: seen.entry for key, seen in before.items()})
            doubted = await self._doubted(batch, before)
            alone = self._alone(batch, before, doubted)
            read = [
                await self._read_alone(one, alone, limit)
                or doubted.get(one.key)
                or await self._read_back(one, before[one.key], limit)
                for one in batch
            ]
            after = await self.look(batch)
            judged = [
                got
                if not isinstance(got, bytes)
                else await self._judged(one, got, before, after, alone=alone.get(one.key))
                for one, got in zip(batch, read, strict=True)
            ]
            right = [one for one, got in zip(batch, judged, strict=True) if isinstance(got, Done)]
            doubted = await self._doubted(right, after)
        except ReconcileError as error:
            return [outcome_from_error(error)] * len(batch)
        return [doubted.get(one.key, got) for one, got in zip(batch, judged, strict=True)]

    async def _doubted(
        self, members: Sequence[Member], seen: Mapping[str, Seen]
    ) -> dict[str, Retry]:
        """By key why the copies on disks cannot be counted on, where reading does not tell.

        Of an object that the book does not know reading the memory replica tells more.
        """
        if self._kind.hot:
            return {}
        asked = [
            one
            for one in members
            if seen[one.key].instance_id is not None
            and not (in_memory(seen[one.key].entry) and self._connection.book.get(one.key) is None)
        ]
        if not asked:
            return {}
        found = await doubts(self._connection, asked, {key: s.entry for key, s in seen.items()})
        return {key: Retry(detail=why) for key, why in found.items()}

    def _alone(
        self, members: Sequence[Member], seen: Mapping[str, Seen], doubted: Collection[str]
    ) -> dict[str, OnLocalDisk]:
        """By key the disk copy that is read from its host itself, beside memory.

        Only where it is known what memory holds: reading the copy does not tell that.  A host that
        does not answer is not asked.
        """
        found: dict[str, OnLocalDisk] = {}
        if self._kind is not LOCAL_DISK:
            return found
        for one in members:
            entry, row = seen[one.key].entry, self._connection.book.get(one.key)
            if not in_memory(entry) or row is None or not row.says(one.sha256):
                continue
            copy = on_disk.one_copy(entry, one, self._connection.unread_disks)
            if copy is None or self._storing.is_written(one):
                continue
            if one.key not in doubted or copy.place != row.keeper:
                found[one.key] = copy
        return found

    async def _read_alone(
        self, member: Member, alone: dict[str, OnLocalDisk], limit: Limiter | None
    ) -> bytes | Outcome | None:
        """The digest of that copy, or why it was not read now; None where it cannot be."""
        copy = alone.get(member.key)
        if copy is None:
            return None
        refused = await self._connection.reads.within_budget(member)
        if refused is not None:
            return refused
        try:
            return await on_disk.read(self._connection, member, copy, limit)
        except TerminalError:
            del alone[member.key]
            return None
        except ReconcileError as error:
            return outcome_from_error(error, expected_sha256=member.sha256)

    async def _read_back(
        self, member: Member, seen: Seen, limit: Limiter | None
    ) -> bytes | Outcome:
        """The digest of what is read, or why nothing was."""
        if self._storing.is_written(member):
            return Busy(detail="it is being written by this process")
        if seen.instance_id is None:
            return Conflict(detail="no complete replica is there")
        refused = await self._connection.reads.may_verify(member)
        if refused is not None:
            return refused
        try:
            return await digest_of(self._connection, member, limit)
        except ReconcileError as error:
            return outcome_from_error(error, expected_sha256=member.sha256)

    async def _judged(
        self,
        member: Member,
        got: bytes,
        before: Mapping[str, Seen],
        after: Mapping[str, Seen],
        *,
        alone: OnLocalDisk | None,
    ) -> Outcome:
        instance_id = before[member.key].instance_id
        if instance_id is None or after[member.key].instance_id != instance_id:
            return Retry(detail="its copies changed while it was read")
        if got != member.sha256 and alone is not None:
            return Retry(detail=on_disk.WRONG)
        if got != member.sha256:
            self._connection.sole.pop(member.key, None)
            return Corrupt(expected=member.sha256, got=got, instance_id=instance_id)
        try:
            instance_id = await self._storing.recognise(member) or instance_id
            seen = before[member.key].entry, after[member.key].entry
            if alone is None:
                await was_read(self._connection, member, *seen)
            else:
                await on_disk.note_right(self._connection, member, alone)
        except ReconcileError as error:
            return outcome_from_error(error, expected_sha256=member.sha256)
        return Done(instance_id=instance_id, moved_bytes=member.size_bytes)
