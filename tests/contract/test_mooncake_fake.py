"""The contract of a tier, for the Mooncake tiers over an imitated Master."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.mooncake.fake import LEASE_TTL_S, FakeMooncake, fake
from tests.support.mooncake.harness import MooncakeHarness
from tests.support.mooncake.suite import MooncakeSuite
from weightctl.adapters.conformance.suite.tier_suite import TierSuite

QUICK = {"library": "tests.support.mooncake.fake_client", "lease_ttl_s": LEASE_TTL_S}


class FakeHarness(MooncakeHarness):
    """Over an imitated Master."""

    def __init__(self, imitated: FakeMooncake, kind: str, folder: Path) -> None:
        super().__init__(imitated, kind, folder, **QUICK)


@pytest.fixture
def imitated() -> Iterator[FakeMooncake]:
    with fake() as made:
        yield made


class TestFakeMemory(MooncakeSuite):
    @pytest.fixture
    def harness(self, imitated: FakeMooncake, tmp_path: Path) -> FakeHarness:
        return FakeHarness(imitated, "mooncake-memory", tmp_path)


@pytest.mark.one_loop
class TestFakeRootFs(MooncakeSuite):
    """Its files can be set aside, as those of any tier of files."""

    awaits, cycles = 4, 100
    unfit_keys = MooncakeSuite.unfit_keys | {".", ".."}
    test_a_quarantined_replica_is_out_of_sight_and_kept = (
        TierSuite.test_a_quarantined_replica_is_out_of_sight_and_kept
    )
    test_a_new_replica_beside_a_quarantined_one_is_dropped_by_its_own_name = (
        TierSuite.test_a_new_replica_beside_a_quarantined_one_is_dropped_by_its_own_name
    )

    @pytest.fixture
    def harness(self, imitated: FakeMooncake, tmp_path: Path) -> FakeHarness:
        imitated.root_fs = str(tmp_path / "fs")
        return FakeHarness(imitated, "mooncake-disk", tmp_path)


class TestFakeLocalDisk(MooncakeSuite):
    """What a thousand cycles leave is judged on the memory tier, which is the same code."""

    cycles = 100

    @pytest.fixture
    def harness(self, imitated: FakeMooncake, tmp_path: Path) -> FakeHarness:
        return FakeHarness(imitated, "mooncake-local-disk", tmp_path)
