"""Rules of the dfs tier on an ordinary folder; what every tier must do is in the contract suite."""

import os
import random
import shutil
import signal
from pathlib import Path

import anyio
import pytest

from tests.support.dfs_tiers import (
    FENCE,
    GROUP,
    Source,
    away,
    dfs,
    dropping,
    item,
    member,
    observe,
    read,
    states,
    store,
)
from tests.support.virtual_time import SeededEntropy, VirtualClock
from weightctl.adapters.dfs import factory
from weightctl.adapters.dfs.engine import Engine
from weightctl.adapters.dfs.tier import DfsTier
from weightctl.adapters.shared.fencing import FENCE_FILE
from weightctl.adapters.shared.layout import PARTIAL, encode_text
from weightctl.adapters.shared.markers import MARKER_FILE
from weightctl.controller.core.observation import MemberState
from weightctl.controller.errors import ConfigError, TransientError
from weightctl.controller.ports import (
    Busy,
    Conflict,
    Done,
    NoCapacity,
    NoOp,
    Permanent,
    Retry,
    TierContext,
    Unknown,
)

MIB = 1024 * 1024
UNKNOWN, ABSENT, PARTIAL_STATE, COMPLETE = (
    MemberState.UNKNOWN,
    MemberState.ABSENT,
    MemberState.PARTIAL,
    MemberState.COMPLETE,
)


def group_folder(root: Path) -> Path:
    return root / "shared" / "groups" / encode_text(GROUP)


def leave_partial(root: Path, key: str, content: bytes, host: str) -> Path:
    """What a killed writer of that host leaves."""
    name = f"{key}~{member(key, content).sha256.hex()}~{host}{'0' * (16 - len(host))}{PARTIAL}"
    path = group_folder(root) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content[:3])
    return path


def host_of(root: Path, host: str) -> str:
    return (root / host / "tiers" / "dfs.host").read_text("ascii")


async def test_two_hosts_see_read_and_remove_each_others_replicas(tmp_path: Path) -> None:
    content = random.Random(1).randbytes(20 * MIB + 77)
    async with dfs(tmp_path) as one, dfs(tmp_path, host="two") as two:
        instance = await store(one, "k", content)
        seen = await observe(two, "k", "none", detail=[0, 1])
        assert list(seen.states) == [COMPLETE, ABSENT]
        assert seen.epoch == (await observe(one, "k")).epoch != ""
        assert seen.details[0].instance_id == instance
        assert await read(two, "k", content) == content
        assert (await two.verify([member("k", content)]))[0] == Done(
            instance_id=instance, moved_bytes=len(content)
        )
        assert (await two.store([item("k", content)], FENCE))[0] == NoOp(instance_id=instance)
        assert isinstance((await two.drop([dropping("k", instance, content)], FENCE))[0], Done)
        assert await states(one, "k") == [ABSENT]


async def test_two_hosts_that_begin_one_root_agree_on_the_medium(tmp_path: Path) -> None:
    tiers = [dfs(tmp_path, host=f"host{number}") for number in range(4)]
    async with anyio.create_task_group() as tasks:
        for tier in tiers:
            tasks.start_soon(tier.__aenter__)
    epochs = {(await observe(tier, "k")).epoch for tier in tiers}
    assert len(epochs) == 1
    assert epochs != {""}
    for tier in tiers:
        await tier.__aexit__(None, None, None)


@pytest.mark.parametrize("window", [(0, 1), (1, 4096), (8 * MIB - 1, 2), (12345, 19 * MIB)])
async def test_any_range_of_a_replica_can_be_read(tmp_path: Path, window: tuple[int, int]) -> None:
    content = random.Random(2).randbytes(20 * MIB + 9)
    offset, size = window
    async with dfs(tmp_path) as tier:
        await store(tier, "k", content)
        async with tier.open(member("k", content)) as reader:
            buffer = bytearray(size)
            await reader.read_into(offset, memoryview(buffer))
            assert buffer == content[offset : offset + size]
            await reader.read_into(len(content), memoryview(bytearray(0)))
            with pytest.raises(TransientError):
                await reader.read_into(len(content), memoryview(bytearray(1)))
    assert tier.map_path(member("k", content)) is None


