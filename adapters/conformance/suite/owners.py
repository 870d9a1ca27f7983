"""Cases of a medium that several stores name: it belongs to one.  Layer: conformance."""

import pytest
from anyio import to_thread

from weightctl.adapters.conformance.grades import Grade
from weightctl.adapters.conformance.suite.cases import TierCases
from weightctl.adapters.conformance.suite.harness import TierHarness
from weightctl.adapters.conformance.suite.material import (
    HOLDER,
    drop_item,
    fence,
    item_of,
    kinds,
    member_of,
    members_of,
    read_all,
    states,
    store_one,
)
from weightctl.controller.core.observation import MemberState
from weightctl.controller.errors import TerminalError
from weightctl.controller.ports import DropItem, Tier

UNKNOWN, ABSENT, COMPLETE = MemberState.UNKNOWN, MemberState.ABSENT, MemberState.COMPLETE
OTHER = "store-b"


class ContractOfOwners(TierCases):
    """A medium belongs to the store that first used it."""

    grade = Grade.SILVER

    async def test_the_medium_of_another_store_is_unknown_and_nothing_changes(
        self, harness: TierHarness
    ) -> None:
        async with harness.tier() as tier:
            member = await store_one(tier, "payload", b"content")
            item = await drop_item(tier, member)
        before = await to_thread.run_sync(harness.fingerprint)
        async with harness.tier_of(OTHER) as other:
            await _assert_refused(other, item)
        assert await to_thread.run_sync(harness.fingerprint) == before
        async with harness.tier() as tier:
            assert await states(tier, member) == [COMPLETE]
            assert await read_all(tier, member) == b"content"

    async def test_another_store_is_refused_while_the_owner_has_it_open(
        self, harness: TierHarness
    ) -> None:
        async with harness.tier() as tier:
            member = await store_one(tier, "payload", b"content")
            async with harness.tier_of(OTHER) as other:
                await _assert_refused(other, await drop_item(tier, member))
            assert await states(tier, member) == [COMPLETE]

    async def test_a_new_medium_belongs_to_the_first_that_enters_it(
        self, harness: TierHarness
    ) -> None:
        member = member_of("payload", b"content")
        async with harness.tier_of(OTHER) as other:
            assert await states(other, member) == [ABSENT]
        async with harness.tier() as tier:
            assert await states(tier, member) == [UNKNOWN]

    async def test_an_adopted_medium_belongs_to_the_new_store_for_good(
        self, harness: TierHarness
    ) -> None:
        async with harness.tier() as tier:
            member = await store_one(tier, "payload", b"content")
            item = await drop_item(tier, member)
        async with harness.tier_of(OTHER, adopt=True) as other:
            assert await read_all(other, member) == b"content"
            assert kinds(await other.verify([member])) == ["Done"]
        async with harness.tier() as tier:
            await _assert_refused(tier, item)
        async with harness.tier_of(OTHER) as other:
            assert await states(other, member) == [COMPLETE]
            assert kinds(await other.drop([item], fence())) == ["Done"]

    async def test_two_stores_never_both_have_a_medium(self, harness: TierHarness) -> None:
        async with harness.tier() as tier:
            member = await store_one(tier, "payload", b"content")
            async with harness.tier_of(OTHER, adopt=True) as other:
                both = await states(tier, member) + await states(other, member)
                assert sorted(both) == sorted([COMPLETE, UNKNOWN])

    async def test_a_medium_without_an_owner_becomes_that_of_the_next_store(
        self, harness: TierHarness
    ) -> None:
        async with harness.tier_of("") as tier:
            member = await store_one(tier, "payload", b"content")
        async with harness.tier() as tier:
            assert await states(tier, member) == [COMPLETE]
        async with harness.tier_of(OTHER) as other:
            assert await states(other, member) == [UNKNOWN]
        async with harness.tier_of("") as tier:
            assert await states(tier, member) == [COMPLETE]

    async def test_a_dry_run_makes_a_medium_nobodys_and_takes_none(
        self, harness: TierHarness
    ) -> None:
        async with harness.tier_of("") as tier:
            member = await store_one(tier, "payload", b"content")
        before = await to_thread.run_sync(harness.fingerprint)
        for adopt in (False, True):
            async with harness.tier_of(OTHER, adopt=adopt, read_only=True) as other:
                assert await states(other, member) == [COMPLETE]
        assert await to_thread.run_sync(harness.fingerprint) == before
        async with harness.tier_of(HOLDER) as tier:
            assert await states(tier, member) == [COMPLETE]
        before = await to_thread.run_sync(harness.fingerprint)
        for adopt in (False, True):
            async with harness.tier_of(OTHER, adopt=adopt, read_only=True) as other:
                await _assert_refused(other, DropItem(member=member, instance_id="0" * 16))
        assert await to_thread.run_sync(harness.fingerprint) == before


async def _assert_refused(tier: Tier, item: DropItem) -> None:
    """Nothing of a medium that belongs to another store is known, or done to it."""
    wanted = item.member
    observation = await tier.observe(members_of([wanted]), detail=[0])
    assert observation.states == bytes([UNKNOWN])
    assert "belongs to another store" in observation.problem
    assert not observation.epoch
    assert not observation.details
    fresh = member_of("fresh", b"fresh")
    assert kinds(await tier.store([item_of(fresh, b"fresh")], fence())) == ["Permanent"]
    assert kinds(await tier.drop([item], fence())) == ["Permanent"]
    assert kinds(await tier.quarantine([item], fence())) == ["Permanent"]
    assert kinds(await tier.verify([wanted])) == ["Permanent"]
    for ask in (tier.inventory, tier.capacity):
        with pytest.raises(TerminalError, match=r"another (path|cluster)(.|\n)*`adopt = true`"):
            await ask()
    with pytest.raises(TerminalError, match="another store"):
        async with tier.open(wanted):
            pass
