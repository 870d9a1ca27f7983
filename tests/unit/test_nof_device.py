"""The nof engine's rules: reserve, commit, drop, quarantine, fences, capacity, reopening."""

import random

import pytest

from tests.support.nof_media import (
    FENCE,
    GROUP,
    HOLDER,
    MemoryMedium,
    blank,
    content_of,
    drop_item,
    formatted,
    member,
    read,
    reopened,
    states,
    store,
    store_one,
    write_ticket,
)
from weightctl.adapters.nof.allocator import EXTENTS_MAX
from weightctl.adapters.nof.device import Ticket
from weightctl.adapters.nof.header import format_medium
from weightctl.adapters.nof.layout import Holder
from weightctl.adapters.nof.opening import open_device
from weightctl.controller.errors import BusyError, ConfigError, TerminalError, TransientError
from weightctl.controller.ports import (
    Busy,
    Conflict,
    Done,
    Fence,
    Fenced,
    NoCapacity,
    NoOp,
    Permanent,
    Retry,
    Unknown,
)

MIB = 1024 * 1024


def _fence(term: int, holder: str = "store") -> Fence:
    return Fence(holder=holder, term=term, operation_id=1, generation=1)


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 300_000])
def test_a_stored_replica_reads_back_after_a_restart(size: int) -> None:
    medium = formatted()
    content = content_of("k", size)
    instance = store_one(medium, reopened(medium), "k", content)
    again = reopened(medium)
    assert read(medium, again, "k") == content
    assert store(medium, again, ("k", content)) == [NoOp(instance_id=instance)]


def test_the_same_content_is_a_no_op_and_other_content_a_conflict() -> None:
    medium = formatted()
    device = reopened(medium)
    store_one(medium, device, "k", b"one")
    same, other = store(medium, device, ("k", b"one"), ("k", b"two"))
    assert isinstance(same, NoOp)
    assert isinstance(other, Conflict)
    assert read(medium, device, "k") == b"one"


def test_a_key_that_is_being_written_is_seen_as_partial_and_is_busy() -> None:
    medium = formatted()
    device = reopened(medium)
    (ticket,) = device.reserve([member("k", b"one")], FENCE)
    assert isinstance(ticket, Ticket)
    assert states(device, "j", "k") == ["absent", "partial"]
    (second,) = device.reserve([member("k", b"one")], FENCE)
    assert isinstance(second, Busy)
    partial = drop_item("k", device.instance_id(ticket.serial))
    assert isinstance(device.drop([partial], FENCE)[0], Busy)
    device.abort([ticket.serial])
    assert states(device, "k") == ["absent"]
    assert device.commit([ticket.serial], FENCE) == [
        Retry(detail="the index was opened anew during the store; nothing was kept")
    ]


def test_a_drop_removes_only_the_instance_it_names() -> None:
    medium = formatted()
    device = reopened(medium)
    first = store_one(medium, device, "k", b"one")
    assert isinstance(device.drop([drop_item("k", first)], FENCE)[0], Done)
    second = store_one(medium, device, "k", b"one")
    assert first != second
    (late,) = device.drop([drop_item("k", first)], FENCE)
    assert isinstance(late, Conflict)
    for foreign in ("", "junk", "00010203-zz", "ffffffff-100000001"):
        assert isinstance(device.drop([drop_item("k", foreign)], FENCE)[0], Conflict)
    assert read(medium, device, "k") == b"one"
    done, doubled = device.drop([drop_item("k", second)] * 2, FENCE)
    assert isinstance(done, Done)
    assert isinstance(doubled, NoOp)
    assert device.drop([drop_item("k", second)], FENCE) == [NoOp()]


def test_an_instance_of_another_key_is_not_dropped() -> None:
    medium = formatted()
    device = reopened(medium)
    instance = store_one(medium, device, "k", b"one")
    assert device.drop([drop_item("j", instance)], FENCE) == [NoOp()]
    assert read(medium, device, "k") == b"one"


def test_instances_are_never_reused_across_restarts_and_lost_stores() -> None:
    medium = formatted()
    seen = set()
    for number in range(5):
        device = reopened(medium)
        device.reserve([member("lost", b"x")], FENCE)
        seen.add(store_one(medium, device, f"k{number}", b"x"))
    assert len(seen) == 5
    assert len({instance.split("-")[1][:-8] for instance in seen}) == 5


