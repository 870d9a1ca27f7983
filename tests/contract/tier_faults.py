"""The contract of a tier under faults: fences, cancelled callers, killed writers, hurt media."""

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial

import anyio
import pytest
from anyio import to_thread

from tests.contract.harness import (
    GROUP,
    TierHarness,
    content_of,
    drop_item,
    fence,
    instance,
    item_of,
    kinds,
    member_of,
    members_of,
    read_all,
    source_of,
    states,
    store,
    store_one,
)
from weightctl.controller.core.observation import Member, MemberState
from weightctl.controller.errors import ReconcileError, TransientError
from weightctl.controller.ports import (
    PIECE_BYTES,
    Conflict,
    Corrupt,
    Done,
    DropItem,
    NoOp,
    Outcome,
    StoreItem,
    Tier,
)

UNKNOWN, ABSENT = MemberState.UNKNOWN, MemberState.ABSENT
PARTIAL, COMPLETE = MemberState.PARTIAL, MemberState.COMPLETE

CANCELLED_AFTER = (0, 1, 2, 3, 4, 5, 6, 8, 11, 15, 21, 30, 45, 70)
"""Turns of the loop after which a call is cancelled: through all of its awaits."""
PATIENCE_S = 30.0
"""Bound of a wait for what a cancelled call left to a worker."""


async def _not_busy(act: Callable[[], Awaitable[Sequence[Outcome]]]) -> None:
    """Act until it is not refused as Busy, for PATIENCE_S at most."""
    with anyio.fail_after(PATIENCE_S):
        while kinds(await act()) == ["Busy"]:  # noqa: ASYNC110 - a worker process gives no event
            await anyio.sleep(0.01)


async def _call(tier: Tier, call: str, member: Member, content: bytes) -> None:
    match call:
        case "store":
            await tier.store([item_of(member, content)], fence())
        case "verify":
            await tier.verify([member])
        case _:
            await read_all(tier, member)


