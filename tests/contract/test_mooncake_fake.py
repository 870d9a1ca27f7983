"""The contract of a tier, for the Mooncake tiers over an imitated Master."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.mooncake_fake import FakeMooncake, fake
from tests.support.mooncake_harness import MooncakeHarness
from tests.support.mooncake_suite import MooncakeSuite

pytestmark = pytest.mark.mooncake

QUICK = {
    "library": "tests.support.mooncake_fake_client",
    "deadline_s": 1.0,
    "lease_ttl_s": 0.15,
}


@pytest.fixture
def imitated() -> Iterator[FakeMooncake]:
    with fake() as made:
        yield made


class TestFakeMemory(MooncakeSuite):
    @pytest.fixture
    def harness(self, imitated: FakeMooncake, tmp_path: Path) -> MooncakeHarness:
        return MooncakeHarness(imitated, "mooncake-memory", tmp_path, **QUICK)


class TestFakeLocalDisk(MooncakeSuite):
    @pytest.fixture
    def harness(self, imitated: FakeMooncake, tmp_path: Path) -> MooncakeHarness:
        return MooncakeHarness(imitated, "mooncake-local-disk", tmp_path, **QUICK)
