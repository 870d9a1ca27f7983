"""The nof tier through its workers, on plain files."""

import os
import random
import signal
from pathlib import Path

import anyio
import pytest

from tests.support.nof_media import FENCE, GROUP, content_of, member
from tests.support.nof_tiers import (
    MIB,
    BytesReader,
    away,
    dropping,
    item,
    nof,
    observe,
    states,
    until,
)
from weightctl.adapters.nof import factory
from weightctl.adapters.nof.header import read_superblock
from weightctl.adapters.nof.medium import open_medium
from weightctl.adapters.nof.tier import NofTier
from weightctl.controller.clock import SystemClock, SystemEntropy
from weightctl.controller.core.observation import MemberState
from weightctl.controller.errors import ConfigError, IntegrityError, TerminalError, TransientError
from weightctl.controller.ports import (
    Busy,
    Conflict,
    Corrupt,
    Done,
    Fence,
    Fenced,
    NoCapacity,
    NoOp,
    Permanent,
    Retry,
    TierContext,
    Unknown,
)

UNKNOWN, ABSENT, PARTIAL, COMPLETE = (
    MemberState.UNKNOWN,
    MemberState.ABSENT,
    MemberState.PARTIAL,
    MemberState.COMPLETE,
)


async def _store(tier: NofTier, key: str, content: bytes) -> str:
    (outcome,) = await tier.store([item(key, content)], FENCE)
    assert isinstance(outcome, Done), outcome
    return outcome.instance_id


async def _read(tier: NofTier, key: str, content: bytes) -> bytes:
    async with tier.open(member(key, content)) as reader:
        buffer = bytearray(reader.size_bytes)
        await reader.read_into(0, memoryview(buffer))
    return bytes(buffer)


