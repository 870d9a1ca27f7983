"""The contract of a tier, for the Mooncake tiers over an imitated Master."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.mooncake_fake import LEASE_TTL_S, FakeMooncake, fake
from tests.support.mooncake_harness import MooncakeHarness
from tests.support.mooncake_suite import MooncakeSuite

QUICK = {"library": "tests.support.mooncake_fake_client", "lease_ttl_s": LEASE_TTL_S}


class FakeHarness(MooncakeHarness):
    """A Master that is away refuses at once: a deadline is waited for only where it hangs."""

    def __init__(self, imitated: FakeMooncake, kind: str, folder: Path) -> None:
        self._imitated = imitated
        super().__init__(imitated, kind, folder, **QUICK)

    def take_away(self) -> None:
        self._imitated.take_away()

    def bring_back(self) -> None:
        self._imitated.bring_back()


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
