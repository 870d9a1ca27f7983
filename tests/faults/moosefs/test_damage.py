"""What the dfs tier says while MooseFS has lost something, or something is not where it was."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import pytest

from tests.faults.moosefs.lab import CHUNKSERVER, PATIENCE_S, Lab
from tests.faults.moosefs.test_hanging import tier_on
from tests.support.dfs_tiers import (
    FENCE,
    Source,
    away,
    dropping,
    item,
    member,
    observe,
    read,
    states,
)
from weightctl.adapters.dfs.tier import DfsTier
from weightctl.controller.core.observation import MemberState
from weightctl.controller.errors import ReconcileError
from weightctl.controller.ports import Busy, Done, Fence, Fenced, NoCapacity, NoOp, Retry, Unknown

UNKNOWN, ABSENT, COMPLETE = MemberState.UNKNOWN, MemberState.ABSENT, MemberState.COMPLETE
CONTENT = bytes(range(256)) * 4096
IMPATIENT = ("-o", "mfserroronlostchunk", "-o", "mfsioretries=1")


@contextmanager
def mounted(lab: Lab, name: str, *options: str) -> Iterator[Path]:
    """One more mount of the same file system, as of another host."""
    lab.send("mount", name, *options)
    try:
        yield lab.folder / name
    finally:
        lab.kill(name)
        lab.send("unmount", name)


@pytest.fixture
def impatient(lab: Lab) -> Iterator[Path]:
    """A mount that gives up instead of waiting for a chunk."""
    with mounted(lab, "impatient", *IMPATIENT) as mount:
        yield mount


@pytest.fixture
def other(lab: Lab) -> Iterator[Path]:
    """The mount of another host."""
    with mounted(lab, "other") as mount:
        yield mount


@contextmanager
def chunks_away(lab: Lab, folder: Path) -> Iterator[None]:
    """The only chunkserver is back without the chunks that it had."""
    lab.kill(CHUNKSERVER)
    moved = [(path, folder / path.name) for path in (lab.folder / "hdd").rglob("chunk_*.mfs")]
    for path, kept in moved:
        path.rename(kept)
    lab.run(CHUNKSERVER)
    try:
        yield
    finally:
        lab.kill(CHUNKSERVER)
        for path, kept in moved:
            kept.rename(path)
        lab.run(CHUNKSERVER)


async def store(tier: DfsTier, key: str, content: bytes) -> str:
    """Store one replica, again while servers come back or others write; its instance id."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            (outcome,) = await tier.store([item(key, content)], FENCE)
            if isinstance(outcome, Done | NoOp):
                return outcome.instance_id
            assert isinstance(outcome, Busy | Retry | Unknown)
            await anyio.sleep(0.2)


async def until(tier: DfsTier, key: str, state: MemberState) -> None:
    """Other hosts' changes are seen with a delay: the client remembers for a second."""
    with anyio.fail_after(PATIENCE_S):
        while await states(tier, key) != [state]:  # noqa: ASYNC110 - another host gives no event
            await anyio.sleep(0.1)


async def assert_unknown(tier: DfsTier) -> None:
    seen = await observe(tier, "k")
    assert (list(seen.states), seen.epoch) == ([UNKNOWN], "")
    assert isinstance((await tier.store([item("j", b"j")], FENCE))[0], Unknown | Retry)
    assert isinstance((await tier.verify([member("k", CONTENT)]))[0], Unknown | Retry)
    for ask in (tier.inventory, tier.capacity):
        with pytest.raises(ReconcileError):
            await ask()


@pytest.mark.parametrize("how", ["unmounted", "client killed"])
async def test_a_mount_that_has_gone_is_unknown_and_its_empty_folder_stays_empty(
    lab: Lab, tmp_path: Path, how: str
) -> None:
    mount = lab.folder / "going"
    await away(lab.send, "mount", "going")
    async with tier_on(mount, tmp_path) as tier:
        await store(tier, "k", CONTENT)
        if how == "client killed":
            await away(lab.kill, "going")
            await assert_unknown(tier)
        await away(lab.send, "unmount", "going")
        await assert_unknown(tier)
        async with tier_on(mount, tmp_path) as again:  # as after a restart
            await assert_unknown(again)
        assert await away(os.listdir, mount) == []
        await away(lab.send, "mount", "going")
        await until(tier, "k", COMPLETE)
        assert await read(tier, "k", CONTENT) == CONTENT
    await away(lab.kill, "going")
    await away(lab.send, "unmount", "going")


