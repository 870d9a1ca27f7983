"""Cases of what may be left behind: nothing.  Layer: conformance."""

import asyncio
import gc
import os
import threading
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from anyio import to_thread

from weightctl.adapters.conformance.grades import Grade
from weightctl.adapters.conformance.suite.cases import TierCases
from weightctl.adapters.conformance.suite.harness import TierHarness
from weightctl.adapters.conformance.suite.material import (
    content_of,
    fence,
    item_of,
    kinds,
    member_of,
    members_of,
    no_source,
    read_all,
    store_one,
)
from weightctl.controller.errors import ReconcileError
from weightctl.controller.ports import DropItem, StoreItem, Tier

CYCLES = 1000
STARTS = 20
FAILED = 20
GROWTH_BYTES_MAX = 4096
"""Of the resident memory, per cycle, in the second half of the cycles."""
PATIENCE_TURNS = 200


@dataclass(frozen=True, slots=True)
class Held:
    """What this process holds now."""

    descriptors: int
    tasks: int
    threads: int
    resident_bytes: int


def _counted() -> tuple[int, int]:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return len(os.listdir("/proc/self/fd")), pages * os.sysconf("SC_PAGE_SIZE")  # noqa: PTH208


async def held() -> Held:
    """Counted after everything that wants to end has had its turns."""
    for _ in range(PATIENCE_TURNS):
        await asyncio.sleep(0)
    descriptors, resident_bytes = await to_thread.run_sync(_counted)
    return Held(descriptors, len(asyncio.all_tasks()), threading.active_count(), resident_bytes)


class ContractOfLeaks(TierCases):
    """Descriptors, threads, tasks and memory do not grow."""

    grade = Grade.GOLD
    cycles: ClassVar[int] = CYCLES
    """A runner whose medium is slow may go through fewer; memory is then not judged."""

    async def test_a_thousand_opened_replicas_leave_no_descriptor(self, tier: Tier) -> None:
        member = await store_one(tier, "payload", b"content")

        async def cycle() -> None:
            async with tier.open(member):
                pass

        assert await read_all(tier, member) == b"content"
        await _stays_flat(cycle, cycles=self.cycles)

    async def test_calls_that_fail_leave_nothing(self, tier: Tier) -> None:
        stored = await store_one(tier, "payload", b"content")
        absent, lost = member_of("absent", b"absent"), member_of("lost", b"lost")
        other = member_of("payload", b"another")
        refused = [
            item_of(absent, b"wrong!"),
            StoreItem(member=lost, open_source=no_source),
            item_of(other, b"another"),
        ]
        named = [DropItem(member=member, instance_id="0" * 16) for member in (stored, absent)]

        async def cycle() -> None:
            with pytest.raises(ReconcileError):
                async with tier.open(absent):
                    pass
            with pytest.raises(_OwnError):
                async with tier.open(stored):
                    raise _OwnError
            assert kinds(await tier.store(refused, fence(2))) == ["Corrupt", "Retry", "Conflict"]
            assert kinds(await tier.store(refused, fence(1))) == ["Fenced"] * 3
            assert kinds(await tier.drop(named, fence(2))) == ["Conflict", "NoOp"]
            assert kinds(await tier.verify([absent])) == ["Conflict"]

        await _stays_flat(cycle, cycles=min(self.cycles, FAILED))
        assert await read_all(tier, stored) == b"content"

    async def test_a_thousand_looks_leave_nothing(self, tier: Tier) -> None:
        table = members_of([await store_one(tier, "payload", b"content"), member_of("other", b"")])

        async def cycle() -> None:
            await tier.observe(table, detail=[0])

        await _stays_flat(cycle, cycles=self.cycles)

    async def test_a_thousand_replicas_that_came_and_went_leave_nothing(self, tier: Tier) -> None:
        content = content_of(100)
        members = [member_of(f"{number:02d}", content) for number in range(25)]

        async def cycle() -> None:
            batch = [item_of(member, content) for member in members]
            assert set(kinds(await tier.store(batch, fence()))) == {"Done"}
            seen = await tier.observe(members_of(members), detail=range(len(members)))
            items = [
                DropItem(member=member, instance_id=seen.details[index].instance_id)
                for index, member in enumerate(members)
            ]
            assert set(kinds(await tier.drop(items, fence()))) == {"Done"}

        before = (await tier.capacity()).used_bytes
        await _stays_flat(cycle, cycles=max(self.cycles // len(members), 2))
        assert not await tier.inventory()
        assert (await tier.capacity()).used_bytes == before

    async def test_many_starts_leave_nothing(self, harness: TierHarness) -> None:
        async with harness.tier() as tier:
            await store_one(tier, "payload", b"content")

        async def cycle() -> None:
            async with harness.tier() as tier:
                await tier.capacity()

        await _stays_flat(cycle, cycles=STARTS)

    async def test_leaving_hurts_nobody_who_left_before(self, harness: TierHarness) -> None:
        """A start that failed behind it, or a second object over the medium, ends as it should."""
        async with AsyncExitStack() as stack:
            tier = await stack.enter_async_context(harness.tier())
            member = await store_one(tier, "payload", b"content")
        async with harness.tier() as again:
            if again.profile.capabilities.persistent:
                assert await read_all(again, member) == b"content"

    async def test_nothing_is_awaited_any_more_after_leaving(self, harness: TierHarness) -> None:
        before = await held()
        async with harness.tier() as tier:
            await store_one(tier, "payload", b"content")
        assert (await held()).tasks <= before.tasks


class _OwnError(Exception):
    """What goes wrong with a reader, not with the tier."""


async def _stays_flat(cycle: Callable[[], Awaitable[None]], *, cycles: int) -> None:
    """What is held after all cycles is what was held after the first half of them."""
    for _ in range(cycles // 2):
        await cycle()
    half = await held()
    for _ in range(cycles // 2):
        await cycle()
    whole = await held()
    slack = 2  # what the loop itself keeps
    assert whole.descriptors <= half.descriptors + slack
    assert whole.tasks <= half.tasks + slack
    assert whole.threads <= half.threads + slack
    grown = (whole.resident_bytes - half.resident_bytes) / (cycles // 2)
    if cycles >= CYCLES and grown > GROWTH_BYTES_MAX:
        pytest.fail(f"each cycle keeps {grown:.0f} bytes")
