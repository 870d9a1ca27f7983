"""Cases of looking: it changes nothing.  Layer: conformance."""

import pytest
from anyio import to_thread

from weightctl.adapters.conformance.grades import Grade
from weightctl.adapters.conformance.suite.cases import TierCases
from weightctl.adapters.conformance.suite.harness import TierHarness
from weightctl.adapters.conformance.suite.material import (
    GROUP,
    drop_item,
    fence,
    item_of,
    kinds,
    member_of,
    members_of,
    states,
    store,
    store_one,
)
from weightctl.controller.core.observation import MemberState
from weightctl.controller.errors import TransientError
from weightctl.controller.ports import (
    Tier,
)

UNKNOWN, ABSENT = MemberState.UNKNOWN, MemberState.ABSENT
PARTIAL, COMPLETE = MemberState.PARTIAL, MemberState.COMPLETE


class ContractOfAsking(TierCases):
    """Asking leaves a medium as it is; on that stands what the cases of other stores compare."""

    grade = Grade.SILVER

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


class ContractOfLooking(TierCases):
    """Dry runs leave a medium as it is."""

    grade = Grade.GOLD

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