@asynccontextmanager
async def two_hosts(lab: Lab, other: Path, folder: Path) -> AsyncIterator[tuple[DfsTier, DfsTier]]:
    async with tier_on(lab.mount, folder) as one, tier_on(other, folder, "two") as two:
        yield one, two


async def test_two_hosts_on_one_root_see_each_others_replicas_writers_and_terms(
    lab: Lab, other: Path, tmp_path: Path
) -> None:
    async with two_hosts(lab, other, tmp_path) as (one, two):
        instance = await store(one, "k", CONTENT)
        await until(two, "k", COMPLETE)
        assert await read(two, "k", CONTENT) == CONTENT
        (outcome,) = await two.store([item("k", CONTENT)], FENCE)
        assert outcome == NoOp(instance_id=instance)
        source = Source(CONTENT)
        source.gate = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.store, [item("slow", source)], FENCE)
            await source.reading.wait()
            await until(two, "slow", MemberState.PARTIAL)
            source.gate.set()
        await until(two, "slow", COMPLETE)
        drop = [dropping("k", instance, CONTENT)]
        assert isinstance((await one.drop(drop, FENCE))[0], Done)
        await until(two, "k", ABSENT)
        with pytest.raises(ReconcileError):
            await read(two, "k", CONTENT)
        newer = Fence(holder=FENCE.holder, term=2, operation_id=1, generation=1)
        await two.drop(drop, newer)
        assert isinstance((await one.store([item("j", b"j")], FENCE))[0], Fenced)


async def test_two_hosts_that_store_the_same_at_once_leave_it_readable(
    lab: Lab, other: Path, tmp_path: Path
) -> None:
    async with two_hosts(lab, other, tmp_path) as (one, two):
        for number in range(4):
            key = f"key-{number}"
            async with anyio.create_task_group() as tasks:
                for tier in (one, two):
                    tasks.start_soon(store, tier, key, CONTENT)
            for tier in (one, two):
                await until(tier, key, COMPLETE)
                assert await read(tier, key, CONTENT) == CONTENT


async def test_a_quota_is_a_lack_of_room_and_nothing_is_published(lab: Lab, tmp_path: Path) -> None:
    async with tier_on(lab.mount, tmp_path) as tier:
        await store(tier, "k", b"small")
        root = lab.mount / tmp_path.name
        await away(lab.quota, root, "0.3Mi")
        (outcome,) = await tier.store([item("big", CONTENT)], FENCE)
        assert isinstance(outcome, NoCapacity)
        await until(tier, "big", ABSENT)
        assert await states(tier, "k") == [COMPLETE]
        await away(lab.quota, root, "100Mi")
        await store(tier, "big", CONTENT)


async def test_chunks_that_no_server_has_are_neither_absent_nor_wrong_and_come_back(
    lab: Lab, impatient: Path, tmp_path: Path
) -> None:
    async with tier_on(impatient, tmp_path) as tier:
        instance = await store(tier, "k", CONTENT)
        lost = chunks_away(lab, tmp_path)
        await away(lost.__enter__)
        try:
            (outcome,) = await tier.verify([member("k", CONTENT)])
            assert isinstance(outcome, Retry)
            assert "ENXIO" in outcome.detail
            assert await states(tier, "k") == [COMPLETE]  # its name is on the master
            with pytest.raises(ReconcileError):
                await read(tier, "k", CONTENT)
        finally:
            await away(lost.__exit__, None, None, None)
        with anyio.fail_after(PATIENCE_S):
            while isinstance(outcome, Retry | Unknown):
                (outcome,) = await tier.verify([member("k", CONTENT)])
        assert isinstance(outcome, Done)
        assert outcome.instance_id == instance