def test_a_quarantined_replica_is_out_of_sight_keeps_its_bytes_and_can_be_dropped() -> None:
    medium = formatted()
    device = reopened(medium)
    bad = store_one(medium, device, "k", b"bad")
    used = device.capacity()[0]
    assert isinstance(device.quarantine([drop_item("k", bad)], FENCE)[0], Done)
    assert isinstance(device.quarantine([drop_item("k", bad)], FENCE)[0], NoOp)
    assert read(medium, device, "k") is None
    store_one(medium, device, "k", b"good")
    device = reopened(medium)
    assert read(medium, device, "k") == b"good"
    assert [item.quarantined for item in device.catalog.replicas.values()] == [True, False]
    assert device.capacity()[0] == 2 * used
    assert isinstance(device.drop([drop_item("k", bad)], FENCE)[0], Done)
    assert device.capacity()[0] == used
    assert read(medium, device, "k") == b"good"


def test_a_lower_term_is_fenced_also_after_a_restart() -> None:
    medium = formatted()
    device = reopened(medium)
    instance = store_one(medium, device, "k", b"one")
    (ticket,) = device.reserve([member("j", b"two")], FENCE)
    assert isinstance(ticket, Ticket)
    assert isinstance(device.reserve([member("i", b"")], _fence(2))[0], Ticket)
    assert isinstance(device.commit([ticket.serial], FENCE)[0], Fenced)
    for restart in (False, True):
        opened = reopened(medium) if restart else device
        item = drop_item("k", instance)
        assert isinstance(opened.drop([item], FENCE)[0], Fenced)
        assert isinstance(opened.quarantine([item], FENCE)[0], Fenced)
        assert isinstance(opened.reserve([member("h", b"")], FENCE)[0], Fenced)
        assert isinstance(opened.reserve([member("h", b"")], _fence(1, "other"))[0], Ticket)
        assert read(medium, opened, "k") == b"one"


def test_remembered_fence_holders_are_bounded() -> None:
    medium = formatted()
    device = reopened(medium)
    for number in range(300):
        device.reserve([], _fence(5, f"holder-{number}"))
    assert len(device.catalog.fences) == 256
    again = reopened(medium)
    again.reserve([], _fence(1, "fresh"))
    assert len(again.catalog.fences) == 256


def test_a_replica_that_does_not_fit_is_refused_with_the_numbers() -> None:
    medium = formatted()
    device = reopened(medium)
    used, free, total = device.capacity()
    assert (used, free) == (0, total)
    (refused,) = device.reserve([member("k", bytes(free + 1))], FENCE)
    assert refused == NoCapacity(needed_bytes=free + 4096, free_bytes=free)
    store_one(medium, device, "k", content_of("k", free))
    assert device.capacity() == (total, 0, total)
    assert device.reserve([member("j", b"x")], FENCE) == [
        NoCapacity(needed_bytes=4096, free_bytes=0)
    ]
    assert isinstance(store(medium, device, ("empty", b""))[0], Done)


def test_a_limit_below_the_device_is_kept() -> None:
    medium = formatted()
    device = open_device(medium, HOLDER, capacity_bytes=10_000)
    assert device.capacity() == (0, 10_000, 10_000)
    store_one(medium, device, "k", bytes(4096))
    (refused,) = store(medium, device, ("j", bytes(8192)))
    assert refused == NoCapacity(needed_bytes=8192, free_bytes=10_000 - 4096)


def test_reservations_of_one_batch_do_not_share_room() -> None:
    medium = formatted()
    device = reopened(medium)
    free = device.capacity()[1]
    half = free // 2 + 4096
    one, two = device.reserve([member("a", bytes(half)), member("b", bytes(half))], FENCE)
    assert isinstance(one, Ticket)
    assert isinstance(two, NoCapacity)
    device.abort([one.serial])
    assert device.capacity()[1] == free


def test_a_fragmented_device_splits_a_replica_and_reads_it_back() -> None:
    medium = formatted()
    device = reopened(medium)
    blocks = device.capacity()[1] // 4096
    small = [(f"s{i:04}", content_of(str(i), 4096)) for i in range(blocks)]
    instances = [out.instance_id for out in store(medium, device, *small) if isinstance(out, Done)]
    assert len(instances) == blocks
    drops = [drop_item(f"s{i:04}", instances[i]) for i in range(0, blocks, 2)]
    assert all(isinstance(out, Done) for out in device.drop(drops, FENCE))
    large = content_of("large", min(len(drops), EXTENTS_MAX) * 4096 - 7)
    store_one(medium, device, "large", large)
    again = reopened(medium)
    assert read(medium, again, "large") == large
    assert read(medium, again, "s0001") == small[1][1]
    replica = again.catalog.visible[GROUP]["large"]
    assert len(replica.extents) == len(drops)


