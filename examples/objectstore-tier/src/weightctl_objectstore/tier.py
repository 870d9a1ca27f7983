"""`weightctl.controller.ports.Tier` in a bucket.

What holds throughout: whatever was not answered is UNKNOWN, and a change whose answer was lost is
Unknown; nothing is overwritten, because no name is used twice; nothing is acted upon that was not
just listed.
"""

import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Self

from anyio import Semaphore, to_thread

from weightctl.adapters.shared.translate import outcome_from_error
from weightctl.controller.core.observation import (
    Member,
    Members,
    TierObservation,
    unknown_observation,
)
from weightctl.controller.core.tiers import Capabilities, TierCapacity, TierProfile
from weightctl.controller.errors import ReconcileError, TransientError, WeightctlError
from weightctl.controller.ports import (
    PIECE_BYTES,
    Busy,
    Conflict,
    Corrupt,
    Done,
    DropItem,
    Fence,
    InventoryItem,
    Limiter,
    NoOp,
    Outcome,
    Permanent,
    RangedReader,
    StoreItem,
    TierContext,
    Unknown,
)
from weightctl_objectstore import names
from weightctl_objectstore.bucket import Bucket
from weightctl_objectstore.looking import Looking, judge
from weightctl_objectstore.medium import Medium
from weightctl_objectstore.names import Listing, Place, Replica
from weightctl_objectstore.options import Options
from weightctl_objectstore.room import Room
from weightctl_objectstore.spread import spread
from weightctl_objectstore.storing import Writers
from weightctl_objectstore.uploads import Uploads

MOVING_MAX = 4
"""Replicas that move at once, over all calls: four times an upload's memory."""
_READ_ONLY = Permanent(detail="the tier was opened for asking only")


