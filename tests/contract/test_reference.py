"""The contract suite on the reference tier."""

from pathlib import Path

import pytest

from weightctl.adapters.conformance.reference import ReferenceMedium, ReferenceTier
from weightctl.adapters.conformance.suite.harness import TierHarness
from weightctl.adapters.conformance.suite.material import HOLDER
from weightctl.adapters.conformance.suite.tier_suite import TierSuite
from weightctl.controller.core.observation import Member
from weightctl.controller.ports import Tier


class ReferenceHarness(TierHarness):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._medium = ReferenceMedium()

    def tier(self, *, capacity_bytes: int | None = None, read_only: bool = False) -> Tier:
        if read_only:
            pytest.skip("the reference medium needs no setting up")
        if capacity_bytes is not None:
            self._medium.limit_bytes = capacity_bytes
        return ReferenceTier("tier", self._medium, holder=HOLDER)

    def tier_of(self, holder: str, *, adopt: bool = False, read_only: bool = False) -> Tier:
        if read_only:
            pytest.skip("the reference medium needs no setting up")
        return ReferenceTier("tier", self._medium, holder=holder, adopt=adopt)

    def kill_writer(self, member: Member, content: bytes) -> None:
        pass  # what a killed writer held in memory has gone with it

    def take_away(self) -> None:
        self._medium.away = True

    def bring_back(self) -> None:
        self._medium.away = False

    def replace(self) -> None:
        self._medium.away = True

    def flip_bit(self, member: Member, content: bytes) -> None:
        stored = self._medium.seen(member)
        assert stored is not None
        stored.content[member.size_bytes // 2] ^= 0x10

    def fingerprint(self) -> object:
        return repr(self._medium)


class TestReference(TierSuite):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> TierHarness:
        return ReferenceHarness(tmp_path)