class ContractUnderFaults:
    """What a tier does when something goes wrong."""

    @pytest.fixture
    async def tier(self, harness: TierHarness) -> AsyncIterator[Tier]:
        async with harness.tier() as tier:
            yield tier

    # --- fences ---

    async def test_an_older_term_of_a_holder_is_fenced_and_changes_nothing(
        self, tier: Tier, harness: TierHarness
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
        content = b"content"
        for turns in CANCELLED_AFTER:
            member = member_of(f"key-{turns}", content)
            if call != "store":
                await store_one(tier, member.key, content)
            task = asyncio.ensure_future(_call(tier, call, member, content))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            stored = [item_of(member, content)]
            await _not_busy(partial(tier.store, stored, fence()))
            dropped = [await drop_item(tier, member)]
            await _not_busy(partial(tier.drop, dropped, fence()))
            assert await states(tier, member) == [ABSENT]

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
        async with harness.tier() as tier:
            assert await states(tier, member) == [ABSENT]
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
            assert await states(tier, member) == [ABSENT]
            await store_one(tier, "payload", content)
            listed = [(item.key, item.state) for item in (await tier.inventory())[GROUP]]
            assert listed == [("kept", "complete"), ("payload", "complete")]

    # --- bits ---

    async def test_a_flipped_bit_is_found_by_verify_and_can_be_quarantined(
        self, tier: Tier, harness: TierHarness
    ) -> None:
        content = content_of(PIECE_BYTES + 100)
        sound, hurt = await store(tier, {"sound": content, "hurt": content})
        await to_thread.run_sync(harness.flip_bit, hurt)
        verified = await tier.verify([sound, hurt])
        assert kinds(verified) == ["Done", "Corrupt"]
        corrupt = verified[1]
        assert isinstance(corrupt, Corrupt)
        assert corrupt.expected == hurt.sha256 != corrupt.got
        assert corrupt.instance_id == await instance(tier, hurt)
        item = DropItem(member=hurt, instance_id=corrupt.instance_id)
        assert kinds(await tier.quarantine([item], fence())) == ["Done"]
        assert await states(tier, sound, hurt) == [COMPLETE, ABSENT]
        await store_one(tier, "hurt", content)
        assert kinds(await tier.verify([hurt])) == ["Done"]

    # --- the medium ---

    async def test_replicas_and_epoch_outlive_a_restart(self, harness: TierHarness) -> None:
        async with harness.tier() as tier:
            member = await store_one(tier, "payload", b"content")
            before = await tier.observe(members_of([member]), detail=[0])
        async with harness.tier() as tier:
            assert await tier.observe(members_of([member]), detail=[0]) == before
            assert await read_all(tier, member) == b"content"

    async def test_a_medium_that_went_away_is_unknown_and_never_empty(
        self, tier: Tier, harness: TierHarness
    ) -> None:
        member, other = await store_one(tier, "payload", b"content"), member_of("other", b"")
        item = await drop_item(tier, member)
        await to_thread.run_sync(harness.take_away)
        await _assert_unknown(tier, item)
        assert not _claims_success(await tier.store([item_of(other, b"")], fence()))
        await to_thread.run_sync(harness.bring_back)
        assert await states(tier, member, other) == [COMPLETE, ABSENT]
        assert await read_all(tier, member) == b"content"

    async def test_another_medium_in_its_place_is_unknown_and_never_empty(
        self, tier: Tier, harness: TierHarness
    ) -> None:
        member = await store_one(tier, "payload", b"content")
        item = await drop_item(tier, member)
        await to_thread.run_sync(harness.replace)
        await _assert_unknown(tier, item)
        assert not _claims_success(await tier.store([item_of(member, b"content")], fence()))

    async def test_a_persistent_medium_that_is_away_at_the_start_is_not_begun_anew(
        self, harness: TierHarness
    ) -> None:
        async with harness.tier() as tier:
            if not tier.profile.capabilities.persistent:
                pytest.skip("this tier may forget")
            member = await store_one(tier, "payload", b"content")
            item = await drop_item(tier, member)
        await to_thread.run_sync(harness.take_away)
        async with harness.tier() as tier:
            await _assert_unknown(tier, item)
            await to_thread.run_sync(harness.bring_back)
            assert await states(tier, member) == [COMPLETE]

    async def test_a_medium_that_goes_while_it_is_written_publishes_nothing(
        self, tier: Tier, harness: TierHarness
    ) -> None:
        await store_one(tier, "kept", b"kept")
        member = member_of("payload", b"content")

        async def take_away() -> None:
            await to_thread.run_sync(harness.take_away)

        source = source_of(b"content", before_read=take_away)
        outcomes = await tier.store([StoreItem(member=member, open_source=source)], fence())
        assert not _claims_success(outcomes)
        await to_thread.run_sync(harness.bring_back)
        assert await states(tier, member) == [ABSENT]

    # --- looking without touching ---

    async def test_asking_changes_nothing(self, tier: Tier, harness: TierHarness) -> None:
        members = await store(tier, {"a": b"content a", "b": b"content b"})
        members.append(member_of("absent", b""))
        before = await to_thread.run_sync(harness.fingerprint)
        for _ in range(3):
            await tier.observe(members_of(members), detail=range(3))
            await tier.inventory()
            await tier.inventory(GROUP)
            await tier.capacity()
        assert await to_thread.run_sync(harness.fingerprint) == before

    async def test_a_dry_run_changes_nothing_and_sees_everything(
        self, harness: TierHarness
    ) -> None:
        async with harness.tier() as tier:
            member = await store_one(tier, "payload", b"content")
        before = await to_thread.run_sync(harness.fingerprint)
        async with harness.tier(read_only=True) as tier:
            assert await states(tier, member, member_of("other", b"")) == [COMPLETE, ABSENT]
            assert (await tier.capacity()).used_bytes >= 7
        assert await to_thread.run_sync(harness.fingerprint) == before

    async def test_a_dry_run_refuses_to_store_and_to_remove(self, harness: TierHarness) -> None:
        async with harness.tier() as tier:
            member = await store_one(tier, "payload", b"content")
            item = await drop_item(tier, member)
        async with harness.tier(read_only=True) as tier:
            other = item_of(member_of("other", b"other"), b"other")
            assert kinds(await tier.store([other], fence(2))) == ["Permanent"]
            assert kinds(await tier.quarantine([item], fence(2))) != ["Done"]
            assert kinds(await tier.drop([item], fence(2))) == ["Permanent"]
        async with harness.tier() as tier:
            assert await states(tier, member, other.member) == [COMPLETE, ABSENT]
            assert kinds(await tier.drop([item], fence(1))) == ["Done"]

    async def test_a_dry_run_on_a_medium_that_was_never_set_up_is_unknown(
        self, harness: TierHarness
    ) -> None:
        before = await to_thread.run_sync(harness.fingerprint)
        async with harness.tier(read_only=True) as tier:
            observation = await tier.observe(members_of([member_of("payload", b"")]))
            assert observation.states == bytes([UNKNOWN])
            assert observation.problem.startswith("not set up yet")
            with pytest.raises(TransientError, match="not set up yet"):
                await tier.capacity()
        assert await to_thread.run_sync(harness.fingerprint) == before

    # --- leaks ---

    async def test_a_thousand_opened_replicas_leave_no_descriptor(self, tier: Tier) -> None:
        member = await store_one(tier, "payload", b"content")
        assert await read_all(tier, member) == b"content"
        before = await _descriptors()
        for _ in range(1000):
            async with tier.open(member):
                pass
        assert await _descriptors() <= before

    async def test_many_starts_leave_no_descriptor(self, harness: TierHarness) -> None:
        async with harness.tier() as tier:
            await store_one(tier, "payload", b"content")
        before = await _descriptors()
        for _ in range(20):
            async with harness.tier() as tier:
                await tier.capacity()
        assert await _descriptors() <= before + 2  # what the loop itself keeps


def _nothing() -> DropItem:
    return DropItem(member=member_of("nothing", b""), instance_id="0" * 16)


def _claims_success(outcomes: object) -> bool:
    assert isinstance(outcomes, (list, tuple))
    return any(isinstance(outcome, (Done, NoOp, Conflict)) for outcome in outcomes)


async def _assert_unknown(tier: Tier, item: DropItem) -> None:
    """Nothing is known of a medium that is not the right one, and nothing is done to it."""
    observation = await tier.observe(members_of([item.member]), detail=[0])
    assert observation.states == bytes([UNKNOWN])
    assert observation.epoch == ""
    assert observation.problem
    assert not observation.details
    assert not _claims_success(await tier.drop([item], fence()))
    assert not _claims_success(await tier.quarantine([item], fence()))
    assert not _claims_success(await tier.verify([item.member]))
    for ask in (tier.inventory, tier.capacity):
        with pytest.raises(ReconcileError):
            await ask()
    with pytest.raises(ReconcileError):
        async with tier.open(item.member):
            pass


async def _descriptors() -> int:
    def count() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names are all that is asked

    return await to_thread.run_sync(count)
