"""The contract of a tier, for nof on a plain file."""

from pathlib import Path

import pytest

from tests.support.nof_harness import NofHarness
from weightctl.adapters.conformance.suite.tier_suite import TierSuite


class TestNof(TierSuite):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> NofHarness:
        return NofHarness(tmp_path)
