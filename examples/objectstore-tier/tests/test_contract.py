"""The contract of every tier, on this one."""

import os

import pytest
from buckets import BucketHarness

from weightctl.adapters.conformance.suite import leaks
from weightctl.adapters.conformance.suite.tier_suite import TierSuite

FEWER = 10
"""A request to moto costs milliseconds: a tenth of the cycles, which may grow as much in all."""


class TestObjectStore(TierSuite):
    harness_type = BucketHarness

    @pytest.fixture(autouse=True)
    def fewer_cycles(self, monkeypatch: pytest.MonkeyPatch) -> None:
        if "EXTENDED" not in os.environ:
            monkeypatch.setattr(leaks, "CYCLES", leaks.CYCLES // FEWER)
            monkeypatch.setattr(leaks, "GROWTH_BYTES_MAX", leaks.GROWTH_BYTES_MAX * FEWER)
