"""The contract suite on the dfs tier, on MooseFS."""

import shutil
from pathlib import Path

import pytest

from tests.contract.test_dfs import DfsHarness
from tests.faults.moosefs.lab import MASTER, Lab
from tests.faults.moosefs.torture import times
from weightctl.adapters.conformance.suite.harness import TierHarness
from weightctl.adapters.conformance.suite.material import context
from weightctl.adapters.conformance.suite.tier_suite import TierSuite
from weightctl.controller.ports import Tier


class MooseHarness(DfsHarness):
    """The root is a link to a folder of the file system; what stays there is an empty folder."""

    def __init__(self, folder: Path, lab: Lab) -> None:
        super().__init__("weightctl.adapters.dfs:factory", folder)
        self.lab = lab
        self.home = lab.mount / folder.name
        self.home.mkdir()
        self.root.symlink_to(self.home)

    def hasty_tier(self) -> Tier:
        return self._made(context(self.folder / "state"), {"deadline_s": 1.0})

    def hang(self) -> None:
        self.lab.freeze(MASTER)

    def resume(self) -> None:
        self.lab.thaw(MASTER)

    def begin_anew(self) -> None:
        shutil.rmtree(self.home)
        self.home.mkdir()
        shutil.rmtree(self.folder / "state", ignore_errors=True)

    def fingerprint(self) -> object:
        stored = [(str(path), path.lstat().st_mtime_ns) for path in sorted(self.home.rglob("*"))]
        return super().fingerprint(), stored


class TestDfsOnMooseFS(TierSuite):
    cycles = times(100)

    @pytest.fixture
    def harness(self, lab: Lab, tmp_path: Path) -> TierHarness:
        return MooseHarness(tmp_path, lab)
