"""A recording, failing medium in memory for the nof engine, and what a power loss makes of it."""

import errno
import hashlib
import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from weightctl.adapters.nof.device import NofDevice, Ticket
from weightctl.adapters.nof.header import format_medium
from weightctl.adapters.nof.layout import Holder, aligned_buffer, round_up
from weightctl.adapters.nof.opening import open_device
from weightctl.controller.core.observation import Member
from weightctl.controller.ports import Done, DropItem, Fence, Outcome

HOLDER = Holder(host="here", boot_id="boot-1", pid=1, since_ms=1)
UUID = bytes(range(16))
FENCE = Fence(holder="store", term=1, operation_id=1, generation=1)
GROUP = "weight:" + "0" * 64
SECTOR = 512

Write = tuple[int, bytes]
Extent = tuple[int, int]


@dataclass(slots=True)
class MemoryMedium:
    """Keeps every write and flush in `events`; fails where `fail_writes` or `bad` says so."""

    data: bytearray
    events: list[object] = field(default_factory=list)
    locks: list[Extent] = field(default_factory=list)
    """Locks of other descriptors."""
    bad: set[int] = field(default_factory=set)
    """Offsets of 4 KiB blocks that cannot be read."""
    writes_left: int | None = None
    """Writes and flushes that still work."""
    replacement: str = ""

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        if any(offset <= block < offset + len(buffer) for block in self.bad):
            raise OSError(errno.EIO, "bad sector")
        assert offset + len(buffer) <= len(self.data)
        buffer[:] = self.data[offset : offset + len(buffer)]

    def write(self, offset: int, buffer: memoryview) -> None:
        self._count()
        assert offset % 4096 == 0
        assert len(buffer) % 4096 == 0
        self.events.append((offset, bytes(buffer)))
        self.data[offset : offset + len(buffer)] = buffer

    def sync(self) -> None:
        self._count()
        self.events.append("sync")

    def _count(self) -> None:
        if self.writes_left is not None:
            if self.writes_left == 0:
                raise OSError(errno.EIO, "the medium is gone")
            self.writes_left -= 1

    def lock(self, offset: int, size_bytes: int) -> bool:
        return self.locked(offset, size_bytes) is None

    def unlock(self, offset: int, size_bytes: int) -> None:
        pass

    def locked(self, offset: int, size_bytes: int) -> Extent | None:
        for start, size in sorted(self.locks):
            if start < offset + size_bytes and offset < start + size:
                return start, size
        return None

    def replaced(self) -> str:
        return self.replacement

    def close(self) -> None:
        pass


def blank(size_bytes: int = 4 * 1024 * 1024) -> MemoryMedium:
    return MemoryMedium(bytearray(size_bytes))


def formatted(size_bytes: int = 4 * 1024 * 1024) -> MemoryMedium:
    medium = blank(size_bytes)
    format_medium(medium, UUID, HOLDER)
    medium.events.clear()
    return medium


def reopened(medium: MemoryMedium) -> NofDevice:
    """The device as a fresh process finds it."""
    return open_device(medium, HOLDER)


def member(key: str, content: bytes, group: str = GROUP) -> Member:
    return Member(
        group_id=group, key=key, size_bytes=len(content), sha256=hashlib.sha256(content).digest()
    )


def content_of(key: str, size_bytes: int) -> bytes:
    """Bytes that only this key has."""
    return random.Random(key).randbytes(size_bytes)


def write_ticket(medium: MemoryMedium, device: NofDevice, ticket: Ticket, content: bytes) -> None:
    """Write a replica's bytes into its extents, as a data worker does."""
    geometry = device.superblock.geometry
    padded = content.ljust(round_up(len(content)), b"\0")
    position = 0
    for start, count in ticket.extents:
        size = count * 4096
        buffer = aligned_buffer(size)
        buffer[:] = padded[position : position + size]
        medium.write(geometry.block_offset(start), buffer)
        position += size


def store(medium: MemoryMedium, device: NofDevice, *items: tuple[str, bytes]) -> list[Outcome]:
    """Store each (key, content) of the usual group in one batch."""
    answers = device.reserve([member(key, content) for key, content in items], FENCE)
    tickets: list[Ticket] = []
    for answer, (_, content) in zip(answers, items, strict=True):
        if isinstance(answer, Ticket):
            write_ticket(medium, device, answer, content)
            tickets.append(answer)
    committed = iter(device.commit([ticket.serial for ticket in tickets], FENCE))
    return [next(committed) if isinstance(answer, Ticket) else answer for answer in answers]


def store_one(medium: MemoryMedium, device: NofDevice, key: str, content: bytes) -> str:
    """Store one replica that must succeed; its instance id."""
    (outcome,) = store(medium, device, (key, content))
    assert isinstance(outcome, Done), outcome
    return outcome.instance_id


def drop_item(key: str, instance_id: str, group: str = GROUP) -> DropItem:
    return DropItem(member=member(key, b"", group), instance_id=instance_id)


def read(medium: MemoryMedium, device: NofDevice, key: str, group: str = GROUP) -> bytes | None:
    """The visible replica's bytes, or None."""
    replica = device.catalog.visible.get(group, {}).get(key)
    if replica is None:
        return None
    geometry = device.superblock.geometry
    runs = (
        medium.data[geometry.block_offset(start) : geometry.block_offset(start + count)]
        for start, count in replica.extents
    )
    return b"".join(runs)[: replica.size_bytes]


def states(device: NofDevice, *keys: str) -> list[str]:
    """How each key of the usual group is seen."""
    group = device.catalog.visible.get(GROUP, {})
    writing = {ticket.member.key for ticket in device.tickets}
    return ["partial" if k in writing else "complete" if k in group else "absent" for k in keys]


def power_losses(
    base: bytes, events: Sequence[object], chance: random.Random
) -> Iterator[tuple[int, bytearray]]:
    """(events seen, medium) for a power loss after each event: what was flushed, and any part of
    what was not, down to torn sectors of the last write.
    """
    durable = bytearray(base)
    loose: list[Write] = []
    yield 0, bytearray(durable)
    for count, event in enumerate(events, 1):
        if event == "sync":
            for write in loose:
                _apply(durable, write)
            loose = []
            yield count, bytearray(durable)
        elif isinstance(event, tuple):
            loose.append(event)
            for kept in _subsets(loose, chance):
                image = bytearray(durable)
                for write in kept:
                    _apply(image, write)
                yield count, image


def _subsets(loose: list[Write], chance: random.Random) -> Iterator[list[Write]]:
    """Which of the unflushed writes arrived: none, whole or torn, each by itself."""
    fates = list(itertools.product(("none", "whole", "torn"), repeat=len(loose)))
    for fate in fates if len(fates) <= 9 else chance.sample(fates, 9):
        kept: list[Write] = []
        for write, arrived in zip(loose, fate, strict=True):
            if arrived == "whole":
                kept.append(write)
            elif arrived == "torn":
                kept += _torn(write, chance)
        yield kept


def _torn(write: Write, chance: random.Random) -> Iterator[Write]:
    offset, data = write
    for start in range(0, len(data), SECTOR):
        if chance.random() < 0.5:
            yield offset + start, data[start : start + SECTOR]


def _apply(image: bytearray, write: Write) -> None:
    offset, data = write
    image[offset : offset + len(data)] = data
