"""One batch of replicas on its way in: streamed, digested on the way, visible as a whole or not.

The digest of the source is known before the object is completed, and what does not match is taken
back.  Completing and taking back are tasks of their own: a caller who is cancelled does not wait
for them, and cannot call back a request that was sent; until its answer is there, or its deadline
has passed, the member stays "being written".
"""

import asyncio
import hashlib
from collections.abc import Sequence
from contextlib import suppress

from anyio import to_thread

from weightctl.adapters.shared.sources import opened_source
from weightctl.controller.core.identity import text_bytes
from weightctl.controller.core.observation import Member
from weightctl.controller.errors import ReconcileError, UnknownOutcomeError
from weightctl.controller.ports import (
    PIECE_BYTES,
    Conflict,
    Corrupt,
    Done,
    Fence,
    Limiter,
    NoOp,
    Outcome,
    RangedReader,
    StoreItem,
    TierContext,
)
from weightctl_objectstore import names
from weightctl_objectstore.bucket import Bucket, Upload
from weightctl_objectstore.medium import Medium
from weightctl_objectstore.names import Listing, Place
from weightctl_objectstore.room import Room


class Writers:
    """The members that this process is bringing in, and the completions that are under way."""

    def __init__(self, bucket: Bucket, medium: Medium, room: Room, context: TierContext) -> None:
        self._bucket = bucket
        self._medium = medium
        self._room = room
        self._context = context
        self._writing: set[Place] = set()
        self._completing: dict[Place, asyncio.Task[Outcome]] = {}
        self._aborting: set[asyncio.Task[None]] = set()

    def writing(self) -> frozenset[Place]:
        """The members that are neither there nor absent."""
        return frozenset(self._writing)

    def claim(self, batch: Sequence[StoreItem]) -> dict[int, Place]:
        """Take the members of a batch that nobody writes; their places by index."""
        claimed = {}
        for index, item in enumerate(batch):
            place = names.place_of(item.member)
            if place not in self._writing:
                self._writing.add(place)
                claimed[index] = place
        return claimed

    def release(self, places: Sequence[Place]) -> None:
        """Give claims back, but for those whose completion is still under way."""
        self._writing.difference_update(place for place in places if place not in self._completing)

    async def ended(self, deadline_s: float) -> None:
        """Wait for what is under way without a caller; what takes longer is cut off."""
        if tasks := {*self._completing.values(), *self._aborting}:
            _, late = await asyncio.wait(tasks, timeout=deadline_s)
            for task in late:
                task.cancel()

    async def store(
        self, item: StoreItem, place: Place, found: Listing, fence: Fence, limit: Limiter | None
    ) -> Outcome:
        """Bring one replica in.  Raises WeightctlError."""
        member = item.member
        if (there := found.seen(place, member.sha256)) is not None:
            if there.sha256 == member.sha256:
                return NoOp(instance_id=there.instance_id)
            return Conflict(detail=f"replica {there.instance_id} has other content")
        await self._room.reserve(member.size_bytes)
        try:
            return await self._bring_in(item, place, fence, limit)
        finally:
            self._room.release(member.size_bytes)

    async def _bring_in(
        self, item: StoreItem, place: Place, fence: Fence, limit: Limiter | None
    ) -> Outcome:
        member = item.member
        instance = names.new_instance(member.sha256, self._context.entropy.token(names.TOKEN_BYTES))
        upload = self._bucket.upload(names.name_of(*place, instance), member.size_bytes)
        completing = False
        try:
            async with opened_source(item) as reader:
                if reader.size_bytes != member.size_bytes:
                    return Corrupt(expected=member.sha256, got=b"")
                got = await _copy(reader, upload, limit)
            if got != member.sha256:
                return Corrupt(expected=member.sha256, got=got)
            await self._keep_texts(member, place)
            await self._medium.admit(fence)
            completing = True
            return await self._complete(upload, member, place, instance)
        finally:
            if not completing:
                self._abort(upload)

    def _abort(self, upload: Upload) -> None:
        async def abort() -> None:
            with suppress(ReconcileError):  # what stays is swept by a later start
                await upload.abort()

        task = asyncio.get_running_loop().create_task(abort())
        self._aborting.add(task)
        task.add_done_callback(self._aborting.discard)

    async def _complete(
        self, upload: Upload, member: Member, place: Place, instance: str
    ) -> Outcome:
        work = self._completed(upload, member, names.name_of(*place, instance), instance)
        self._completing[place] = task = asyncio.get_running_loop().create_task(work)

        def ended(_: asyncio.Task[Outcome]) -> None:
            del self._completing[place]
            self.release([place])

        task.add_done_callback(ended)
        await asyncio.wait([task])
        return task.result()

    async def _completed(self, upload: Upload, member: Member, name: str, instance: str) -> Outcome:
        """Make it visible; where the answer was lost, look whether it is there."""
        try:
            await upload.complete()
        except UnknownOutcomeError as error:
            self._room.forget()
            try:
                there = await self._bucket.exists(name)
            except ReconcileError:
                there = False
            if not there:  # not yet: the request may still be on its way
                raise error from None
        self._room.changed(member.size_bytes)
        return Done(instance_id=instance, moved_bytes=member.size_bytes)

    async def _keep_texts(self, member: Member, place: Place) -> None:
        """Texts that are too long for a name lie in objects of their own, before they are used."""
        for part, text in zip(place, (member.group_id, member.key), strict=True):
            if names.decode(part) is None:
                await self._bucket.put_new(names.name_of_text(part), text_bytes(text))


async def _copy(reader: RangedReader, upload: Upload, limit: Limiter | None) -> bytes:
    """Read the whole source into the upload; the digest of what was read."""
    digest = hashlib.sha256()
    for offset in range(0, reader.size_bytes, PIECE_BYTES):
        # Each piece has memory of its own: obstore sends it while the next one is being read.
        piece = bytearray(min(PIECE_BYTES, reader.size_bytes - offset))
        if limit is not None:
            await limit.charge(len(piece))
        await reader.read_into(offset, memoryview(piece))
        await to_thread.run_sync(digest.update, piece)
        await upload.write(piece)
    return digest.digest()
