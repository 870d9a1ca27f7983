"""The contract of every tier, on this one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from buckets import BucketHarness, LocalS3

from weightctl.adapters.conformance.suite.tier_suite import TierSuite


class TestObjectStore(TierSuite):
    @pytest.fixture
    def harness(self, server: LocalS3, tmp_path: Path) -> Iterator[BucketHarness]:
        yield BucketHarness(server, tmp_path)
        server.fail("well")
