"""Moving planned ranges from a replica to a destination.  Layer: weightstore.

Owns chunking, scattering, and the digest of objects that are read whole.  A chunk that lands in one
piece of memory is read straight into it; anything else goes through one scratch buffer.  Reads from
a local descriptor run many chunks per thread hop; other readers are asked piece by piece.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from anyio import to_thread

from weightctl.controller.errors import IntegrityError, TransientError
from weightctl.controller.ports import PIECE_BYTES
from weightctl.controller.weightstore.digesting import ObjectDigest, Wait, nothing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weightctl.controller.core.observation import Member
    from weightctl.controller.core.ranges import ObjectRead, RangePlan
    from weightctl.controller.ports import Limiter, RangedReader, Tier

LOCAL_CHUNK_BYTES = 1024 * 1024
"""Fits a processor's cache, so that hashing right after reading costs no second trip to memory."""
RING = 4
"""Scratch buffers of an object that is digested while the next chunks are read."""
HOP_BYTES = 64 * 1024 * 1024
"""Bytes moved per thread hop from a local descriptor; the lease is checked in between."""


class Destination(Protocol):
    """Where tensors land: numbered spaces of bytes (a buffer or a file each)."""

    def locate(self, target: int) -> tuple[int, int]:
        """(space, base position) of target number `target` of the plan."""

    def window(self, space: int, position: int, nbytes: int) -> memoryview | None:
        """Writable memory of exactly those bytes, or None where there is only `write`."""

    def write(self, space: int, position: int, data: memoryview) -> None:
        """Put bytes there; may block; called in worker threads.  Raises TargetError."""


class Move(NamedTuple):
    """`nbytes` from `source` (within the object, or the chunk) to a place in a space."""

    source: int
    space: int
    position: int
    nbytes: int


class Chunk(NamedTuple):
    """One contiguous read and where its bytes go."""

    offset: int
    nbytes: int
    moves: list[Move]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectJob:
    """All reads of one object; `whole` when together they are the object, in one piece."""

    member: Member
    reads: Sequence[ObjectRead]

    @property
    def whole(self) -> bool:
        """Whether its digest can be checked along the way."""
        return len(self.reads) == 1 and self.reads[0].nbytes == self.member.size_bytes

    @property
    def nbytes(self) -> int:
        """Bytes to read."""
        return sum(read.nbytes for read in self.reads)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """What every object copy of one load shares."""

    plan: RangePlan
    destination: Destination
    verify: bool
    between: Callable[[int], None]
    """Called on the loop after each step with its bytes; may raise to stop."""

    async def copy(self, job: ObjectJob, tier: Tier, limit: Limiter | None = None) -> bool:
        """Copy one object's ranges from `tier`; True when its digest was checked.

        `limit` is charged before bytes are read.  Raises a ReconcileError for the replica's fault,
        TargetError for the destination's.
        """
        if not (self.verify and job.whole):
            await self._copy(job, tier, limit, None)
            return False
        with ObjectDigest(job.member.size_bytes) as digest:
            await self._copy(job, tier, limit, digest)
            if digest.digest() != job.member.sha256:
                raise _wrong(job.member, tier, f"its bytes have SHA-256 {digest.digest().hex()}")
        return True

    async def _copy(
        self, job: ObjectJob, tier: Tier, limit: Limiter | None, digest: ObjectDigest | None
    ) -> None:
        async with tier.open(job.member) as reader:
            if reader.size_bytes != job.member.size_bytes:
                raise _wrong(job.member, tier, f"it has {reader.size_bytes} bytes")
            descriptor = reader.fileno()
            if descriptor is None:
                await self._copy_remote(job, reader, limit, digest)
            else:
                await self._copy_local(job, descriptor, limit, digest)

    async def _copy_remote(
        self,
        job: ObjectJob,
        reader: RangedReader,
        limit: Limiter | None,
        digest: ObjectDigest | None,
    ) -> None:
        scratch = _scratch(job, PIECE_BYTES)
        for chunk in self._chunks(job, PIECE_BYTES):
            buffer = self._direct(chunk)
            direct = buffer is not None
            if buffer is None:
                buffer = scratch[: chunk.nbytes]
            await _charge(limit, chunk.nbytes)
            await reader.read_into(chunk.offset, buffer)
            if digest is not None or not direct:
                await to_thread.run_sync(self._land_and_wait, chunk, buffer, direct, digest)
            self.between(chunk.nbytes)

    async def _copy_local(
        self,
        job: ObjectJob,
        descriptor: int,
        limit: Limiter | None,
        digest: ObjectDigest | None,
    ) -> None:
        chunks = self._chunks(job, LOCAL_CHUNK_BYTES)
        ring = [_scratch(job, LOCAL_CHUNK_BYTES) for _ in range(RING if digest else 1)]
        left = job.nbytes
        while left > 0:
            asked = min(left, HOP_BYTES if limit is None else PIECE_BYTES)
            await _charge(limit, asked)
            moved = await to_thread.run_sync(self._hop, descriptor, asked, chunks, ring, digest)
            await _charge(limit, moved - asked)  # the last chunk may reach further
            left -= moved
            self.between(moved)

    def _hop(
        self,
        descriptor: int,
        asked: int,
        chunks: Iterator[Chunk],
        ring: Sequence[memoryview],
        digest: ObjectDigest | None,
    ) -> int:
        """Move the next chunks, `asked` bytes or a little more, in this thread; returns how many.

        At most as many buffers as the ring has are with the digest at a time.
        """
        moved = turn = 0
        waits: deque[Wait] = deque()
        while moved < asked and (chunk := next(chunks, None)) is not None:
            if len(waits) == len(ring):
                waits.popleft()()
            buffer = self._direct(chunk)
            direct = buffer is not None
            if buffer is None:
                buffer = ring[turn % len(ring)][: chunk.nbytes]
            _read_fully(descriptor, chunk.offset, buffer)
            waits.append(self._land(chunk, buffer, direct, digest))
            moved += chunk.nbytes
            turn += 1
        for wait in waits:
            wait()
        return moved

    def _direct(self, chunk: Chunk) -> memoryview | None:
        """The destination memory of a chunk that goes to one place whole."""
        if len(chunk.moves) != 1 or chunk.moves[0].nbytes != chunk.nbytes:
            return None
        move = chunk.moves[0]
        return self.destination.window(move.space, move.position, move.nbytes)

    def _land_and_wait(
        self,
        chunk: Chunk,
        buffer: memoryview,
        direct: bool,  # noqa: FBT001 - passed through a thread hop, which takes no keywords
        digest: ObjectDigest | None,
    ) -> None:
        self._land(chunk, buffer, direct, digest)()

    def _land(
        self,
        chunk: Chunk,
        buffer: memoryview,
        direct: bool,  # noqa: FBT001 - as above
        digest: ObjectDigest | None,
    ) -> Wait:
        """Bring a read chunk to its places; the buffer is free when the returned wait has ended."""
        wait = nothing if digest is None else digest.add(buffer)
        for source, space, position, nbytes in () if direct else chunk.moves:
            data = buffer[source : source + nbytes]
            window = self.destination.window(space, position, nbytes)
            if window is None:
                self.destination.write(space, position, data)
            else:
                window[:] = data
        return wait

    def _chunks(self, job: ObjectJob, step: int) -> Iterator[Chunk]:
        for read in job.reads:
            yield from _split(read, self._moves(read), step)

    def _moves(self, read: ObjectRead) -> list[Move]:
        """The read's pieces as moves, joined where they follow each other on both sides."""
        moves: list[Move] = []
        for piece in self.plan.pieces(read):
            space, base = self.destination.locate(piece.target)
            move = Move(piece.source, space, base + piece.offset, piece.nbytes)
            last = moves[-1] if moves else None
            if (
                last is not None
                and last.space == move.space
                and last.source + last.nbytes == move.source
                and last.position + last.nbytes == move.position
            ):
                moves[-1] = last._replace(nbytes=last.nbytes + move.nbytes)
            else:
                moves.append(move)
        return moves