class ObjectStoreTier:
    """The tier `name`; the parts are used by nobody else."""

    def __init__(
        self,
        name: str,
        *,
        options: Options,
        bucket: Bucket,
        medium: Medium,
        uploads: Uploads,
        context: TierContext,
    ) -> None:
        capabilities = Capabilities(
            persistent=True, shared=True, atomic_publish=True, checksum=True
        )
        self.profile = TierProfile(
            name=name,
            kind="objectstore",
            hot=False,
            capabilities=capabilities,
            bandwidth_bytes_per_s=100 * 1024**2,
            latency_s=0.05,
        )
        self._bucket = bucket
        self._medium = medium
        self._uploads = uploads
        self._read_only = context.read_only
        self._room = Room(options.capacity_bytes, self._count, context.clock)
        self._writers = Writers(bucket, medium, self._room, context)
        self._readers: Counter[tuple[Place, str]] = Counter()
        self._looking = Looking(bucket, medium)
        self._moving = Semaphore(MOVING_MAX)

    async def __aenter__(self) -> Self:
        """Set the place up where it is new.  Raises ConfigError; one that is away is no error."""
        with suppress(ReconcileError):  # until it is back, or ours, observing says why not
            await self._medium.enter()
            if not self._read_only:
                await to_thread.run_sync(self._uploads.sweep)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Wait, not for ever, for what is being completed."""
        await self._writers.ended(self._bucket.deadline_s)

    # --- looking ----------------------------------------------------------------------------------

    async def observe(self, members: Members, *, detail: Sequence[int] = ()) -> TierObservation:
        """As the port."""
        try:
            writing = self._writers.writing()  # before and after: it may end while we list
            epoch, found = await self._looking.at(members.group_id, members.keys)
        except WeightctlError as error:
            return unknown_observation(len(members), f"{error.what}: {error.why}")
        # In a thread: a million names are no work for a loop.
        ask = partial(judge, members, detail, found, writing | self._writers.writing())
        states, details = await to_thread.run_sync(ask)
        return TierObservation(states=states, epoch=epoch, details=details)

    async def inventory(self, group_id: str | None = None) -> Mapping[str, Sequence[InventoryItem]]:
        """As the port; unfinished uploads are in no listing, and swept on entering."""
        return await self._looking.items(group_id)

    async def capacity(self) -> TierCapacity:
        """As the port."""
        await self._medium.epoch()
        return await self._room.capacity()

    def map_path(self, member: Member) -> str | None:  # noqa: ARG002 - the port's signature
        """An object is no file."""
        return None

    async def _count(self) -> int:
        return (await self._looking.everywhere(None)).used_bytes()

    # --- moving -----------------------------------------------------------------------------------

    async def store(
        self, batch: Sequence[StoreItem], fence: Fence, *, limit: Limiter | None = None
    ) -> Sequence[Outcome]:
        """As the port."""
        if self._read_only:
            return [_READ_ONLY] * len(batch)
        outcomes: list[Outcome] = [Unknown(detail="not reached")] * len(batch)
        claimed = self._writers.claim(batch)

        async def store_one(index: int) -> None:
            item = batch[index]
            if index not in claimed:
                outcomes[index] = Busy(detail="it is being written")
                return
            try:
                outcomes[index] = await self._writers.store(
                    item, claimed[index], found, fence, limit
                )
            except (WeightctlError, OSError) as error:
                outcomes[index] = outcome_from_error(error, expected_sha256=item.member.sha256)
            finally:
                self._writers.release([claimed[index]])

        try:
            await self._medium.admit(fence)
            found = await self._looking.at_members([item.member for item in batch])
            await spread(range(len(batch)), store_one, self._moving)
        except WeightctlError as error:
            return [outcome_from_error(error)] * len(batch)
        finally:
            self._writers.release(list(claimed.values()))
        return outcomes

    async def verify(
        self, batch: Sequence[Member], *, limit: Limiter | None = None
    ) -> Sequence[Outcome]:
        """As the port; what is read is digested, whatever the object store says it is."""
        outcomes: list[Outcome] = [Unknown(detail="not reached")] * len(batch)

        async def verify_one(index: int) -> None:
            try:
                outcomes[index] = await self._verify_one(batch[index], found, limit)
            except WeightctlError as error:
                outcomes[index] = outcome_from_error(error)

        try:
            found = await self._looking.at_members(batch)
        except WeightctlError as error:
            return [outcome_from_error(error)] * len(batch)
        await spread(range(len(batch)), verify_one, self._moving)
        return outcomes

    async def _verify_one(self, member: Member, found: Listing, limit: Limiter | None) -> Outcome:
        place = names.place_of(member)
        replica = found.seen(place, member.sha256)
        if replica is None:
            return Conflict(detail="no complete replica is there")
        digest = hashlib.sha256()
        for offset in range(0, replica.size_bytes, PIECE_BYTES):
            piece = bytearray(min(PIECE_BYTES, replica.size_bytes - offset))
            if limit is not None:
                await limit.charge(len(piece))
            name = names.name_of(*place, replica.instance_id)
            await self._bucket.read_into(name, offset, memoryview(piece))
            await to_thread.run_sync(digest.update, piece)
        got, instance_id = digest.digest(), replica.instance_id
        if got != member.sha256:
            return Corrupt(expected=member.sha256, got=got, instance_id=instance_id)
        return Done(instance_id=instance_id, moved_bytes=replica.size_bytes)

    @asynccontextmanager
    async def open(self, member: Member) -> AsyncIterator[RangedReader]:
        """As the port; from here the replica is not dropped while it is open."""
        place = names.place_of(member)
        await self._medium.epoch()
        found = await self._looking.unproven(member.group_id, [member.key])
        replica = found.seen(place, member.sha256)
        if replica is None:
            raise TransientError(f"{member.key!r} is not there", "no replica", "observe again")
        held = (place, replica.instance_id)
        self._readers[held] += 1
        try:
            yield Reader(self._bucket, names.name_of(*place, replica.instance_id), replica)
        finally:
            self._readers[held] -= 1
            if not self._readers[held]:
                del self._readers[held]

    # --- removing ---------------------------------------------------------------------------------

    async def drop(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        """As the port; the bytes of the whole batch in one request."""
        return await self._remove(batch, fence, hide=False)

    async def quarantine(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        """As the port; an empty object beside a replica hides it."""
        return await self._remove(batch, fence, hide=True)

    async def _remove(
        self, batch: Sequence[DropItem], fence: Fence, *, hide: bool
    ) -> Sequence[Outcome]:
        if self._read_only:
            return [_READ_ONLY] * len(batch)
        try:
            await self._medium.admit(fence)
            found = await self._looking.at_members([item.member for item in batch])
        except WeightctlError as error:
            return [outcome_from_error(error)] * len(batch)
        outcomes: list[Outcome] = []
        chosen: dict[str, Replica] = {}
        for item in batch:
            place = names.place_of(item.member)
            named = found.named(place, item.instance_id)
            outcomes.append(self._judged(item, place, named, found, hide=hide))
            if named is not None and isinstance(outcomes[-1], Done):
                chosen[names.name_of(*place, item.instance_id)] = named
        try:
            await (self._hide(chosen) if hide else self._drop(chosen))
        except WeightctlError as error:
            self._room.forget()
            failed = outcome_from_error(error)
            return [failed if isinstance(outcome, Done) else outcome for outcome in outcomes]
        return outcomes

    def _judged(
        self, item: DropItem, place: Place, named: Replica | None, found: Listing, *, hide: bool
    ) -> Outcome:
        """What becomes of an item; Done for a copy that is to be acted on."""
        if named is None:
            seen = found.seen(place, item.member.sha256)
            return NoOp() if seen is None else Conflict(detail=f"{seen.instance_id} is there")
        if hide and named.hidden:
            return NoOp()
        if not hide and self._readers[place, item.instance_id]:
            return Busy(detail="it is open for reading")
        return Done(instance_id=item.instance_id)

    async def _drop(self, chosen: Mapping[str, Replica]) -> None:
        await self._bucket.delete(list(chosen))
        self._room.changed(-sum(replica.size_bytes for replica in chosen.values()))
        # The flags last: until its bytes are gone a hidden copy must not come into sight again.
        flags = [name + names.QUARANTINED for name, replica in chosen.items() if replica.hidden]
        await self._bucket.delete(flags)

    async def _hide(self, chosen: Mapping[str, Replica]) -> None:
        async def hide_one(name: str) -> None:
            await self._bucket.put_new(name + names.QUARANTINED, b"")

        await spread(list(chosen), hide_one, self._looking.slots)


class Reader:
    """`ports.RangedReader` of one object."""

    def __init__(self, bucket: Bucket, name: str, replica: Replica) -> None:
        self._bucket = bucket
        self._name = name
        self.size_bytes = replica.size_bytes
        self.instance_id = replica.instance_id

    async def read_into(self, offset: int, buffer: memoryview) -> None:
        """As the port."""
        if offset + len(buffer) > self.size_bytes:
            raise TransientError("a read past the end", f"there are {self.size_bytes} bytes")
        for start in range(0, len(buffer), PIECE_BYTES):
            piece = buffer[start : start + PIECE_BYTES]
            await self._bucket.read_into(self._name, offset + start, piece)

    def fileno(self) -> int | None:
        """None: an object has no descriptor."""
        return None
