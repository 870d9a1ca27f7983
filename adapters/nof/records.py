"""What the index says, as values and as bytes.  Layer: nof tier (pure).

Owns the replica record, the changes that a frame carries and the catalog they add up to.
Invariant: applying the frames of an epoch in order gives exactly the catalog of the writer that
appended them; a change that does not fit the catalog means damage and is never skipped.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from weightctl.adapters.nof.layout import BLOCK_BYTES, round_up
from weightctl.controller.errors import TerminalError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from weightctl.adapters.nof.allocator import Extent

TEXT_BYTES_MAX = 4096
"""Longest key or group id, in UTF-8 bytes."""

_GROUP, _PUT, _DROP, _QUARANTINE, _FENCE = range(1, 6)
_TEXT = struct.Struct("<BH")
_PUT_HEAD = struct.Struct("<BQQ32sBHH")
_EXTENT = struct.Struct("<QI")
_SERIAL = struct.Struct("<BQ")
_FENCE_HEAD = struct.Struct("<BQH")


_K = TypeVar("_K", str, int)


class Replica(NamedTuple):
    """One stored copy.  `serial` is never used again on this device."""

    serial: int
    group_id: str
    key: str
    size_bytes: int
    sha256: bytes
    extents: tuple[Extent, ...]
    quarantined: bool = False


class Put(NamedTuple):
    """A replica is there."""

    replica: Replica


class Drop(NamedTuple):
    """A replica is gone; its blocks are free."""

    serial: int


class Quarantine(NamedTuple):
    """A replica is out of sight, its bytes kept."""

    serial: int


class FenceTerm(NamedTuple):
    """Lower terms of this holder are not served any more."""

    holder: str
    term: int


Change = Put | Drop | Quarantine | FenceTerm


class Catalog:
    """Everything the index says: replicas by serial, visible ones by group and key, fences."""

    def __init__(self) -> None:
        self.replicas: dict[int, Replica] = {}
        self.visible: dict[str, dict[str, Replica]] = {}
        self.hidden: dict[str, dict[int, Replica]] = {}
        """Quarantined replicas, by group and serial."""
        self.fences: dict[str, int] = {}
        self.record_bytes = 0
        """Bytes of a snapshot of the replicas, without what each frame adds."""

    def apply(self, change: Change) -> None:
        """Take one change over.  Raises TerminalError for one that cannot follow."""
        match change:
            case Put(replica):
                self._put(replica)
            case Drop(serial):
                self._take(serial)
            case Quarantine(serial):
                self._put(self._take(serial)._replace(quarantined=True))
            case FenceTerm(holder, term):
                self.fences[holder] = max(term, self.fences.get(holder, 0))

    def changes(self) -> Iterator[Change]:
        """The catalog as changes, group by group: a snapshot."""
        for holder, term in self.fences.items():
            yield FenceTerm(holder, term)
        for group_id in dict.fromkeys((*self.visible, *self.hidden)):
            yield from map(Put, self.visible.get(group_id, {}).values())
            yield from map(Put, self.hidden.get(group_id, {}).values())

    def _put(self, replica: Replica) -> None:
        if replica.serial in self.replicas:
            raise _damaged(f"replica {replica.serial:x} is there twice")
        if not self._has_group(replica.group_id):
            self.record_bytes += group_bytes(replica.group_id)
        if replica.quarantined:
            self.hidden.setdefault(replica.group_id, {})[replica.serial] = replica
        else:
            group = self.visible.setdefault(replica.group_id, {})
            if replica.key in group:
                raise _damaged(f"two replicas of {replica.key} are visible")
            group[replica.key] = replica
        self.replicas[replica.serial] = replica
        self.record_bytes += put_bytes(replica)

    def _take(self, serial: int) -> Replica:
        replica = self.replicas.pop(serial, None)
        if replica is None:
            raise _damaged(f"replica {serial:x} is not there")
        if replica.quarantined:
            _remove(self.hidden, replica.group_id, serial)
        else:
            _remove(self.visible, replica.group_id, replica.key)
        self.record_bytes -= put_bytes(replica)
        if not self._has_group(replica.group_id):
            self.record_bytes -= group_bytes(replica.group_id)
        return replica

    def _has_group(self, group_id: str) -> bool:
        return group_id in self.visible or group_id in self.hidden


def _remove(groups: dict[str, dict[_K, Replica]], group: str, key: _K) -> None:
    del groups[group][key]
    if not groups[group]:
        del groups[group]


def put_bytes(replica: Replica) -> int:
    """Bytes of its record, without the name of its group."""
    return _PUT_HEAD.size + len(_raw(replica.key)) + _EXTENT.size * len(replica.extents)


def group_bytes(group_id: str) -> int:
    """Bytes of the record that names a group."""
    return _TEXT.size + len(_raw(group_id))


def pack(changes: Iterable[Change], payload_bytes_max: int) -> Iterator[tuple[bytes, int]]:
    """Payloads of frames, in order: (bytes, how many of the changes it carries)."""
    parts: list[bytes] = []
    size, count, group = 0, 0, None
    for change in changes:
        raw = _encode(change)
        prefix = b""
        if isinstance(change, Put) and change.replica.group_id != group:
            prefix = _named_group(change.replica.group_id)
        if parts and size + len(prefix) + len(raw) > payload_bytes_max:
            yield b"".join(parts), count
            parts, size, count, group = [], 0, 0, None
            prefix = _named_group(change.replica.group_id) if isinstance(change, Put) else b""
        if isinstance(change, Put):
            group = change.replica.group_id
        parts += (prefix, raw)
        size += len(prefix) + len(raw)
        count += 1
    if parts:
        yield b"".join(parts), count


def unpack(payload: memoryview) -> Iterator[Change]:
    """The changes of one payload.  Raises TerminalError for bytes that are no record."""
    position, group = 0, ""
    try:
        while position < len(payload):
            kind = payload[position]
            if kind == _GROUP:
                _, size = _TEXT.unpack_from(payload, position)
                group, position = _read_text(payload, position + _TEXT.size, size)
            elif kind == _PUT:
                replica, position = _read_put(payload, position, group)
                yield Put(replica)
            elif kind in {_DROP, _QUARANTINE}:
                _, serial = _SERIAL.unpack_from(payload, position)
                position += _SERIAL.size
                yield Drop(serial) if kind == _DROP else Quarantine(serial)
            elif kind == _FENCE:
                _, term, size = _FENCE_HEAD.unpack_from(payload, position)
                holder, position = _read_text(payload, position + _FENCE_HEAD.size, size)
                yield FenceTerm(holder, term)
            else:
                raise _damaged(f"record kind {kind} is not known")
    except struct.error as error:
        raise _damaged("a record is cut off") from error


def refuse_misfit(change: Change, blocks: int) -> None:
    """Raise TerminalError for a replica whose extents do not hold it or lie outside the device.

    blocks: of the data region.  A right checksum proves no sense.
    """
    if not isinstance(change, Put):
        return
    replica = change.replica
    if sum(count for _, count in replica.extents) * BLOCK_BYTES != round_up(replica.size_bytes):
        raise _damaged(f"the extents of {replica.key!r} do not hold its {replica.size_bytes} bytes")
    if not all(count and start + count <= blocks for start, count in replica.extents):
        raise _damaged(f"extents of {replica.key!r} lie outside of the {blocks} blocks")


def _encode(change: Change) -> bytes:
    match change:
        case Put(replica):
            key = _raw(replica.key)
            head = _PUT_HEAD.pack(
                _PUT,
                replica.serial,
                replica.size_bytes,
                replica.sha256,
                replica.quarantined,
                len(key),
                len(replica.extents),
            )
            return head + key + b"".join(_EXTENT.pack(*extent) for extent in replica.extents)
        case Drop(serial):
            return _SERIAL.pack(_DROP, serial)
        case Quarantine(serial):
            return _SERIAL.pack(_QUARANTINE, serial)
        case FenceTerm(holder, term):
            raw = _raw(holder)
            return _FENCE_HEAD.pack(_FENCE, term, len(raw)) + raw


def _named_group(group_id: str) -> bytes:
    raw = _raw(group_id)
    return _TEXT.pack(_GROUP, len(raw)) + raw


def _read_text(payload: memoryview, start: int, size: int) -> tuple[str, int]:
    if start + size > len(payload):
        raise _damaged("a record is cut off")
    return str(payload[start : start + size], "utf-8", "surrogateescape"), start + size


def _read_put(payload: memoryview, position: int, group: str) -> tuple[Replica, int]:
    _, serial, size_bytes, sha256, quarantined, key_bytes, extents = _PUT_HEAD.unpack_from(
        payload, position
    )
    key, position = _read_text(payload, position + _PUT_HEAD.size, key_bytes)
    end = position + extents * _EXTENT.size
    runs = tuple(_EXTENT.iter_unpack(payload[position:end]))
    if len(runs) != extents:
        raise _damaged("a record is cut off")
    return Replica(serial, group, key, size_bytes, sha256, runs, bool(quarantined)), end


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _damaged(why: str) -> TerminalError:
    return TerminalError(
        "the index of the nof device contradicts itself",
        why,
        "keep the device as it is, store its replicas again elsewhere, then format it anew",
    )
