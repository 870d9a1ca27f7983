"""Cases of fences, cancelled callers and killed writers.  Layer: conformance."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial

import anyio
import pytest
from anyio import to_thread

from weightctl.adapters.conformance.grades import Grade
from weightctl.adapters.conformance.suite.cases import TierCases
from weightctl.adapters.conformance.suite.harness import TierHarness
from weightctl.adapters.conformance.suite.material import (
    GROUP,
    content_of,
    drop_item,
    fence,
    item_of,
    kinds,
    member_of,
    read_all,
    source_of,
    states,
    store,
    store_one,
)
from weightctl.controller.core.observation import Member, MemberState
from weightctl.controller.errors import ReconcileError
from weightctl.controller.ports import (
    PIECE_BYTES,
    DropItem,
    Outcome,
    StoreItem,
    Tier,
)

UNKNOWN, ABSENT = MemberState.UNKNOWN, MemberState.ABSENT
PARTIAL, COMPLETE = MemberState.PARTIAL, MemberState.COMPLETE

CONTENT = b"content"
CANCELLED_AFTER = (0, 1, 2, 3, 4, 5, 6, 8, 11, 15, 21, 30, 45, 70)
"""Turns of the loop after which a call is cancelled: through all of its awaits."""
PATIENCE_S = 180.0
"""Bound of a wait for what a cancelled call left to a worker."""


async def _not_busy(act: Callable[[], Awaitable[Sequence[Outcome]]]) -> None:
    """Act until it is not refused as Busy, for PATIENCE_S at most."""
    with anyio.fail_after(PATIENCE_S):
        while "Busy" in kinds(await act()):  # noqa: ASYNC110 - a worker process gives no event
            await anyio.sleep(0.01)


async def _becomes_absent(
    start: Callable[[], AbstractAsyncContextManager[Tier]], member: Member
) -> None:
    """What helped a killed writer may end a moment after it."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            async with start() as tier:
                if await states(tier, member) == [ABSENT]:
                    return
            await anyio.sleep(0.01)


async def _call(tier: Tier, call: str, member: Member, content: bytes) -> None:
    match call:
        case "store":
            await tier.store([item_of(member, content)], fence())
        case "verify":
            await tier.verify([member])
        case _:
            await read_all(tier, member)