def _fds() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _files(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def _flip_bit(device: Path, content: bytes) -> None:
    raw = bytearray(device.read_bytes())
    raw[raw.index(content[:64]) + 70_000] ^= 1
    device.write_bytes(raw)


def _rot_superblock(device: Path) -> None:
    with device.open("r+b") as file:
        for slot in (0, 512 * 1024):
            file.seek(slot + 100)
            file.write(b"rot")


def _closed_in_order(device: Path) -> bool:
    medium = open_medium(str(device), writable=False)
    try:
        return read_superblock(medium).clean
    finally:
        medium.close()


async def test_replicas_are_stored_seen_read_and_verified_also_after_a_restart(
    tmp_path: Path,
) -> None:
    contents = {
        "large": random.Random(1).randbytes(20 * MIB + 77),
        "empty": b"",
        "small": b"x" * 5000,
    }
    async with nof(tmp_path) as tier:
        done = await tier.store([item(*pair) for pair in contents.items()], FENCE)
        assert [isinstance(outcome, Done) for outcome in done] == [True] * 3
        assert await states(tier, *contents, "none") == [COMPLETE] * 3 + [ABSENT]
        first = await observe(tier, "large")
    async with nof(tmp_path) as tier:
        seen = await observe(tier, *contents, "none", detail=[0, 3])
        assert seen.epoch == first.epoch != ""
        assert seen.details[0].size_bytes == len(contents["large"])
        assert seen.details[0].sha256 == member("large", contents["large"]).sha256
        assert list(seen.details) == [0]
        for key, content in contents.items():
            assert await _read(tier, key, content) == content
        members = [member(*pair) for pair in contents.items()]
        assert [
            isinstance(o, Done) for o in await tier.verify([*members, member("none", b"")])
        ] == [True, True, True, False]
        again = await tier.store([item(*pair) for pair in contents.items()], FENCE)
        assert all(isinstance(outcome, NoOp) for outcome in again)
        inventory = await tier.inventory()
        assert [entry.key for entry in inventory[GROUP]] == sorted(contents)
        assert await tier.inventory("weight:other") == {}


@pytest.mark.parametrize(
    "window", [(0, 1), (1, 4096), (4095, 2), (4096, 4096), (8 * MIB - 1, 2), (12345, 9 * MIB)]
)
async def test_any_range_of_a_replica_can_be_read(tmp_path: Path, window: tuple[int, int]) -> None:
    content = random.Random(2).randbytes(10 * MIB + 9)
    offset, size = window
    async with nof(tmp_path) as tier:
        await _store(tier, "k", content)
        async with tier.open(member("k", content)) as reader:
            buffer = bytearray(size)
            await reader.read_into(offset, memoryview(buffer))
            assert buffer == content[offset : offset + size]
            await reader.read_into(len(content), memoryview(bytearray(0)))
            with pytest.raises(TransientError):
                await reader.read_into(len(content), memoryview(bytearray(1)))
            assert reader.fileno() is None


async def test_a_source_that_is_not_the_member_leaves_nothing(tmp_path: Path) -> None:
    broken = BytesReader(b"w" * 9000)
    broken.error = TransientError("the source is gone")
    async with nof(tmp_path) as tier:
        free = (await tier.capacity()).free_bytes
        wrong, short, failing, right = await tier.store(
            [
                item("wrong", b"a" * 5000, wanted=b"b" * 5000),
                item("short", b"a" * 5000, wanted=b"a" * 6000),
                item("failing", broken),
                item("right", b"right"),
            ],
            FENCE,
        )
        assert isinstance(wrong, Corrupt)
        assert wrong.got == member("", b"a" * 5000).sha256
        assert isinstance(short, Corrupt)
        assert isinstance(failing, Retry)
        assert isinstance(right, Done)
        assert await states(tier, "wrong", "short", "failing", "right") == [ABSENT] * 3 + [COMPLETE]
        assert (await tier.capacity()).free_bytes == free - 4096
    assert broken.open == 0


async def test_flipped_bits_are_found_by_verify_quarantined_and_replaced(tmp_path: Path) -> None:
    content = content_of("k", 300_000)
    async with nof(tmp_path) as tier:
        instance = await _store(tier, "k", content)
        await _store(tier, "other", b"other")
    await away(_flip_bit, tmp_path / "n.img", content)
    async with nof(tmp_path) as tier:
        bad, good = await tier.verify([member("k", content), member("other", b"other")])
        assert isinstance(bad, Corrupt)
        assert bad.instance_id == instance
        assert isinstance(good, Done)
        assert isinstance((await tier.quarantine([dropping("k", instance)], FENCE))[0], Done)
        assert await states(tier, "k") == [ABSENT]
        second = await _store(tier, "k", content)
        listed = {entry.instance_id: entry.state for entry in (await tier.inventory())[GROUP]}
        assert listed[instance] == "quarantined"
        assert listed[second] == "complete"
        assert await _read(tier, "k", content) == content
        assert isinstance((await tier.drop([dropping("k", instance)], FENCE))[0], Done)


async def test_a_replica_with_other_content_is_a_conflict_and_never_handed_out(
    tmp_path: Path,
) -> None:
    async with nof(tmp_path) as tier:
        instance = await _store(tier, "k", b"one")
        assert isinstance((await tier.store([item("k", b"two")], FENCE))[0], Conflict)
        with pytest.raises(IntegrityError):
            await _read(tier, "k", b"two")
        with pytest.raises(TransientError):
            await _read(tier, "none", b"")
        (outcome,) = await tier.verify([member("k", b"two")])
        assert isinstance(outcome, Corrupt)
        assert outcome.instance_id == instance


async def test_what_is_being_read_is_busy_and_what_is_being_written_is_partial(
    tmp_path: Path,
) -> None:
    async with nof(tmp_path) as tier:
        instance = await _store(tier, "k", b"one")
        other = await _store(tier, "j", b"two")
        async with tier.open(member("k", b"one")):
            busy, done = await tier.drop([dropping("k", instance), dropping("j", other)], FENCE)
            assert isinstance(busy, Busy)
            assert isinstance(done, Done)
        source = BytesReader(b"slow" * 5000)
        source.gate = anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(tier.store, [item("slow", source)], FENCE)
            await source.reading.wait()
            assert await states(tier, "slow", "k") == [PARTIAL, COMPLETE]
            assert isinstance((await tier.store([item("slow", b"x")], FENCE))[0], Busy)
            source.gate.set()
        assert await states(tier, "slow") == [COMPLETE]
        assert isinstance((await tier.drop([dropping("k", instance)], FENCE))[0], Done)


async def test_a_cancelled_store_leaves_nothing_and_its_room_comes_back(tmp_path: Path) -> None:
    async with nof(tmp_path) as tier:
        free = (await tier.capacity()).free_bytes
        source = BytesReader(bytes(20 * MIB))
        source.gate = anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(tier.store, [item("k", source)], FENCE)
            await source.reading.wait()
            group.cancel_scope.cancel()
        assert await states(tier, "k") == [ABSENT]
        assert (await tier.capacity()).free_bytes == free
        await _store(tier, "k", b"again")
    assert source.open == 0


async def test_it_fits_or_is_refused_with_the_numbers(tmp_path: Path) -> None:
    async with nof(tmp_path, size_bytes=8 * MIB, capacity_bytes="1MiB") as tier:
        assert (await tier.capacity()).total_bytes == MIB
        full, more = await tier.store([item("a", bytes(MIB)), item("b", b"x")], FENCE)
        assert isinstance(full, Done)
        assert more == NoCapacity(needed_bytes=4096, free_bytes=0)


async def test_a_batch_larger_than_one_commit_is_stored_whole(tmp_path: Path) -> None:
    async with nof(tmp_path) as tier:
        batch = [item(f"k{number:04}", str(number).encode()) for number in range(2500)]
        assert all(isinstance(outcome, Done) for outcome in await tier.store(batch, FENCE))
        assert all(
            isinstance(outcome, Done)
            for outcome in await tier.verify([entry.member for entry in batch])
        )
        assert set(await states(tier, *(entry.member.key for entry in batch))) == {COMPLETE}


async def test_a_lower_term_is_fenced(tmp_path: Path) -> None:
    newer = Fence(holder="store", term=2, operation_id=1, generation=1)
    async with nof(tmp_path) as tier:
        instance = await _store(tier, "k", b"one")
        assert isinstance((await tier.store([item("j", b"two")], newer))[0], Done)
    async with nof(tmp_path) as tier:
        assert isinstance((await tier.store([item("i", b"x")], FENCE))[0], Fenced)
        assert isinstance((await tier.drop([dropping("k", instance)], FENCE))[0], Fenced)
        assert await states(tier, "k", "i") == [COMPLETE, ABSENT]


@pytest.mark.parametrize("which", ["index", "data"])
async def test_a_worker_killed_amid_a_store_costs_that_store_and_nothing_else(
    tmp_path: Path, which: str
) -> None:
    async with nof(tmp_path) as tier:
        kept = await _store(tier, "kept", b"kept")
        free = (await tier.capacity()).free_bytes
        source = BytesReader(bytes(20 * MIB))
        source.gate = anyio.Event()
        outcomes: list[object] = []

        async def store() -> None:
            outcomes.extend(await tier.store([item("k", source)], FENCE))

        async with anyio.create_task_group() as group:
            group.start_soon(store)
            await source.reading.wait()
            pool = tier._index if which == "index" else tier._data
            for pid in pool.pids:
                os.kill(pid, signal.SIGKILL)
            source.gate.set()
        assert isinstance(outcomes[0], (Retry, Unknown))
        assert await states(tier, "kept") == [COMPLETE]
        assert await _read(tier, "kept", b"kept") == b"kept"
        await until(tier, "k", ABSENT)
        assert (await tier.capacity()).free_bytes == free
        assert await _store(tier, "k", b"again") > kept


async def test_an_index_worker_that_stops_is_unknown_within_the_deadline_and_replaced(
    tmp_path: Path,
) -> None:
    async with nof(tmp_path) as tier:
        await _store(tier, "k", b"one")
    async with nof(tmp_path, deadline_s=1.0) as tier:
        await until(tier, "k", COMPLETE)
        (pid,) = tier._index.pids
        os.kill(pid, signal.SIGSTOP)
        seen = await observe(tier, "k")
        assert list(seen.states) == [UNKNOWN]
        assert seen.epoch == ""
        assert "no answer" in seen.problem
        await until(tier, "k", COMPLETE)
    async with nof(tmp_path) as tier:
        assert await _read(tier, "k", b"one") == b"one"


async def test_two_processes_cannot_write_one_device(tmp_path: Path) -> None:
    async with nof(tmp_path) as tier:
        await _store(tier, "k", b"one")
        async with nof(tmp_path) as second:
            assert await states(second, "k") == [UNKNOWN]
            assert isinstance((await second.store([item("j", b"x")], FENCE))[0], Busy)
            assert await states(tier, "k") == [COMPLETE]
        async with nof(tmp_path, read_only=True) as looking:
            assert await states(looking, "k", "j") == [COMPLETE, ABSENT]
            assert await _read(looking, "k", b"one") == b"one"
            used = (await tier.capacity()).used_bytes
            assert (await looking.capacity()).used_bytes == used == 4096
            assert isinstance((await looking.store([item("j", b"x")], FENCE))[0], Permanent)
            await _store(tier, "j", b"two")
            assert await states(looking, "k", "j") == [COMPLETE, COMPLETE]


async def test_a_dry_run_creates_and_changes_nothing(tmp_path: Path) -> None:
    async with nof(tmp_path, read_only=True) as tier:
        seen = await observe(tier, "k")
        assert list(seen.states) == [UNKNOWN]
        assert seen.problem.startswith("not set up yet")
    assert await away(_files, tmp_path) == []
    async with nof(tmp_path) as tier:
        await _store(tier, "k", b"one")
    before = await away((tmp_path / "n.img").read_bytes)
    async with nof(tmp_path, read_only=True) as tier:
        assert await states(tier, "k") == [COMPLETE]
    assert await away((tmp_path / "n.img").read_bytes) == before


async def test_a_swapped_removed_or_truncated_device_is_unknown_and_never_empty(
    tmp_path: Path,
) -> None:
    device = tmp_path / "n.img"
    async with nof(tmp_path) as tier:
        await _store(tier, "k", b"one")
        await away(device.rename, tmp_path / "ours")
        assert await states(tier, "k") == [UNKNOWN]
        assert isinstance((await tier.store([item("j", b"x")], FENCE))[0], Retry)
        assert not await away(device.exists)
        async with nof(tmp_path, state="another"):
            pass  # another one is made in its place
        seen = await observe(tier, "k")
        assert list(seen.states) == [UNKNOWN]
        assert "in its place" in seen.problem
        assert isinstance((await tier.verify([member("k", b"one")]))[0], Retry)
        await away((tmp_path / "ours").replace, device)
        assert await states(tier, "k") == [COMPLETE]
        await away(os.truncate, device, 63 * MIB)
        assert await states(tier, "k") == [UNKNOWN]
        await away(os.truncate, device, 64 * MIB)
        assert await states(tier, "k") == [COMPLETE]


async def test_a_device_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    device = tmp_path / "n.img"
    await away(device.write_bytes, b"somebody's data" + bytes(8 * MIB))
    for wanted in (False, True):
        with pytest.raises(ConfigError, match="something else"):
            async with nof(tmp_path, format=wanted):
                pass
    assert await away(device.read_bytes) == b"somebody's data" + bytes(8 * MIB)
    await away(device.write_bytes, bytes(8 * MIB))
    with pytest.raises(ConfigError, match="blank"):
        async with nof(tmp_path):
            pass
    assert await away(device.read_bytes) == bytes(8 * MIB)
    async with nof(tmp_path, format=True) as tier:
        await _store(tier, "k", b"one")
    async with nof(tmp_path, format=True) as tier:  # the option is harmless later
        assert await states(tier, "k") == [COMPLETE]


async def test_a_damaged_device_is_unknown_and_its_primitives_are_permanent(tmp_path: Path) -> None:
    async with nof(tmp_path) as tier:
        await _store(tier, "k", b"one")
    await away(_rot_superblock, tmp_path / "n.img")
    async with nof(tmp_path) as tier:
        seen = await observe(tier, "k")
        assert list(seen.states) == [UNKNOWN]
        assert "damaged" in seen.problem
        assert isinstance((await tier.store([item("j", b"x")], FENCE))[0], Permanent)
        with pytest.raises(TerminalError):
            await tier.capacity()


TORN = (bytes(512) + b"x" * 3584).ljust(512 * 1024, b"\0") + b"y" * 4096
"""Two superblocks of which a power loss left some sectors."""


@pytest.mark.parametrize(
    "left",
    [b"", bytes(5 << 20), b"WCTLNOF\0".ljust(4096, b"x"), TORN.ljust(64 << 20, b"\0")],
    ids=["empty", "zero", "begun", "torn"],
)
async def test_a_crash_while_the_file_is_made_leaves_no_half_device(
    tmp_path: Path, left: bytes
) -> None:
    await away((tmp_path / "n.img.new").write_bytes, left)
    async with nof(tmp_path) as tier:
        await _store(tier, "k", b"one")
    assert sorted(await away(_files, tmp_path)) == ["n.img", "state"]


@pytest.mark.parametrize(
    "content",
    [b"x", b"x" * 5000, bytes(4096) + b"x" * 4096, bytes(9), TORN.ljust(63 << 20, b"\0")],
    ids=["small", "other", "later", "odd", "of another size"],
)
async def test_a_file_of_somebody_else_is_not_used_up_for_the_device(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "n.img.new"
    await away(path.write_bytes, content)
    with pytest.raises(ConfigError, match=r"n\.img\.new is in the way"):
        async with nof(tmp_path):
            pass
    assert await away(path.read_bytes) == content


@pytest.mark.parametrize(
    "options, why",
    [
        ({"pth": "x"}, "did you mean 'path'"),
        ({}, "missing"),
        ({"path": "x", "format": "yes"}, "neither true nor false"),
        ({"path": "x", "size_bytes": -1}, "not a size"),
        ({"path": "x", "workers": 0}, "no count"),
        ({"path": "x", "workers": 1}, "2 or more"),
        ({"path": "x", "deadline_s": 0}, "no duration"),
    ],
)
def test_a_wrong_option_is_refused(options: dict[str, object], why: str, tmp_path: Path) -> None:
    context = TierContext(clock=SystemClock(), entropy=SystemEntropy(), state_dir=str(tmp_path))
    with pytest.raises(ConfigError, match=why):
        factory("n", options, context)


async def test_a_folder_or_too_small_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="neither a block device nor a plain file"):
        async with nof(tmp_path, path="/"):
            pass
    with pytest.raises(ConfigError, match="needs at least"):
        async with nof(tmp_path, size_bytes=MIB):
            pass
    assert not await away((tmp_path / "n.img").exists)


async def test_cycles_of_opening_leave_no_descriptor_and_no_process(tmp_path: Path) -> None:
    async with nof(tmp_path) as tier:
        await _store(tier, "k", b"one")
    before = await away(_fds)
    for _ in range(10):
        async with nof(tmp_path) as tier:
            assert await _read(tier, "k", b"one") == b"one"
            pids = tier._index.pids + tier._data.pids
        assert await away(_fds) == before
        running = set(await away(_files, Path("/proc")))
        assert not running.intersection(map(str, pids))
    assert await away(_closed_in_order, tmp_path / "n.img")
