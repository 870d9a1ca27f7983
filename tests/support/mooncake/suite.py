"""The tier contract as Mooncake's release can keep it: each departure stands here, with its test.

No object has zero bytes; keys that cannot be queried are refused; nothing can be quarantined.
"""

from dataclasses import replace

import pytest
from anyio import to_thread

from weightctl.adapters.conformance.suite.harness import TierHarness
from weightctl.adapters.conformance.suite.material import (
    GROUP,
    content_of,
    drop_item,
    fence,
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
from weightctl.adapters.conformance.suite.replicas import HOSTILE_KEYS
from weightctl.adapters.conformance.suite.tier_suite import TierSuite
from weightctl.adapters.mooncake.keys import problem_of
from weightctl.controller.core.observation import MemberState
from weightctl.controller.ports import DropItem, StoreItem, Tier


class MooncakeSuite(TierSuite):
    """The suite with what the release cannot do stated as tests of its own."""

    listed = 30  # its list has no pages
    unfit_keys = frozenset({"a/b", "/"})  # share a file name with others
    life_s = 300.0
    answers_s = 3.0  # its own deadline is a patient one

    @pytest.mark.parametrize("size_bytes", [1, 4095, 1024 * 1024, 9 * 1024 * 1024])
    async def test_stored_bytes_are_complete_and_read_back_the_same(
        self, tier: Tier, size_bytes: int
    ) -> None:
        await super().test_stored_bytes_are_complete_and_read_back_the_same(tier, size_bytes)

    async def test_an_object_without_bytes_is_refused_with_the_reason(self, tier: Tier) -> None:
        (outcome,) = await tier.store([item_of(member_of("empty", b""), b"")], fence())
        assert kinds([outcome]) == ["Permanent"]
        assert "no bytes" in str(outcome)

    @pytest.mark.parametrize("key", ["a,b", "new\nline", "x" * 241])
    async def test_a_key_that_could_not_be_seen_again_is_refused_before_it_is_written(
        self, tier: Tier, key: str
    ) -> None:
        (outcome,) = await tier.store([item_of(member_of(key, b"1"), b"1")], fence())
        assert kinds([outcome]) == ["Permanent"]
        assert not await tier.inventory()

    async def test_hostile_keys_are_told_apart(self, tier: Tier) -> None:
        keys = [key for key in HOSTILE_KEYS if not problem_of(key, 1)]
        keys = [key for key in keys if key not in self.unfit_keys]
        contents = {key: f"content {n}".encode() for n, key in enumerate(keys)}
        members = await store(tier, contents)
        for member in members:
            assert await read_all(tier, member) == contents[member.key]
        listed = {item.key: item.instance_id for item in (await tier.inventory())[GROUP]}
        assert sorted(listed) == sorted(keys)
        items = [
            DropItem(member=member, instance_id=listed[member.key], whole=True)
            for member in members
        ]
        assert kinds(await tier.drop(items, fence())) == ["Done"] * len(items)
        assert await states(tier, *members) == [MemberState.ABSENT] * len(members)

    @pytest.mark.parametrize("group_id", ["weight:x", "a/../b"])
    async def test_hostile_group_ids_are_told_apart(self, tier: Tier, group_id: str) -> None:
        """A cluster has one name space: a key belongs to the group that first has it."""
        await store(tier, {"key": b"in the other group"})
        other = member_of("key", b"here", group_id)
        assert kinds(await tier.store([item_of(other, b"here")], fence())) == ["Conflict"]
        await store(tier, {"another": b"here"}, group_id)
        assert set(await tier.inventory()) == {GROUP, group_id}
        assert set(await tier.inventory(group_id)) == {group_id}

    async def test_fifty_thousand_members_are_answered(self, tier: Tier) -> None:
        held = await store(tier, {f"{index:06d}": b"1" for index in range(0, 50_000, 10_000)})
        table = members_of([member_of(f"{index:06d}", b"1") for index in range(50_000)])
        observation = await tier.observe(table, detail=range(0, 50_000, 5_000))
        found = [i for i, state in enumerate(observation.states) if state == MemberState.COMPLETE]
        assert found == list(range(0, 50_000, 10_000))
        assert sorted(observation.details) == found
        assert observation.states.count(MemberState.ABSENT) == 50_000 - len(held)

    async def test_a_large_batch_is_answered_in_its_order(self, tier: Tier) -> None:
        contents = {f"{index:04d}": content_of(index + 1) for index in range(60)}
        members = await store(tier, contents)
        items = [await drop_item(tier, member) for member in members]
        assert kinds(await tier.verify(members)) == ["Done"] * 60
        assert kinds(await tier.drop(items, fence())) == ["Done"] * 60

    async def test_an_adopted_medium_belongs_to_the_new_store_for_good(
        self, harness: TierHarness
    ) -> None:
        """The new store names instances anew: what they were called is in the old one's book."""
        async with harness.tier() as tier:
            member = await store_one(tier, "payload", b"content")
        async with harness.tier_of("store-b", adopt=True) as other:
            assert await read_all(other, member) == b"content"
            assert kinds(await other.verify([member])) == ["Done"]
        async with harness.tier() as tier:
            assert await states(tier, member) == [MemberState.UNKNOWN]
        async with harness.tier_of("store-b") as other:
            assert await states(other, member) == [MemberState.COMPLETE]
            item = replace(await drop_item(other, member), whole=True)
            assert kinds(await other.drop([item], fence())) == ["Done"]

    async def test_a_quarantined_replica_is_out_of_sight_and_kept(self, tier: Tier) -> None:
        """Cannot be done: the replica stays as it is, and the reason is told."""
        member = await store_one(tier, "payload", b"content")
        item = await drop_item(tier, member)
        (outcome,) = await tier.quarantine([item], fence())
        assert kinds([outcome]) == ["Permanent"]
        assert await states(tier, member) == [MemberState.COMPLETE]

    async def test_a_new_replica_beside_a_quarantined_one_is_dropped_by_its_own_name(
        self, tier: Tier
    ) -> None:
        pytest.skip("nothing can be quarantined")

    async def test_a_flipped_bit_is_found_by_verify_and_can_be_quarantined(
        self, tier: Tier, harness: TierHarness
    ) -> None:
        pytest.skip("a reader is given the memory replica; see the tests of the real Master")

    async def test_a_medium_that_goes_while_it_is_written_publishes_nothing(
        self, tier: Tier, harness: TierHarness
    ) -> None:
        """What was begun may be seen as PARTIAL until it could be taken back; then it is stored."""
        await store_one(tier, "kept", b"kept")
        member = member_of("payload", b"content")

        async def take_away() -> None:
            await to_thread.run_sync(harness.take_away)

        source = source_of(b"content", before_read=take_away)
        outcomes = await tier.store([StoreItem(member=member, open_source=source)], fence())
        assert kinds(outcomes) == ["Retry"]
        await to_thread.run_sync(harness.bring_back)
        assert await states(tier, member) != [MemberState.COMPLETE]
        await store_one(tier, "payload", b"content")