class ContractUnderFaults(TierCases):
    """What a tier does when its caller, or its process, ends too early."""

    grade = Grade.SILVER

    # --- fences ---

    async def test_an_older_term_of_a_holder_is_fenced_and_changes_nothing(
        self, tier: Tier
    ) -> None:
        member = await store_one(tier, "payload", b"content")
        item = await drop_item(tier, member)
        other = member_of("other", b"content")
        await tier.drop([], fence(term=5))
        await tier.store([item_of(member, b"content")], fence(term=7))
        for old in (fence(term=6), fence(term=1)):
            assert kinds(await tier.store([item_of(other, b"content")], old)) == ["Fenced"]
            assert kinds(await tier.drop([item], old)) == ["Fenced"]
            assert kinds(await tier.quarantine([item], old)) == ["Fenced"]
        assert await states(tier, member, other) == [COMPLETE, ABSENT]
        assert kinds(await tier.drop([item], fence(term=1, holder="store-b"))) == ["Done"]

    async def test_terms_are_remembered_over_a_restart(self, harness: TierHarness) -> None:
        async with harness.tier() as tier:
            member = await store_one(tier, "payload", b"content")
            item = await drop_item(tier, member)
            await tier.store([item_of(member, b"content")], fence(term=9))
        async with harness.tier() as tier:
            assert kinds(await tier.drop([item], fence(term=8))) == ["Fenced"]
            assert kinds(await tier.drop([item], fence(term=9))) == ["Done"]

    async def test_a_term_that_ends_while_it_stores_publishes_nothing(self, tier: Tier) -> None:
        content = content_of(100)
        member = member_of("payload", content)

        async def take_over() -> None:
            assert kinds(await tier.drop([_nothing()], fence(term=2))) == ["NoOp"]

        source = source_of(content, before_read=take_over)
        batch = [StoreItem(member=member, open_source=source)]
        assert kinds(await tier.store(batch, fence(term=1))) == ["Fenced"]
        assert await states(tier, member) == [ABSENT]
        assert not await tier.inventory()

    # --- writers ---

    async def test_what_is_being_written_is_partial_and_busy(self, tier: Tier) -> None:
        content = content_of(PIECE_BYTES * 2)
        member = member_of("payload", content)
        reading, go_on = anyio.Event(), anyio.Event()
        found: list[str] = []

        async def wait() -> None:
            reading.set()
            await go_on.wait()

        async def write() -> None:
            source = source_of(content, before_read=wait)
            batch = [StoreItem(member=member, open_source=source)]
            found.extend(kinds(await tier.store(batch, fence())))

        async with anyio.create_task_group() as group:
            group.start_soon(write)
            await reading.wait()
            assert await states(tier, member) == [PARTIAL]
            assert kinds(await tier.store([item_of(member, content)], fence())) == ["Busy"]
            with pytest.raises(ReconcileError):
                async with tier.open(member):
                    pass
            go_on.set()
        assert found == ["Done"]
        assert await states(tier, member) == [COMPLETE]

    async def test_a_cancelled_store_leaves_nothing_and_can_be_repeated(self, tier: Tier) -> None:
        content = content_of(PIECE_BYTES * 2)
        member = member_of("payload", content)
        reading = anyio.Event()

        async def wait_forever() -> None:
            reading.set()
            await anyio.sleep_forever()

        async def write() -> None:
            source = source_of(content, before_read=wait_forever)
            await tier.store([StoreItem(member=member, open_source=source)], fence())

        before = await tier.capacity()
        async with anyio.create_task_group() as group:
            group.start_soon(write)
            await reading.wait()
            group.cancel_scope.cancel()
        assert await states(tier, member) == [ABSENT]
        assert not await tier.inventory()
        assert (await tier.capacity()).used_bytes == before.used_bytes
        await store_one(tier, "payload", content)

    @pytest.mark.parametrize("call", ["store", "verify", "open"])
    async def test_a_call_cancelled_at_any_await_holds_nothing(self, tier: Tier, call: str) -> None:
        """By `Task.cancel`, which also `asyncio.timeout` uses and which no shield holds off."""
        members = [member_of(f"key-{turns}", CONTENT) for turns in CANCELLED_AFTER]
        if call != "store":
            await store(tier, {member.key: CONTENT for member in members})
        for member, turns in zip(members, CANCELLED_AFTER, strict=True):
            task = asyncio.ensure_future(_call(tier, call, member, CONTENT))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            await _not_busy(partial(tier.store, [item_of(member, CONTENT)], fence()))
        # All at once: where a new replica is leased for a while, that is waited for once.
        dropped = [await drop_item(tier, member) for member in members]
        await _not_busy(partial(tier.drop, dropped, fence()))
        assert await states(tier, *members) == [ABSENT] * len(members)

    async def test_a_cancelled_batch_keeps_what_was_done(self, tier: Tier) -> None:
        first, second = member_of("a", b"first"), member_of("b", b"second")
        reading = anyio.Event()

        async def wait_forever() -> None:
            reading.set()
            await anyio.sleep_forever()

        source = source_of(b"second", before_read=wait_forever)
        batch = [item_of(first, b"first"), StoreItem(member=second, open_source=source)]

        async def write() -> None:
            await tier.store(batch, fence())

        async with anyio.create_task_group() as group:
            group.start_soon(write)
            await reading.wait()
            group.cancel_scope.cancel()
        seen, unseen = await states(tier, first, second)
        assert seen in (COMPLETE, ABSENT)
        assert unseen == ABSENT
        outcomes = await tier.store([item_of(first, b"first"), item_of(second, b"second")], fence())
        assert kinds(outcomes)[1] == "Done"
        assert await states(tier, first, second) == [COMPLETE, COMPLETE]

    async def test_a_killed_writer_is_cleaned_up_by_the_next_start(
        self, harness: TierHarness
    ) -> None:
        content = content_of(3 * PIECE_BYTES)
        member = member_of("payload", content)
        async with harness.tier() as tier:
            await store_one(tier, "kept", b"kept")
            used_bytes = (await tier.capacity()).used_bytes
        await to_thread.run_sync(harness.kill_writer, member, content)
        await _becomes_absent(harness.tier, member)
        async with harness.tier() as tier:
            assert [item.key for item in (await tier.inventory())[GROUP]] == ["kept"]
            assert (await tier.capacity()).used_bytes == used_bytes
            await store_one(tier, "payload", content)
            assert await read_all(tier, member) == content

    async def test_a_writer_that_is_killed_meanwhile_blocks_nothing(
        self, harness: TierHarness
    ) -> None:
        content = content_of(3 * PIECE_BYTES)
        member = member_of("payload", content)
        async with harness.tier() as tier:
            await store_one(tier, "kept", b"kept")
            await to_thread.run_sync(harness.kill_writer, member, content)
            await _becomes_absent(lambda: nullcontext(tier), member)
            await store_one(tier, "payload", content)
            listed = sorted((item.key, item.state) for item in (await tier.inventory())[GROUP])
            assert listed == [("kept", "complete"), ("payload", "complete")]


def _nothing() -> DropItem:
    return DropItem(member=member_of("nothing", b""), instance_id="0" * 16)
