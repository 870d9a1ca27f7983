"""The contract of a tier, for nof on a plain file."""

from pathlib import Path

import pytest

from tests.contract.tier_owners import ContractOfOwners
from tests.contract.tier_sources import ContractOfSources
from tests.contract.tier_suite import TierSuite
from tests.support.nof_harness import NofHarness


class TestNof(ContractOfOwners, ContractOfSources, TierSuite):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> NofHarness:
        return NofHarness(tmp_path)
