"""The cases of a hanging medium, for nof on a device of which no request is answered."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fuse.faults import CHANGING, READING, Fault, How
from tests.support.fuse.mounted import Lab, mounted
from tests.support.nof_harness import SIZE_BYTES, NofHarness
from weightctl.adapters.conformance.suite.hanging import ContractOfHangingMedia
from weightctl.adapters.conformance.suite.material import context
from weightctl.adapters.nof.options import build
from weightctl.controller.ports import Tier


class HangingNofHarness(NofHarness):
    """The device is a file on a disk that stops answering; what it was asked is done later."""

    def __init__(self, folder: Path, lab: Lab) -> None:
        super().__init__(folder)
        self._path = folder / "disk" / "n.img"
        self._lab = lab

    def hasty_tier(self) -> Tier:
        options = {"path": str(self._path), "size_bytes": SIZE_BYTES, "deadline_s": 2.0}
        return build("nof", options, context(self.folder))

    def hang(self) -> None:
        self._lab.arm(Fault(ops=READING | CHANGING, at=0, how=How.HUNG, lasting=True))

    def resume(self) -> None:
        self._lab.let_go()


class TestHangingNof(ContractOfHangingMedia):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Iterator[NofHarness]:
        with mounted(tmp_path / "disk") as lab:
            yield HangingNofHarness(tmp_path, lab)