def _split(read: ObjectRead, moves: Sequence[Move], step: int) -> Iterator[Chunk]:
    """Cut a read into chunks of at most `step` bytes; moves are cut with it."""
    end = read.offset + read.nbytes
    active: list[Move] = []
    following = 0
    for start in range(read.offset, end, step):
        stop = min(start + step, end)
        while following < len(moves) and moves[following].source < stop:
            active.append(moves[following])
            following += 1
        cut = []  # empty in a gap between wanted ranges; its bytes still count for the digest
        for source, space, position, nbytes in active:
            low, high = max(source, start), min(source + nbytes, stop)
            cut.append(Move(low - start, space, position + low - source, high - low))
        yield Chunk(start, stop - start, cut)
        active = [move for move in active if move.source + move.nbytes > stop]


async def _charge(limit: Limiter | None, size_bytes: int) -> None:
    if limit is not None and size_bytes:
        await limit.charge(size_bytes)


def _scratch(job: ObjectJob, size_bytes: int) -> memoryview:
    return memoryview(bytearray(min(size_bytes, max(read.nbytes for read in job.reads))))


def _read_fully(descriptor: int, offset: int, buffer: memoryview) -> None:
    done = 0
    try:
        while done < len(buffer):
            count = os.preadv(descriptor, [buffer[done:]], offset + done)
            if count == 0:
                raise TransientError(
                    f"a replica ended at byte {offset + done}",
                    "it is shorter than it was when it was opened",
                    "verify the revision; another replica is tried now",
                )
            done += count
    except OSError as error:
        raise TransientError(
            f"a replica could not be read at byte {offset + done}",
            error.strerror or str(error),
            "check the medium; another replica is tried now",
        ) from error


def _wrong(member: Member, tier: Tier, found: str) -> IntegrityError:
    return IntegrityError(
        f"object {member.key} in tier {tier.profile.name} is damaged",
        f"{found}, recorded are {member.size_bytes} bytes with SHA-256 {member.sha256.hex()}",
        "`weightctl repair` replaces the replica from a good one",
    )