async def test_what_a_killed_writer_of_this_controller_left_is_removed_at_the_start(
    tmp_path: Path,
) -> None:
    async with dfs(tmp_path) as tier:
        await store(tier, "other", b"kept")
    own = await away(host_of, tmp_path, "one")
    left = await away(leave_partial, tmp_path, "k", b"content", own)
    async with dfs(tmp_path) as tier:
        assert not await away(left.exists)
        assert await states(tier, "k", "other") == [ABSENT, COMPLETE]


async def test_small_files_that_were_never_written_whole_go_with_the_next_start_of_their_host(
    tmp_path: Path,
) -> None:
    async with dfs(tmp_path) as tier:
        await store(tier, "k" * 300, b"kept")
    own, root = await away(host_of, tmp_path, "one"), tmp_path / "shared"
    names = (FENCE_FILE, MARKER_FILE, f"groups/%%{'0' * 64}~name")
    drafts = {
        host: [root / f"{name}.{host}-{'0' * 32}-7" for name in names] for host in (own, "abcdef")
    }
    for draft in (draft for left in drafts.values() for draft in left):
        await away(draft.write_bytes, b"")
    async with dfs(tmp_path) as tier:
        await store(tier, "other", b"stored")
        assert not [draft for draft in drafts[own] if await away(draft.exists)]
        assert [draft for draft in drafts["abcdef"] if await away(draft.exists)] == drafts["abcdef"]
        assert await states(tier, "k" * 300, "other") == [COMPLETE, COMPLETE]


async def test_another_hosts_partial_file_is_partial_until_it_was_still_for_the_grace(
    tmp_path: Path,
) -> None:
    clock = VirtualClock()
    content = b"content"
    async with dfs(tmp_path, clock=clock, grace_s=100.0) as tier:
        left = await away(leave_partial, tmp_path, "k", content, "abcdef")
        instance = left.name.split("~")[2].removesuffix(PARTIAL)
        assert await states(tier, "k") == [PARTIAL_STATE]
        clock.jump(99.0)
        assert await states(tier, "k") == [PARTIAL_STATE]
        await away(left.write_bytes, content)  # it lives: the grace begins anew
        clock.jump(99.0)
        assert await states(tier, "k") == [PARTIAL_STATE]
        assert isinstance((await tier.store([item("k", content)], FENCE))[0], Busy)
        assert isinstance((await tier.drop([dropping("k", instance, content)], FENCE))[0], Busy)
        clock.jump(100.0)
        assert isinstance((await tier.store([item("k", content)], FENCE))[0], Busy)  # not yet seen
        assert await states(tier, "k") == [ABSENT]
        assert await away(left.exists)  # observing removes nothing
        await store(tier, "k", content)
        assert not await away(left.exists)
        assert await states(tier, "k") == [COMPLETE]


async def test_another_hosts_partial_file_survives_a_start(tmp_path: Path) -> None:
    async with dfs(tmp_path) as tier:
        await store(tier, "other", b"kept")
    left = await away(leave_partial, tmp_path, "k", b"content", "abcdef")
    async with dfs(tmp_path) as tier:
        assert await away(left.exists)
        assert await states(tier, "k", "other") == [PARTIAL_STATE, COMPLETE]


async def test_what_is_written_is_partial_and_what_is_read_is_busy(tmp_path: Path) -> None:
    source = Source(b"slow" * 5000)
    source.gate = anyio.Event()
    async with dfs(tmp_path) as tier, dfs(tmp_path, host="two") as two:
        instance = await store(tier, "k", b"one")
        async with tier.open(member("k", b"one")):
            for act in (tier.drop, tier.quarantine):
                assert isinstance((await act([dropping("k", instance, b"one")], FENCE))[0], Busy)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tier.store, [item("slow", source)], FENCE)
            await source.reading.wait()
            assert await states(tier, "slow", "k") == [PARTIAL_STATE, COMPLETE]
            assert await states(two, "slow") == [PARTIAL_STATE]
            for other in (tier, two):
                assert isinstance((await other.store([item("slow", b"x")], FENCE))[0], Busy)
            assert isinstance((await tier.verify([member("slow", b"x")]))[0], Busy)
            source.gate.set()
        assert await states(tier, "slow") == [COMPLETE]
        assert isinstance((await tier.drop([dropping("k", instance, b"one")], FENCE))[0], Done)


