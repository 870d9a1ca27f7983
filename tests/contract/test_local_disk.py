"""The contract suite on the local_disk tier."""

from pathlib import Path

import pytest

from tests.contract.harness import TierHarness
from tests.contract.tier_owners import ContractOfOwners
from tests.contract.tier_sources import ContractOfSources
from tests.contract.tier_suite import TierSuite
from tests.support.file_media import FileHarness
from weightctl.adapters.local_disk import factory


class TestLocalDisk(ContractOfOwners, ContractOfSources, TierSuite):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> TierHarness:
        return FileHarness("weightctl.adapters.local_disk:factory", factory, tmp_path)
