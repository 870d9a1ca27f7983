"""The contract of a tier, for the Mooncake tiers over an imitated Master."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.mooncake.fake import LEASE_TTL_S, FakeMooncake, fake
from tests.support.mooncake.harness import MooncakeHarness
from tests.support.mooncake.suite import MooncakeSuite

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


class TestFakeLocalDisk(MooncakeSuite):
    @pytest.fixture
    def harness(self, imitated: FakeMooncake, tmp_path: Path) -> FakeHarness:
        return FakeHarness(imitated, "mooncake-local-disk", tmp_path)
