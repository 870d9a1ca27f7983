"""The shipped tiers against what was reported of others: doubled items, doubled pins, mounts."""

import gc
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from anyio import to_thread

from tests.support.file_media import FileHarness
from tests.support.nof_harness import NofHarness
from weightctl.adapters.conformance.suite.harness import TierHarness
from weightctl.adapters.conformance.suite.material import (
    content_of,
    drop_item,
    fence,
    item_of,
    kinds,
    member_of,
    members_of,
    read_all,
    store_one,
)
from weightctl.controller.core.observation import MemberState

MOUNTS = {"memory": 100, "local_disk": 100, "dfs": 10, "nof": 10}
"""In each run of the suite; `make mounts` sets FIELD_MOUNTS for a thousand of each.  A mount of dfs
or nof starts a worker process."""
MOUNTS_ASKED = int(os.environ.get("FIELD_MOUNTS", "0"))
MOUNTS_JUDGED = 1000
"""Below this, what the allocator does hides what a mount keeps."""
GROWTH_BYTES_MAX = 4096
"""Of the resident memory, per mount."""


@pytest.fixture(params=MOUNTS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def harness(kind: str, tmp_path: Path) -> TierHarness:
    if kind == "nof":
        return NofHarness(tmp_path)
    return FileHarness(f"weightctl.adapters.{kind}:factory", tmp_path)


async def test_a_doubled_item_costs_the_others_of_its_batch_nothing(harness: TierHarness) -> None:
    content = content_of(5000)
    first, second = member_of("first", content), member_of("second", content)
    async with harness.tier() as tier:
        items = [item_of(first, content), item_of(second, content), item_of(first, content)]
        outcomes = kinds(await tier.store(items, fence()))
        assert len(outcomes) == 3
        assert "Done" in {outcomes[0], outcomes[2]}
        assert {outcomes[0], outcomes[2]} <= {"Done", "NoOp", "Busy", "Retry"}
        assert outcomes[1] == "Done"
        assert await read_all(tier, first) == await read_all(tier, second) == content
        assert len((await tier.inventory())[first.group_id]) == 2, "one replica each"
        assert kinds(await tier.store(items, fence())) == ["NoOp"] * 3
        drops = [await drop_item(tier, member) for member in (first, second, first)]
        dropped = kinds(await tier.drop(drops, fence()))
        assert dropped[1] == "Done"
        assert "Done" in {dropped[0], dropped[2]}
        assert {dropped[0], dropped[2]} <= {"Done", "NoOp"}
        assert not await tier.inventory()


async def test_a_batch_of_which_one_item_cannot_be_done_tells_what_was_done(
    harness: TierHarness,
) -> None:
    content = content_of(100)
    good = [member_of(f"good-{number}", content) for number in range(3)]
    bad = member_of("bad", b"another content")
    async with harness.tier() as tier:
        items = [item_of(member, content) for member in (good[0], bad, *good[1:])]
        outcomes = kinds(await tier.store(items, fence()))
        assert outcomes == ["Done", "Corrupt", "Done", "Done"]
        seen = await tier.observe(members_of([bad, *good]))
        assert list(seen.states) == [MemberState.ABSENT, *[MemberState.COMPLETE] * 3]


async def test_a_replica_that_is_open_twice_is_held_until_both_are_closed(
    harness: TierHarness,
) -> None:
    async with harness.tier() as tier:
        member = await store_one(tier, "payload", b"content")
        drop = [await drop_item(tier, member)]
        async with AsyncExitStack() as outer:
            await outer.enter_async_context(tier.open(member))
            inner = tier.open(member)
            await inner.__aenter__()
            await inner.__aexit__(None, None, None)
            assert kinds(await tier.drop(drop, fence())) == ["Busy"], "the other one still reads"
        assert kinds(await tier.drop(drop, fence())) == ["Done"]


async def test_many_mounts_leave_no_descriptor_process_or_memory(
    harness: TierHarness, kind: str
) -> None:
    async with harness.tier() as tier:
        member = await store_one(tier, "payload", b"content")

    async def mount() -> None:
        async with harness.tier() as tier:
            await tier.observe(members_of([member]))

    await _stays_flat(mount, MOUNTS_ASKED or MOUNTS[kind])


async def _stays_flat(cycle: Callable[[], Awaitable[None]], cycles: int) -> None:
    for _ in range(cycles // 2):
        await cycle()
    half = await to_thread.run_sync(_held)
    for _ in range(cycles // 2):
        await cycle()
    whole = await to_thread.run_sync(_held)
    assert whole[0] <= half[0] + 2, "descriptors"
    assert whole[1] <= half[1], "processes"
    if cycles >= MOUNTS_JUDGED:
        assert whole[2] - half[2] <= GROWTH_BYTES_MAX * (cycles // 2), "memory"


def _held() -> tuple[int, int, int]:
    """Descriptors, children, resident bytes."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    tasks = Path("/proc/self/task").glob("*/children")
    children = sum(len(path.read_text().split()) for path in tasks)
    return len(list(Path("/proc/self/fd").iterdir())), children, pages * os.sysconf("SC_PAGE_SIZE")
