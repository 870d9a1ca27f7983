"""The contract suite on the local_disk tier."""

from pathlib import Path

import pytest

from tests.support.file_media import FileHarness
from weightctl.adapters.conformance.suite.harness import TierHarness
from weightctl.adapters.conformance.suite.tier_suite import TierSuite


class TestLocalDisk(TierSuite):
    listed = 101  # each is flushed; `adapter check` lists more

    @pytest.fixture
    def harness(self, tmp_path: Path) -> TierHarness:
        return FileHarness("weightctl.adapters.local_disk:factory", tmp_path)
