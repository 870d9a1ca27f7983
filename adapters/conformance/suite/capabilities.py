"""Cases of what a tier declares: declared and failing is a failure.  Layer: conformance.

What works without being declared is a hint: the planner could use the tier for more.
"""

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import fields

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
from weightctl.controller.core.tiers import Capabilities, TierProfile, refusal_of
from weightctl.controller.errors import ReconcileError
from weightctl.controller.ports import PIECE_BYTES, StoreItem, Tier

ABSENT, PARTIAL, COMPLETE = MemberState.ABSENT, MemberState.PARTIAL, MemberState.COMPLETE
Record = Callable[[str, object], None]
ROUNDS = 5


class ContractOfCapabilities(TierCases):
    """The profile, and each capability in it."""

    grade = Grade.BRONZE

    async def test_the_profile_is_whole_and_constant(
        self, tier: Tier, harness: TierHarness, record_property: Record
    ) -> None:
        profile = tier.profile
        assert isinstance(profile, TierProfile)
        assert profile.name == harness.name, "the name is the factory's first argument"
        assert profile.kind
        assert not refusal_of(profile.api_version)
        assert profile.bandwidth_bytes_per_s >= 0
        assert profile.latency_s >= 0
        await tier.observe(members_of([member_of("a", b"")]))
        assert tier.profile == profile
        record_property("profile", described(profile))

    async def test_replicas_of_a_persistent_tier_outlive_its_process(
        self, harness: TierHarness, record_property: Record
    ) -> None:
        async with harness.tier() as tier:
            member = await store_one(tier, "payload", b"content")
            first = await tier.observe(members_of([member]))
        async with harness.tier() as tier:
            second = await tier.observe(members_of([member]))
            declared = tier.profile.capabilities.persistent
            kept = second.states == bytes([COMPLETE])
            if kept:
                assert await read_all(tier, member) == b"content"
            if second.states == bytes([ABSENT]):
                assert second.epoch != first.epoch, "a tier that has forgotten has a new epoch"
        if declared:
            assert kept
        elif kept:
            record_property(
                "hint", "replicas outlive the process; if also the host, declare `persistent`"
            )

    async def test_a_tier_with_checksums_tells_the_digest_that_it_stored(
        self, tier: Tier, record_property: Record
    ) -> None:
        member = await store_one(tier, "payload", content_of(1000))
        observation = await tier.observe(members_of([member]), detail=[0])
        told = observation.details[0].sha256
        assert told in (None, member.sha256)
        if tier.profile.capabilities.checksum:
            assert told == member.sha256
        elif told is not None:
            record_property("hint", "it tells digests: declare `checksum`")

    async def test_a_mappable_tier_gives_a_path(self, tier: Tier, record_property: Record) -> None:
        member = await store_one(tier, "payload", content_of(1000))
        path = await to_thread.run_sync(tier.map_path, member)
        if tier.profile.capabilities.mappable:
            assert path is not None
        elif path is not None:
            record_property("hint", "it gives paths to map: declare `mappable`")

    async def test_a_shared_tier_is_seen_alike_by_two_processes(self, harness: TierHarness) -> None:
        async with harness.tier() as one:
            if not one.profile.capabilities.shared:
                pytest.skip("the tier is not declared `shared`")
            member = await store_one(one, "payload", b"content")
            async with harness.tier() as other:
                assert await states(other, member) == [COMPLETE]
                again = member_of("again", b"content")
                batch = [StoreItem(member=again, open_source=lambda: other.open(member))]
                assert kinds(await other.store(batch, fence())) == ["Done"]
            assert await states(one, member, again) == [COMPLETE, COMPLETE]

    async def test_nobody_sees_a_half_replica_of_a_tier_that_publishes_atomically(
        self, tier: Tier, harness: TierHarness
    ) -> None:
        _declared(tier, "atomic_publish")
        content = content_of(2 * PIECE_BYTES + 5)
        member = member_of("payload", content)
        looks = 0

        async def look() -> None:
            nonlocal looks
            looks += 1
            for one in viewers:
                assert (await states(one, member))[0] in (ABSENT, PARTIAL)
                assert not await _listed(one)
                with pytest.raises(ReconcileError):
                    await read_all(one, member)

        async with AsyncExitStack() as others:
            viewers = [tier]
            if tier.profile.capabilities.shared:
                viewers.append(await others.enter_async_context(harness.tier()))
            source = source_of(content, before_read=look)
            batch = [StoreItem(member=member, open_source=source)]
            outcomes = await tier.store(batch, fence())
            assert kinds(outcomes) == ["Done"], outcomes
            assert looks
            for one in viewers:
                assert await states(one, member) == [COMPLETE]
                assert await read_all(one, member) == content

    async def test_a_range_is_the_slice_of_the_content(self, tier: Tier) -> None:
        _declared(tier, "ranged_read")
        content = content_of(2 * PIECE_BYTES + 5)
        size, edge = len(content), PIECE_BYTES
        member = await store_one(tier, "payload", content)
        async with tier.open(member) as reader:
            for begin, end in (
                (size - 1, size),
                (edge - 1, edge + 1),
                (2 * edge, size),
                (1, edge + 2),
                (0, 1),
            ):
                buffer = bytearray(end - begin)
                await reader.read_into(begin, memoryview(buffer))
                assert buffer == content[begin:end]

    async def test_a_deletion_that_is_immediate_is_seen_at_once(
        self, tier: Tier, harness: TierHarness
    ) -> None:
        _declared(tier, "delete_is_immediate")
        async with AsyncExitStack() as others:
            viewers = [tier]
            if tier.profile.capabilities.shared:
                viewers.append(await others.enter_async_context(harness.tier()))
            for _ in range(ROUNDS):
                member = await store_one(tier, "payload", b"content")
                item = await drop_item(tier, member)
                assert kinds(await tier.drop([item], fence())) == ["Done"]
                for one in viewers:
                    assert await states(one, member) == [ABSENT]
                    with pytest.raises(ReconcileError):
                        await read_all(one, member)

    async def test_a_consistent_list_follows_every_change_at_once(
        self, tier: Tier, harness: TierHarness
    ) -> None:
        _declared(tier, "list_is_consistent")
        async with AsyncExitStack() as others:
            viewers = [tier]
            if tier.profile.capabilities.shared:
                viewers.append(await others.enter_async_context(harness.tier()))
            left = await store(tier, {f"key-{number}": b"content" for number in range(ROUNDS)})
            while left:
                for one in viewers:
                    assert await _listed(one) == sorted(member.key for member in left)
                item = await drop_item(tier, left.pop())
                assert kinds(await tier.drop([item], fence())) == ["Done"]
            for one in viewers:
                assert not await _listed(one)


def _declared(tier: Tier, capability: str) -> None:
    if not getattr(tier.profile.capabilities, capability):
        pytest.skip(f"the tier is not declared `{capability}`")


async def _listed(tier: Tier) -> list[str]:
    """The keys that the inventory shows as there."""
    items = (await tier.inventory()).get(GROUP, ())
    return sorted(item.key for item in items if item.state == "complete")


def described(profile: TierProfile) -> dict[str, object]:
    """The profile for people and for JSON."""
    declared = [
        field.name for field in fields(Capabilities) if getattr(profile.capabilities, field.name)
    ]
    return {
        "kind": profile.kind,
        "hot": profile.hot,
        "api": profile.api_version,
        "declares": ", ".join(declared),
    }
