"""The files of DISK replicas as the loop sees them.  Layer: a tier; on the loop.

The file is the copy: it outlives the Master, which forgets it, and it can be gone while the Master
still lists it.  So a DISK replica counts only as far as its file was seen here, and its content is
known when its stamp is the one that the book has, noted when the file was last read right.
Invariant: nobody is told that a file is absent whose medium may be away.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from weightctl.adapters.mooncake.master.replicas import DISK, has_cold, state_of
from weightctl.adapters.mooncake.root_fs.engine import FileEngine, size_of_stamp
from weightctl.adapters.shared.ownership import tell_adopted
from weightctl.adapters.shared.workers import EngineSpec, WorkerLimits, WorkerPool
from weightctl.controller.core.observation import MemberState
from weightctl.controller.ports import PIECE_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from weightctl.adapters.mooncake.master.replicas import Entry
    from weightctl.adapters.mooncake.options import ConnectionOptions
    from weightctl.adapters.mooncake.ownership.book import Book
    from weightctl.adapters.shared.workers import WorkerLease
    from weightctl.controller.core.observation import Member
    from weightctl.controller.ports import TierContext

P = ParamSpec("P")
R = TypeVar("R")

Stamps = tuple[str, str]
"""Of the file in its place, and of the one kept beside; empty for none."""
_WORKERS = 3
_LOOK_PATHS = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """The file that is a member's replica in this tier."""

    path: str
    stamp: str
    known: bool
    """Whether it was read right, and not changed since."""
    in_place: bool
    """Whether it lies where Mooncake's readers look, and not beside it while it is put anew."""

    @property
    def instance_id(self) -> str:
        """Names this very file, wherever the object has been put since."""
        return instance_of(self.stamp)


def instance_of(stamp: str) -> str:
    """The name of the file that has that stamp."""
    return f"file.{stamp}"


