"""Rotten, torn and foreign bytes in the nof engine's own structures."""

import random
from dataclasses import replace

import pytest

from tests.support.nof_media import (
    FENCE,
    HOLDER,
    UUID,
    MemoryMedium,
    content_of,
    drop_item,
    formatted,
    read,
    reopened,
    store_one,
)
from weightctl.adapters.nof.header import read_superblock
from weightctl.adapters.nof.layout import (
    SLOT_OFFSETS,
    Geometry,
    checksum,
    decode_superblock,
    encode_superblock,
)
from weightctl.adapters.nof.records import Catalog, Drop, Put, Quarantine, Replica, pack, unpack
from weightctl.adapters.nof.writer import read_catalog
from weightctl.controller.errors import ConfigError, TerminalError

KEYS = [f"k{i}" for i in range(6)]


def _written(*, orderly: bool = True) -> MemoryMedium:
    """A device with six replicas, each in a frame of its own."""
    medium = formatted()
    device = reopened(medium)
    for key in KEYS:
        store_one(medium, device, key, content_of(key, 5000))
    if orderly:
        device.close()
    return medium


def _copies(medium: MemoryMedium) -> list[int]:
    superblock = read_superblock(medium)
    return [superblock.geometry.index_offset(superblock.half, copy) for copy in (0, 1)]


def _flip(medium: MemoryMedium, offset: int) -> None:
    medium.data[offset] ^= 0x10


def _all_there(medium: MemoryMedium) -> bool:
    device = reopened(medium)
    return all(read(medium, device, key) == content_of(key, 5000) for key in KEYS)


@pytest.mark.parametrize("copy", [0, 1])
@pytest.mark.parametrize("orderly", [True, False])
def test_any_flipped_bit_in_one_copy_of_the_index_is_repaired(copy: int, orderly: bool) -> None:
    chance = random.Random(7)
    for _ in range(40):
        medium = _written(orderly=orderly)
        start = _copies(medium)[copy]
        _flip(medium, start + chance.randrange(7 * 4096))
        assert _all_there(medium)
        # The other copy may rot now: the first one was made right.
        _flip(medium, _copies(medium)[1 - copy] + chance.randrange(7 * 4096))
        assert _all_there(medium)


@pytest.mark.parametrize("slot", SLOT_OFFSETS)
def test_any_flipped_bit_in_one_superblock_slot_is_repaired(slot: int) -> None:
    chance = random.Random(8)
    for _ in range(40):
        medium = _written()
        _flip(medium, slot + chance.randrange(4096))
        assert _all_there(medium)
        assert medium.data[SLOT_OFFSETS[0] :][:4096] == medium.data[SLOT_OFFSETS[1] :][:4096]


@pytest.mark.parametrize("frame", range(7))
@pytest.mark.parametrize("orderly", [True, False])
def test_a_frame_lost_in_both_copies_is_damage_and_never_the_end(frame: int, orderly: bool) -> None:
    medium = _written(orderly=orderly)
    for start in _copies(medium):
        _flip(medium, start + frame * 4096 + 70)
    before = bytes(medium.data)
    if frame == 6 and not orderly:  # just like a frame that a power loss tore
        assert len(reopened(medium).catalog.replicas) == 5
        return
    with pytest.raises(TerminalError, match="damaged"):
        reopened(medium)
    assert medium.data == before


def test_a_sound_frame_of_another_history_is_not_read() -> None:
    medium, other = formatted(), formatted()
    for target, key in ((medium, "ours"), (other, "theirs")):
        device = reopened(target)
        store_one(target, device, key, b"x")
        store_one(target, device, "last", b"x")
    for start in _copies(medium):
        medium.data[start + 8192 : start + 12288] = other.data[start + 8192 : start + 12288]
    with pytest.raises(TerminalError, match="damaged"):
        reopened(medium)


def test_both_superblock_slots_damaged_is_not_a_blank_device() -> None:
    medium = _written()
    for slot in SLOT_OFFSETS:
        _flip(medium, slot + 30)
    with pytest.raises(TerminalError, match="superblock"):
        reopened(medium)


def test_an_unreadable_copy_is_served_from_the_other_one() -> None:
    medium = _written()
    first, second = _copies(medium)
    medium.bad = {first + 4096, SLOT_OFFSETS[0]}
    assert _all_there(medium)
    medium.bad = {first + 4096, second + 4096}
    with pytest.raises(OSError, match="both copies"):
        reopened(medium)


def test_a_truncated_device_is_refused() -> None:
    medium = _written()
    del medium.data[-4096:]
    with pytest.raises(TerminalError, match="truncated"):
        reopened(medium)


