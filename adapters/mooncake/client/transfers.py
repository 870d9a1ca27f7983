"""Moving bytes into and out of Mooncake.  Layer: a tier; on the loop.

A put is a session: the object can be read by nobody before its end, and the end comes only after
the digest of all written bytes was right and the fence still held.  Whatever happens before leaves
nothing but a session that is revoked, or that the Master discards when its client died.
"""

from __future__ import annotations

import hashlib
import mmap
from typing import TYPE_CHECKING

from anyio import to_thread

from weightctl.adapters.mooncake.client.codes import Meaning, meaning_of, outcome_of_code, told
from weightctl.adapters.mooncake.client.engine import Engine
from weightctl.adapters.shared.pump import pump
from weightctl.adapters.shared.sources import opened_source
from weightctl.controller.errors import ReconcileError, TransientError, UnknownOutcomeError
from weightctl.controller.ports import (
    PIECE_BYTES,
    Busy,
    Corrupt,
    Done,
    NoCapacity,
    Outcome,
    RangedReader,
    Retry,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from weightctl.adapters.mooncake.connection import Connection
    from weightctl.controller.core.observation import Member
    from weightctl.controller.ports import Fence, Limiter, StoreItem

_LOANS = 3
"""A process that is held up for longer than a host lends its buffer reads it so often."""


async def put(
    connection: Connection, item: StoreItem, fence: Fence, limit: Limiter | None
) -> Outcome:
    """Put one object; Done without an instance id.  Raises ReconcileError."""
    member = item.member
    async with opened_source(item) as source:
        if source.size_bytes != member.size_bytes:
            return Corrupt(expected=member.sha256, got=b"", instance_id=source.instance_id)
        async with connection.clients.owner() as worker:
            code = await worker.call(
                Engine.begin,
                member.key,
                member.size_bytes,
                member.group_id,
                data_type=int(member.data_type),
                segment=connection.segments.next(),
            )
        if code != 0:
            return await no_room_or(connection, member, code)
        ended = False
        try:
            got = await write_all(connection, member.key, source, limit, Engine.write)
            if got != member.sha256:
                return Corrupt(expected=member.sha256, got=got)
            await to_thread.run_sync(connection.book.admit, fence)
            async with connection.clients.owner() as worker:
                ended = True  # from here on it may be there
                code = await worker.call(Engine.end, member.key)
        finally:
            if not ended:
                await connection.clients.revoke(member.key)
    if meaning_of(code) is Meaning.ABSENT:  # a success of a removal, not of this
        return Retry(detail=f"{told(code)}: what was begun was forgotten or discarded meanwhile")
    if code != 0:
        return outcome_of_code(code)
    return Done(moved_bytes=member.size_bytes)


async def no_room_or(connection: Connection, member: Member, code: int) -> Outcome:
    """What a put means that was refused with `code`.  Raises TransientError."""
    if meaning_of(code) is Meaning.EXISTS:  # since it was looked at; the next look compares
        return Busy(detail="somebody else has just begun to put it")
    if meaning_of(code) is not Meaning.FULL:
        return outcome_of_code(code)
    segments = await connection.segments.listed()
    free_bytes = sum(one.capacity_bytes - one.used_bytes for one in segments)
    return NoCapacity(needed_bytes=member.size_bytes, free_bytes=max(free_bytes, 0))


async def write_all(
    connection: Connection,
    key: str,
    source: RangedReader,
    limit: Limiter | None,
    write: Callable[[Engine, str, int, int], int],
) -> bytes:
    """Give every byte of the source to the owning client, by `write`; their SHA-256."""
    digest = hashlib.sha256()
    size_bytes = min(PIECE_BYTES, source.size_bytes)
    slots = [
        memoryview(bytearray(size_bytes))
        for _ in range(min(2, -(-source.size_bytes // PIECE_BYTES)))
    ]

    async def fill(slot: int, offset: int, size_bytes: int) -> None:
        if limit is not None:
            await limit.charge(size_bytes)
        try:
            await source.read_into(offset, slots[slot][:size_bytes])
        except UnknownOutcomeError as error:  # of a read, so nothing has happened
            raise TransientError(error.what, error.why, error.todo) from error

    async def drain(slot: int, offset: int, size_bytes: int) -> None:
        piece = slots[slot][:size_bytes]
        await to_thread.run_sync(digest.update, piece)
        async with connection.clients.owner() as worker:
            worker.buffer[:size_bytes] = piece
            code = await worker.call(write, key, offset, size_bytes)
        if code != size_bytes:
            raise TransientError(
                f"object {key} could not be written", told(code), "it is tried again"
            )

    await pump(source.size_bytes, fill, drain)
    return digest.digest()


async def digest_of(connection: Connection, member: Member, limit: Limiter | None) -> bytes:
    """SHA-256 of an object as a reader gets it, wherever it comes from.  Takes a lease.

    Raises ReconcileError.
    """
    key, size_bytes = member.key, member.size_bytes
    if limit is not None:
        for start in range(0, size_bytes, PIECE_BYTES):
            await limit.charge(min(PIECE_BYTES, size_bytes - start))
    async with connection.clients.reader() as worker:
        worker.at_end(Engine.let_go)
        connection.reads.note(member.group_id)
        code, digest = await worker.call(Engine.digest_in_memory, key, size_bytes)
        if code == size_bytes:
            connection.reads.note(member.group_id)
            return digest
        code = await worker.call(Engine.fetch, key, size_bytes)
        connection.reads.note(member.group_id)
        if code == size_bytes:
            return await worker.call(Engine.digest)
        # A read from a disk that has outlasted its lease has promoted the object.
        again, digest = await worker.call(Engine.digest_in_memory, key, size_bytes)
        if again != size_bytes:
            raise unreadable(key, code)
        return digest


async def digest_on_disk(
    connection: Connection, member: Member, endpoint: str, limit: Limiter | None
) -> bytes:
    """SHA-256 of the file of the host that serves it at `endpoint`, whatever memory holds.

    Takes no lease and promotes nothing.  Raises ReconcileError; TerminalError where it cannot
    be read so.
    """
    key, size_bytes, clock = member.key, member.size_bytes, connection.context.clock
    if limit is not None:
        for start in range(0, size_bytes, PIECE_BYTES):
            await limit.charge(min(PIECE_BYTES, size_bytes - start))
    for _ in range(_LOANS):
        async with connection.clients.reader() as worker:
            asked_s = clock.monotonic_s()
            digest, lent_ms = await worker.call(
                Engine.digest_on_disk, endpoint, key, size_bytes, connection.options.transfer_s
            )
        if (clock.monotonic_s() - asked_s) * 1000 < lent_ms:
            return digest
    raise TransientError(
        f"the file of {key} could not be read from the disk of the host at {endpoint}",
        f"reading it took longer than the host lends its buffer, {_LOANS} times",
        "it is read again",
    )


def unreadable(key: str, code: int) -> ReconcileError:
    """Why a read failed."""
    return TransientError(
        f"object {key} could not be read from Mooncake",
        told(code) if code < 0 else f"it has {code} bytes",
        "it is looked at again; see the logs of its hosts, and raise --default_kv_lease_ttl where"
        " reading takes longer than a lease",
    )


class Reader:
    """`ports.RangedReader` over one object; each read takes Mooncake's lease on it.

    Ranges come from a memory replica.  One on a disk can only be read whole: it is, once, and kept
    in this process until the reader is closed.
    """

    def __init__(self, connection: Connection, member: Member, instance_id: str) -> None:
        self._connection = connection
        self._key = member.key
        self._group_id = member.group_id
        self._whole: memoryview | None = None
        self._ranged = True
        self.size_bytes = member.size_bytes
        self.instance_id = instance_id

    async def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill the buffer from byte `offset`.  Raises ReconcileError."""
        target = buffer.cast("B")
        if offset + len(target) > self.size_bytes:
            raise TransientError(
                f"object {self._key}", f"byte {offset + len(target)} of {self.size_bytes}"
            )
        if self._whole is None and self._ranged:
            self._ranged = await self._read_ranges(offset, target)
        if self._ranged:
            return
        if self._whole is None:
            try:
                self._whole = await self._read_whole()
            except TransientError:  # a read from a disk that has outlasted its lease promotes it
                self._ranged = await self._read_ranges(offset, target)
                if self._ranged:
                    return
                raise
        target[:] = self._whole[offset : offset + len(target)]

    def fileno(self) -> None:
        """None: it lies on other hosts."""

    async def _read_ranges(self, offset: int, target: memoryview) -> bool:
        for start in range(0, len(target), PIECE_BYTES):
            part = target[start : start + PIECE_BYTES]
            async with self._connection.clients.reader() as worker:
                self._connection.reads.note(self._group_id)
                code = await worker.call(Engine.read, self._key, offset + start, len(part))
                if code != len(part):
                    return False
                part[:] = worker.buffer[: len(part)]
        self._connection.reads.note(self._group_id)
        return True

    async def _read_whole(self) -> memoryview:
        # Memory that the kernel gives page by page: zeroing it at once would hold up the loop.
        whole = memoryview(mmap.mmap(-1, max(self.size_bytes, 1)))
        async with self._connection.clients.reader() as worker:
            worker.at_end(Engine.let_go)
            self._connection.reads.note(self._group_id)
            code = await worker.call(Engine.fetch, self._key, self.size_bytes)
            self._connection.reads.note(self._group_id)
            if code != self.size_bytes:
                raise unreadable(self._key, code)
            for start in range(0, self.size_bytes, PIECE_BYTES):
                part = whole[start : start + PIECE_BYTES]
                await worker.call(Engine.piece, start, len(part))
                part[:] = worker.buffer[: len(part)]
        return whole