async def test_a_cancelled_store_leaves_nothing_and_its_room_comes_back(tmp_path: Path) -> None:
    source = Source(bytes(20 * MIB))
    source.gate = anyio.Event()
    async with dfs(tmp_path, capacity_bytes=20 * MIB) as tier:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tier.store, [item("k", source)], FENCE)
            await source.reading.wait()
            assert (await tier.capacity()).free_bytes == 0
            tasks.cancel_scope.cancel()
        while await states(tier, "k") != [ABSENT]:  # the worker lets go in its own time
            await anyio.lowlevel.checkpoint()
        assert (await tier.capacity()).free_bytes == 20 * MIB
        await store(tier, "k", bytes(20 * MIB))
        assert [entry.state for entry in (await tier.inventory())[GROUP]] == ["complete"]


async def test_it_fits_or_is_refused_with_the_numbers(tmp_path: Path) -> None:
    async with dfs(tmp_path, capacity_bytes="1MiB") as tier:
        full, more = await tier.store([item("a", bytes(MIB)), item("b", b"x")], FENCE)
        assert isinstance(full, Done)
        assert more == NoCapacity(needed_bytes=1, free_bytes=0)
        seen = await tier.capacity()
        assert (seen.used_bytes, seen.free_bytes, seen.total_bytes) == (MIB, 0, MIB)
        async with dfs(tmp_path, host="two", capacity_bytes="2MiB") as two:
            instance = await store(two, "c", bytes(MIB))
            assert (await tier.capacity()).used_bytes == 2 * MIB
            await two.drop([dropping("c", instance, bytes(MIB))], FENCE)
        assert (await tier.capacity()).used_bytes == MIB


async def test_a_root_that_is_away_or_another_one_is_unknown_and_never_empty(
    tmp_path: Path,
) -> None:
    root, aside = tmp_path / "shared", tmp_path / "aside"
    async with dfs(tmp_path) as tier:
        instance = await store(tier, "k", b"one")
        await away(root.rename, aside)
        assert await states(tier, "k") == [UNKNOWN]
        await away(root.mkdir)
        seen = await observe(tier, "k")
        assert list(seen.states) == [UNKNOWN]
        assert "not be mounted" in seen.problem
        assert isinstance((await tier.store([item("j", b"x")], FENCE))[0], Retry)
        assert isinstance((await tier.drop([dropping("k", instance)], FENCE))[0], Retry)
        assert isinstance((await tier.verify([member("k", b"one")]))[0], Retry)
        with pytest.raises(TransientError):
            await tier.capacity()
        with pytest.raises(TransientError):
            await tier.inventory()
        assert await away(lambda: list(root.iterdir())) == []
        async with dfs(tmp_path, host="two"):
            assert "expected" in (await observe(tier, "k")).problem
        await away(shutil.rmtree, root)
        await away(aside.rename, root)
        assert await states(tier, "k") == [COMPLETE]


async def test_a_root_that_is_away_at_the_start_is_unknown_until_it_is_back(tmp_path: Path) -> None:
    root, aside = tmp_path / "shared", tmp_path / "aside"
    async with dfs(tmp_path) as tier:
        await store(tier, "k", b"one")
    await away(root.rename, aside)
    async with dfs(tmp_path) as tier:
        assert await states(tier, "k") == [UNKNOWN]
        assert not await away(root.exists)
        await away(aside.rename, root)
        assert await states(tier, "k") == [COMPLETE]


async def test_a_dry_run_makes_changes_and_removes_nothing(tmp_path: Path) -> None:
    def files() -> list[str]:
        return sorted(str(path) for path in tmp_path.rglob("*"))

    async with dfs(tmp_path, read_only=True) as tier:
        assert await states(tier, "k") == [UNKNOWN]
    assert await away(files) == []
    async with dfs(tmp_path) as tier:
        instance = await store(tier, "k", b"one")
    own = await away(host_of, tmp_path, "one")
    await away(leave_partial, tmp_path, "j", b"content", own)
    before = await away(files)
    async with dfs(tmp_path, read_only=True) as tier:
        assert await states(tier, "k") == [COMPLETE]
        assert isinstance((await tier.store([item("i", b"x")], FENCE))[0], Permanent)
        for act in (tier.drop, tier.quarantine):
            assert isinstance((await act([dropping("k", instance)], FENCE))[0], Permanent)
    assert await away(files) == before


async def test_a_folder_that_is_not_ours_is_refused_and_left_alone(tmp_path: Path) -> None:
    foreign = tmp_path / "shared" / "data"
    await away(foreign.parent.mkdir)
    await away(foreign.write_bytes, b"somebody's")
    with pytest.raises(ConfigError, match="not empty"):
        async with dfs(tmp_path):
            pass
    assert await away(lambda: list(foreign.parent.iterdir())) == [foreign]