def test_a_newer_format_is_refused_and_left_alone() -> None:
    medium = _written()
    for slot in SLOT_OFFSETS:
        medium.data[slot + 8] = 2
    before = bytes(medium.data)
    with pytest.raises(ConfigError, match="newer format"):
        reopened(medium)
    assert medium.data == before


def test_frames_of_an_older_use_of_the_half_are_not_read() -> None:
    medium = formatted()
    device = reopened(medium)
    halves = {device.superblock.half}
    while len(halves) < 2 or device.superblock.half == 0:
        instance = store_one(medium, device, "churn", b"x")
        device.drop([drop_item("churn", instance)], FENCE)
        halves.add(device.superblock.half)
    while device.superblock.half == 1:
        instance = store_one(medium, device, "churn", b"x")
        device.drop([drop_item("churn", instance)], FENCE)
    assert device.superblock.half == 0  # the half is full of frames of its first use
    store_one(medium, device, "k", b"now")
    again = reopened(medium)
    assert sorted(replica.key for replica in again.catalog.replicas.values()) == ["k"]


def test_a_superblock_round_trips() -> None:
    value = read_superblock(_written())
    value = replace(value, holder=replace(HOLDER, host="h" * 300, boot_id="\udcff"))
    decoded = decode_superblock(encode_superblock(value))
    assert decoded == replace(value, holder=replace(value.holder, host="h" * 255))


def test_a_superblock_with_a_right_checksum_and_no_sense_is_damage() -> None:
    value = read_superblock(_written())
    assert decode_superblock(encode_superblock(replace(value, half=2))) is None


def test_a_checksum_depends_on_the_device() -> None:
    assert checksum(b"a", key=UUID) != checksum(b"a", key=b"x" * 16)
    assert checksum(b"a", b"b") == checksum(b"ab")


@pytest.mark.parametrize("size", [4 << 20, 64 << 20, 20 << 30, 64 << 40])
def test_the_regions_fill_the_device_and_do_not_overlap(size: int) -> None:
    geometry = Geometry.of_size(size + 100)
    assert geometry.index_offset(1, 1) + geometry.half_bytes == geometry.data_offset
    assert geometry.block_offset(geometry.data_blocks) == geometry.total_bytes == size
    assert geometry.data_offset <= size // 2


@pytest.mark.parametrize(
    "raw", [b"\x09", b"\x03\x01", b"\x02" + bytes(40), b"\x01\xff\xff", bytes(1)]
)
def test_bytes_that_are_no_record_are_damage(raw: bytes) -> None:
    with pytest.raises(TerminalError):
        list(unpack(memoryview(raw)))


@pytest.mark.parametrize(
    "changes",
    [
        [Drop(1)],
        [Quarantine(1)],
        [Put(Replica(1, "g", "k", 0, bytes(32), ())), Put(Replica(1, "g", "j", 0, bytes(32), ()))],
        [Put(Replica(1, "g", "k", 0, bytes(32), ())), Put(Replica(2, "g", "k", 0, bytes(32), ()))],
    ],
)
def test_a_change_that_cannot_follow_is_damage(changes: list[Put | Drop | Quarantine]) -> None:
    catalog = Catalog()
    for change in changes[:-1]:
        catalog.apply(change)
    with pytest.raises(TerminalError):
        catalog.apply(changes[-1])


@pytest.mark.parametrize(
    "size_bytes, extents",
    [
        (4097, ((0, 1),)),
        (1, ((0, 2),)),
        (0, ((0, 1),)),
        (1, ()),
        (4096, ((0, 0), (1, 1))),
        (4096, ((2**64 - 1, 1),)),
        (8192, ((10**6, 2),)),
        (2**64 - 1, ((0, 1),)),
    ],
)
def test_extents_that_cannot_hold_their_replica_are_damage(
    size_bytes: int, extents: tuple[tuple[int, int], ...]
) -> None:
    medium = formatted()
    device = reopened(medium)
    store_one(medium, device, "sound", b"x")
    crafted = Put(Replica(7, "g", "crafted", size_bytes, bytes(32), extents))
    assert list(device._writer.carry_out([crafted])) == [None]
    for read_it in (reopened, read_catalog):
        with pytest.raises(TerminalError, match="crafted"):
            read_it(medium)


def test_packed_changes_are_bounded_and_round_trip() -> None:
    changes = [
        Put(Replica(i, f"group-{i // 3}", f"key-{i}", i, bytes([i]) * 32, ((i, 2), (i + 9, 1))))
        for i in range(50)
    ]
    payloads = list(pack(changes, 400))
    assert max(len(payload) for payload, _ in payloads) <= 400
    assert sum(count for _, count in payloads) == 50
    assert [change for raw, _ in payloads for change in unpack(memoryview(raw))] == changes
