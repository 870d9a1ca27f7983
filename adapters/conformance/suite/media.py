"""Cases of media that are hurt, taken away or exchanged.  Layer: conformance."""

from contextlib import suppress

import pytest
from anyio import to_thread

from weightctl.adapters.conformance.grades import Grade
from weightctl.adapters.conformance.suite.cases import TierCases
from weightctl.adapters.conformance.suite.harness import TierHarness
from weightctl.adapters.conformance.suite.material import (
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
from weightctl.controller.core.observation import MemberState
from weightctl.controller.errors import ReconcileError
from weightctl.controller.ports import (
    PIECE_BYTES,
    Conflict,
    Corrupt,
    Done,
    DropItem,
    NoOp,
    StoreItem,
    Tier,
)

UNKNOWN, ABSENT = MemberState.UNKNOWN, MemberState.ABSENT
PARTIAL, COMPLETE = MemberState.PARTIAL, MemberState.COMPLETE


class ContractOfMedia(TierCases):
    """What is not answered is UNKNOWN, and never absent."""

    grade = Grade.SILVER

    # --- bits ---

    async def test_a_flipped_bit_is_found_by_verify_and_can_be_quarantined(
        self, tier: Tier, harness: TierHarness
    ) -> None:
        content = content_of(PIECE_BYTES + 100)
        sound, hurt = await store(tier, {"sound": content[::-1], "hurt": content})
        await to_thread.run_sync(harness.flip_bit, hurt, content)
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

    async def test_a_replica_that_was_cut_is_not_shown_as_whole(
        self, tier: Tier, harness: TierHarness
    ) -> None:
        content = content_of(100_000)
        sound, hurt = await store(tier, {"sound": content[::-1], "hurt": content})
        await to_thread.run_sync(harness.cut, hurt, content)
        seen = await tier.observe(members_of([sound, hurt]), detail=[0, 1])
        assert seen.states[0] == COMPLETE
        if seen.states[1] == COMPLETE:
            assert seen.details[1].size_bytes < hurt.size_bytes
        wanted = ["Corrupt"] if seen.states[1] == COMPLETE else ["Corrupt", "Conflict"]
        assert kinds(await tier.verify([sound])) == ["Done"]
        assert kinds(await tier.verify([hurt]))[0] in wanted
        with suppress(ReconcileError):
            assert await read_all(tier, hurt) != content

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

    async def test_a_medium_begun_anew_is_empty_and_has_another_epoch(
        self, harness: TierHarness
    ) -> None:
        async with harness.tier() as tier:
            member = await store_one(tier, "payload", b"content")
            before = await tier.observe(members_of([member]))
        await to_thread.run_sync(harness.begin_anew)
        async with harness.tier() as tier:
            after = await tier.observe(members_of([member]))
            assert after.states == bytes([ABSENT])
            assert after.epoch not in ("", before.epoch)
            assert (await tier.observe(members_of([]))).epoch == after.epoch
            assert not await tier.inventory()

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
    sign = await tier.observe(members_of([]))
    assert not sign.epoch
    assert sign.problem
    assert not _claims_success(await tier.drop([item], fence()))
    assert not _claims_success(await tier.quarantine([item], fence()))
    assert not _claims_success(await tier.verify([item.member]))
    for ask in (tier.inventory, tier.capacity):
        with pytest.raises(ReconcileError):
            await ask()
    with pytest.raises(ReconcileError):
        async with tier.open(item.member):
            pass
