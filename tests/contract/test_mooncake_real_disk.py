"""The contract of a tier, for the local disks of a real Master with two hosts that offload."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.mooncake.gate import Gated, gated
from tests.support.mooncake.harness import MooncakeHarness
from tests.support.mooncake.lab import SUITE_FLAGS, cluster, needs_wheel
from tests.support.mooncake.suite import MooncakeSuite

pytestmark = needs_wheel


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gated]:
    with cluster(tmp_path_factory.mktemp("mooncake"), *SUITE_FLAGS) as made, gated(made) as real:
        yield real


class TestRealLocalDisk(MooncakeSuite):
    awaits, cycles = 4, 100

    @pytest.fixture
    def harness(self, real: Gated, tmp_path: Path) -> MooncakeHarness:
        return MooncakeHarness(real, "mooncake-local-disk", tmp_path)
