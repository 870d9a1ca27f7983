"""Cases of what may be left behind: nothing.  Layer: conformance."""

import gc
import os

from anyio import to_thread

from weightctl.adapters.conformance.grades import Grade
from weightctl.adapters.conformance.suite.cases import TierCases
from weightctl.adapters.conformance.suite.harness import TierHarness
from weightctl.adapters.conformance.suite.material import (
    read_all,
    store_one,
)
from weightctl.controller.core.observation import MemberState
from weightctl.controller.ports import (
    Tier,
)

UNKNOWN, ABSENT = MemberState.UNKNOWN, MemberState.ABSENT
PARTIAL, COMPLETE = MemberState.PARTIAL, MemberState.COMPLETE


class ContractOfLeaks(TierCases):
    """Descriptors, threads, tasks and memory do not grow."""

    grade = Grade.GOLD

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


async def _descriptors() -> int:
    def count() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names are all that is asked

    return await to_thread.run_sync(count)