@pytest.mark.parametrize(
    "option, value, word", [("deadlines", 1, "deadline_s"), ("workers", 1, "2 or more")]
)
def test_options_that_nobody_reads_or_that_cannot_work_are_refused(
    tmp_path: Path, option: str, value: object, word: str
) -> None:
    context = TierContext(clock=VirtualClock(), entropy=SeededEntropy(), state_dir=str(tmp_path))
    with pytest.raises(ConfigError, match=word):
        factory("d", {"path": "shared", option: value}, context)


async def test_a_worker_killed_amid_a_store_costs_that_store_and_nothing_else(
    tmp_path: Path,
) -> None:
    source = Source(bytes(20 * MIB))
    source.gate = anyio.Event()
    outcomes: list[object] = []
    async with dfs(tmp_path) as tier:
        await store(tier, "kept", b"kept")

        async def storing() -> None:
            outcomes.extend(await tier.store([item("k", source)], FENCE))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(storing)
            await source.reading.wait()
            for pid in tier._pool.pids:
                os.kill(pid, signal.SIGKILL)
            source.gate.set()
        assert isinstance(outcomes[0], (Retry, Unknown))
        assert await read(tier, "kept", b"kept") == b"kept"
        with anyio.fail_after(240):
            while await states(tier, "k") != [ABSENT]:  # once the kernel has let its lock go
                await anyio.lowlevel.checkpoint()
        await store(tier, "k", b"again")


async def until(tier: DfsTier, state: MemberState, *keys: str) -> None:
    """Look until the medium answers in time, which a slow machine does not always."""
    with anyio.fail_after(240):
        while (seen := await states(tier, *keys)) == [UNKNOWN] * len(keys):
            await anyio.lowlevel.checkpoint()
    assert seen == [state] * len(keys)


async def test_a_stopped_worker_is_unknown_for_its_batch_and_the_rest_is_not_tried(
    tmp_path: Path,
) -> None:
    batch = [item(f"k{number}", b"x") for number in range(20)]
    async with dfs(tmp_path) as tier:
        await store(tier, "k", b"one")
    async with dfs(tmp_path, deadline_s=1.0, workers=2) as tier:
        await until(tier, COMPLETE, "k")
        (pid,) = tier._pool.pids
        os.kill(pid, signal.SIGSTOP)
        outcomes = await tier.store(batch, FENCE)
        assert isinstance(outcomes[0], Unknown)
        assert {type(outcome) for outcome in outcomes[1:]} == {Retry}
        await until(tier, COMPLETE, "k")
        (pid,) = tier._pool.pids
        os.kill(pid, signal.SIGSTOP)
        seen = await observe(tier, "k")
        assert (list(seen.states), seen.epoch) == ([UNKNOWN], "")
        assert "did not end within 1 s" in seen.problem
        await until(tier, COMPLETE, "k")
    async with dfs(tmp_path) as tier:
        assert await states(tier, "k", "k0") == [COMPLETE, ABSENT]
        assert all(isinstance(outcome, Done) for outcome in await tier.store(batch, FENCE))


async def test_a_drop_that_happens_late_cannot_remove_a_newer_replica(tmp_path: Path) -> None:
    async with dfs(tmp_path) as tier:
        first = await store(tier, "k", b"one")
        late = [dropping("k", first, b"one")]
        assert isinstance((await tier.drop(late, FENCE))[0], Done)
        await store(tier, "k", b"one")
        (outcome,) = await tier._pool.call(Engine.drop, late, FENCE, frozenset())
        assert isinstance(outcome, (NoOp, Conflict))
        assert await states(tier, "k") == [COMPLETE]


@pytest.mark.parametrize("raw", [b"", b"12", b"zzzzzz", b"\xff\xff\xff"])
async def test_a_host_text_that_a_crash_has_damaged_is_written_anew(
    tmp_path: Path, raw: bytes
) -> None:
    kept = tmp_path / "one" / "tiers" / "dfs.host"
    async with dfs(tmp_path):
        first = await away(kept.read_bytes)
    await away(kept.write_bytes, raw)
    async with dfs(tmp_path) as tier:
        await store(tier, "k", b"content")
        assert await states(tier, "k") == [MemberState.COMPLETE]
    assert len(await away(kept.read_bytes)) == len(first)