def test_a_full_index_refuses_replicas_and_still_drops() -> None:
    medium = formatted()
    device = reopened(medium)
    stored: dict[str, str] = {}
    for number in range(10_000):
        outcomes = store(medium, device, *((f"{number:05}-{i:03}", b"") for i in range(100)))
        stored |= {
            f"{number:05}-{i:03}": out.instance_id
            for i, out in enumerate(outcomes)
            if isinstance(out, Done)
        }
        if not all(isinstance(out, Done) for out in outcomes):
            assert isinstance(outcomes[-1], NoCapacity)
            break
    assert 500 < len(stored) < 10_000
    device = reopened(medium)
    for key, instance in random.Random(1).sample(sorted(stored.items()), len(stored)):
        assert isinstance(device.drop([drop_item(key, instance)], FENCE)[0], Done)
    assert not reopened(medium).catalog.replicas


def test_snapshots_keep_everything_and_give_the_log_its_room_back() -> None:
    medium = formatted()
    device = reopened(medium)
    store_one(medium, device, "stays", b"stays")
    hidden = store_one(medium, device, "hidden", b"hidden")
    device.quarantine([drop_item("hidden", hidden)], FENCE)
    epochs = {device.superblock.epoch}
    for number in range(300):
        instance = store_one(medium, device, "churn", str(number).encode())
        device.drop([drop_item("churn", instance)], FENCE)
        epochs.add(device.superblock.epoch)
        if number % 50 == 0:
            device = reopened(medium)
    assert len(epochs) > 4
    again = reopened(medium)
    assert read(medium, again, "stays") == b"stays"
    assert sorted(r.key for r in again.catalog.replicas.values()) == ["hidden", "stays"]


def test_blocks_that_a_living_writer_has_locked_are_not_free_until_it_ends() -> None:
    medium = formatted()
    device = reopened(medium)
    free = device.capacity()[1]
    (ticket,) = device.reserve([member("k", bytes(8192))], FENCE)
    assert isinstance(ticket, Ticket)
    start = device.superblock.geometry.block_offset(ticket.extents[0][0])
    medium.locks.append((start, 8192))
    device.abort([ticket.serial])
    assert device.capacity()[1] == free - 8192
    fresh = reopened(medium)  # the index worker was replaced meanwhile
    assert fresh.capacity()[1] == free - 8192
    (other,) = fresh.reserve([member("j", bytes(free - 8192))], FENCE)
    assert isinstance(other, Ticket)
    assert ticket.extents[0] not in other.extents
    medium.locks.clear()
    assert fresh.capacity()[1] == 8192


def test_a_locked_replica_of_the_index_stays_a_replica() -> None:
    medium = formatted()
    device = reopened(medium)
    store_one(medium, device, "k", b"x" * 9000)
    (replica,) = device.catalog.replicas.values()
    start = device.superblock.geometry.block_offset(replica.extents[0][0])
    medium.locks.append((start, 4096))
    fresh = reopened(medium)
    assert read(medium, fresh, "k") == b"x" * 9000
    assert isinstance(
        fresh.drop([drop_item("k", fresh.instance_id(replica.serial))], FENCE)[0], Done
    )


@pytest.mark.parametrize("point", range(6))
def test_a_failing_medium_gives_no_false_answer_and_is_opened_anew(point: int) -> None:
    medium = formatted()
    device = reopened(medium)
    kept = store_one(medium, device, "kept", b"kept")
    (ticket,) = device.reserve([member("k", b"one")], FENCE)
    assert isinstance(ticket, Ticket)
    write_ticket(medium, device, ticket, b"one")
    medium.writes_left = point  # 0 data flush, 1-2 frame copies, 3 frame flush
    (outcome,) = device.commit([ticket.serial], FENCE)
    assert isinstance(
        outcome, (Retry, Unknown, Unknown, Unknown, Done, Done)[point] if point < 4 else Done
    )
    if point < 4:
        with pytest.raises(TransientError):
            device.drop([drop_item("kept", kept)], FENCE)
    medium.writes_left = None
    again = reopened(medium)
    assert read(medium, again, "kept") == b"kept"
    assert read(medium, again, "k") in ({b"one", None} if point else {None})


