"""The contract suite on the dfs tier, on an ordinary folder."""

import fcntl
import time
from pathlib import Path

import pytest

from tests.support.file_media import FileHarness
from weightctl.adapters.conformance.suite.harness import TierHarness
from weightctl.adapters.conformance.suite.tier_suite import TierSuite
from weightctl.controller.core.observation import Member


class DfsHarness(FileHarness):
    """Its writer is a worker process, which the kernel ends after the killed one."""

    def kill_writer(self, member: Member, content: bytes) -> None:
        super().kill_writer(member, content)
        (partial,) = (path for path in self.files() if path.name.endswith(".partial"))
        with partial.open("rb") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    time.sleep(0.001)
                else:
                    return


class TestDfs(TierSuite):
    listed = 101

    @pytest.fixture
    def harness(self, tmp_path: Path) -> TierHarness:
        return DfsHarness("weightctl.adapters.dfs:factory", tmp_path)
