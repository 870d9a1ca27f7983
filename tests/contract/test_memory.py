"""The contract suite on the memory tier."""

import shutil
from pathlib import Path

import pytest
from anyio import to_thread

from tests.support.file_media import FileHarness
from weightctl.adapters.conformance.suite.material import members_of, read_all, store_one
from weightctl.adapters.conformance.suite.tier_suite import TierSuite
from weightctl.controller.core.observation import MemberState


class TestMemory(TierSuite):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> FileHarness:
        return FileHarness("weightctl.adapters.memory:factory", tmp_path)

    async def test_a_root_that_was_removed_is_made_anew_and_is_empty(
        self, harness: FileHarness
    ) -> None:
        async with harness.tier() as tier:
            member = await store_one(tier, "payload", b"content")
            before = await tier.observe(members_of([member]))
            await to_thread.run_sync(shutil.rmtree, harness.root)
            after = await tier.observe(members_of([member]))
            assert after.states == bytes([MemberState.ABSENT])
            assert after.epoch != before.epoch
            await store_one(tier, "payload", b"content")
            assert await read_all(tier, member) == b"content"
            assert (await tier.capacity()).used_bytes == len(b"content")