class DiskFiles:
    """The files of one cluster; within `running` they can be asked for."""

    def __init__(self, options: ConnectionOptions, context: TierContext, book: Book) -> None:
        self._book = book
        self._adopts = options.adopt and not context.read_only
        self._is_ours = False
        self._transfer_s = options.transfer_s
        self.is_missed = False
        """Whether the last put brought no file within its time."""
        self._pool = WorkerPool(
            f"{options.cluster}-files",
            EngineSpec(
                factory="weightctl.adapters.mooncake.root_fs.engine:FileEngine",
                options={"holder": context.holder},
            ),
            clock=context.clock,
            limits=WorkerLimits(workers=_WORKERS, deadline_s=options.deadline_s),
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Their workers run within the block."""
        async with self._pool:
            yield

    async def copies(
        self, members: Sequence[Member], entries: Mapping[str, Entry]
    ) -> dict[str, Copy]:
        """By key the file of each member that has one of its size.  Raises ReconcileError."""
        paths = {one.key: path for one in members if (path := self.path_of(one.key, entries))}
        looked = dict(zip(paths, await self.look(list(paths.values())), strict=True))
        found = {}
        for one in members:
            if one.key in looked:
                path = paths[one.key]
                copy = self.judged(one.key, one.size_bytes, one.sha256, path, looked[one.key])
                if copy is not None:
                    found[one.key] = copy
        return found

    async def asides(
        self, members: Sequence[Member], entries: Mapping[str, Entry]
    ) -> dict[str, str]:
        """By key the stamp of the file that was set aside.  Raises ReconcileError."""
        paths = {one.key: path for one in members if (path := self.path_of(one.key, entries))}
        stamps = await self._pool.call(FileEngine.asides, list(paths.values())) if paths else []
        return {key: stamp for key, stamp in zip(paths, stamps, strict=True) if stamp}

    async def look(self, paths: list[str]) -> list[Stamps]:
        """What lies at each path, and what is kept beside it.  Raises ReconcileError."""
        if self._adopts and paths:
            owner = await self._pool.call(FileEngine.adopt, paths[0])
            self._adopts = False
            tell_adopted(self._pool.name, owner)
        found: list[Stamps] = []
        for start in range(0, len(paths), _LOOK_PATHS):
            found += await self._pool.call(FileEngine.look, paths[start : start + _LOOK_PATHS])
        return found

    def path_of(self, key: str, entries: Mapping[str, Entry]) -> str:
        """Where its file is: as the Master says, or as the book remembers; empty for nowhere."""
        entry = entries.get(key)
        if entry is not None and entry.disk:
            return entry.disk[0].place
        row = self._book.get(key)
        return row.file if row is not None else ""

    def judged(
        self, key: str, size_bytes: int, sha256: bytes, path: str, seen: Stamps
    ) -> Copy | None:
        """Which file is the member's: the one that was read right before one of the right size."""
        row = self._book.get(key)
        right = row.file_stamp if row is not None and row.sha256 == sha256 else ""
        main, _ = seen
        for stamp in seen:
            if stamp and stamp == right and size_of_stamp(stamp) == size_bytes:
                return Copy(path=path, stamp=stamp, known=True, in_place=stamp == main)
        if main and size_of_stamp(main) == size_bytes:
            return Copy(path=path, stamp=main, known=False, in_place=True)
        return None

    async def sound(
        self, members: Sequence[Member], entries: Mapping[str, Entry]
    ) -> frozenset[str]:
        """Keys of which Mooncake lists a file that was read right and is there, unchanged.

        Raises ReconcileError.
        """
        listed = [
            one
            for one in members
            if state_of(entries.get(one.key), DISK, one.size_bytes) is MemberState.COMPLETE
        ]
        copies = await self.copies(listed, entries) if listed else {}
        return frozenset(key for key, copy in copies.items() if copy.known and copy.in_place)

    async def unlisted(
        self, members: Sequence[Member], entries: Mapping[str, Entry]
    ) -> frozenset[str]:
        """Keys of which Mooncake shows no cold replica, and yet a file is right and unchanged.

        A put that was killed before it had written leaves such a one.  Raises ReconcileError.
        """
        bare = [
            one
            for one in members
            if (entry := entries.get(one.key)) is None or not has_cold(entry, one.size_bytes)
        ]
        copies = await self.copies(bare, entries) if bare else {}
        return frozenset(key for key, copy in copies.items() if copy.known)

    async def make_sure(self, path: str) -> None:
        """Raise ReconcileError unless the folder of that file is this store's, from now on."""
        if path and not self._is_ours:
            await self.look([path])
            await self._pool.call(FileEngine.claim, path)
            self._is_ours = True

    # --- calls ---

    async def call(
        self, method: Callable[Concatenate[Any, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """One call that may take as long as moving an object.  Raises ReconcileError."""
        async with self.series() as worker:
            return await worker.call(method, *args, **kwargs)

    @asynccontextmanager
    async def series(self) -> AsyncIterator[WorkerLease]:
        """A worker for several such calls."""
        async with self._pool.lease(transfer=True, deadline_s=self._transfer_s) as worker:
            yield worker

    @asynccontextmanager
    async def short(self) -> AsyncIterator[WorkerLease]:
        """A worker for a few short calls."""
        async with self._pool.lease() as worker:
            yield worker


class FileReader:
    """`ports.RangedReader` over the file of one replica.  Takes no lease of Mooncake's."""

    def __init__(self, files: DiskFiles, copy: Copy, size_bytes: int, instance_id: str) -> None:
        self._files = files
        self._copy = copy
        self.size_bytes = size_bytes
        self.instance_id = instance_id

    async def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill the buffer from byte `offset`.  Raises ReconcileError."""
        target = buffer.cast("B")
        path, stamp = self._copy.path, self._copy.stamp
        async with self._files.short() as worker:  # who writes meanwhile has a worker of its own
            for start in range(0, len(target), PIECE_BYTES):
                part = target[start : start + PIECE_BYTES]
                await worker.call(FileEngine.read, path, stamp, offset + start, len(part))
                part[:] = worker.buffer[: len(part)]

    def fileno(self) -> None:
        """None: the file may be moved aside while it is read."""
