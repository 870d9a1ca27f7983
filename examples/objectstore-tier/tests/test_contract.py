"""The contract of every tier, on this one."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from buckets import BucketHarness, LocalS3

from weightctl.adapters.conformance.suite import leaks
from weightctl.adapters.conformance.suite.tier_suite import TierSuite

FEWER = 10
"""A request to moto costs milliseconds: a tenth of the cycles, which may grow as much in all."""


class TestObjectStore(TierSuite):
    @pytest.fixture
    def harness(
        self, server: LocalS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[BucketHarness]:
        if "EXTENDED" not in os.environ:
            monkeypatch.setattr(leaks, "CYCLES", leaks.CYCLES // FEWER)
            monkeypatch.setattr(leaks, "GROWTH_BYTES_MAX", leaks.GROWTH_BYTES_MAX * FEWER)
        yield BucketHarness(server, tmp_path)
        server.fail("well")