def test_a_swapped_or_taken_device_is_noticed_before_anything_is_written() -> None:
    medium = formatted()
    device = reopened(medium)
    store_one(medium, device, "k", b"one")
    reopened(medium)  # somebody claims it
    with pytest.raises(TransientError, match="took the device over"):
        device.reserve([member("j", b"")], FENCE)
    other = blank()
    format_medium(other, b"another-device--", HOLDER)
    device = reopened(medium)
    medium.data[:] = other.data
    medium.events.clear()
    with pytest.raises(TransientError, match="was replaced by"):
        device.check()
    assert medium.events == []


def test_a_path_that_names_another_device_is_noticed() -> None:
    medium = formatted()
    device = reopened(medium)
    medium.replacement = "/dev/nvme1n1 names another device"
    with pytest.raises(TransientError, match="names another"):
        device.check()


def test_a_device_that_another_host_did_not_close_is_not_taken() -> None:
    medium = formatted()
    there = Holder(host="there", boot_id="boot-2", pid=7, since_ms=1)
    device = open_device(medium, there)
    with pytest.raises(BusyError, match="host there"):
        reopened(medium)
    device.close()
    reopened(medium).close()
    open_device(medium, there)
    assert open_device(medium, HOLDER, takeover="there").superblock.holder == HOLDER


def test_an_orderly_close_is_on_the_device_and_one_amid_a_store_is_not() -> None:
    medium = formatted()
    device = reopened(medium)
    device.close()
    assert reopened(medium).superblock.claim == 2
    device = reopened(medium)
    device.reserve([member("k", b"x")], FENCE)
    device.close()
    with pytest.raises(BusyError):
        open_device(medium, Holder(host="there", boot_id="b", pid=7, since_ms=1))


def test_only_a_blank_device_of_sufficient_size_is_formatted() -> None:
    with pytest.raises(ConfigError, match="needs at least"):
        format_medium(blank(1 * MIB), b"u" * 16, HOLDER)
    foreign = blank()
    foreign.data[700_000] = 1
    with pytest.raises(ConfigError, match="something else"):
        format_medium(foreign, b"u" * 16, HOLDER)
    foreign = blank()
    foreign.data[-9000] = 1  # some arrays keep their mark at the end
    with pytest.raises(ConfigError, match="something else"):
        format_medium(foreign, b"u" * 16, HOLDER)
    medium = formatted()
    store_one(medium, reopened(medium), "k", b"x")
    before = bytes(medium.data)
    with pytest.raises(ConfigError, match="formatted already"):
        format_medium(medium, b"u" * 16, HOLDER)
    assert medium.data == before


def test_a_name_that_no_record_can_hold_is_refused() -> None:
    device = reopened(formatted())
    for key, group in (("ü" * 2049, "g"), ("k", "g" * 4097), ("\ud800", "g")):
        (outcome,) = device.reserve([member(key, b"", group)], FENCE)
        assert isinstance(outcome, Permanent)
    with pytest.raises(TerminalError, match="over 4096 bytes"):
        device.reserve([], _fence(1, "h" * 5000))
    odd = "\udcff/ä/\U0001f680"  # a byte that is no UTF-8 text passes
    medium = formatted()
    store_one(medium, reopened(medium), odd, b"x")
    assert read(medium, reopened(medium), odd) == b"x"


def test_fifty_thousand_members_of_one_group() -> None:
    medium = formatted(600 * MIB)
    device = reopened(medium)
    for batch in range(50):
        keys = [f"k{batch:02}{i:03}" for i in range(1000)]
        outcomes = store(medium, device, *((key, b"") for key in keys))
        assert all(isinstance(out, Done) for out in outcomes)
    medium.events.clear()
    again = reopened(medium)
    assert sorted(again.catalog.visible[GROUP]) == [f"k{i:05}" for i in range(50_000)]


def test_an_empty_medium_cannot_be_opened() -> None:
    with pytest.raises(ConfigError, match="blank"):
        reopened(blank())
    with pytest.raises(ConfigError, match="something else"):
        reopened(MemoryMedium(bytearray(b"x" * 4 * MIB)))
