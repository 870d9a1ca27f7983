"""The contract suite on the memory tier."""

from pathlib import Path

import pytest

from tests.contract.harness import TierHarness
from tests.contract.tier_sources import ContractOfSources
from tests.contract.tier_suite import TierSuite
from tests.support.file_media import FileHarness
from weightctl.adapters.memory import factory


class TestMemory(ContractOfSources, TierSuite):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> TierHarness:
        return FileHarness("weightctl.adapters.memory:factory", factory, tmp_path)
