"""The contract of a tier, for the memory tier of a real Master with two hosts that offload."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.mooncake_harness import RealHarness
from tests.support.mooncake_lab import SUITE_FLAGS, Cluster, cluster, needs_wheel
from tests.support.mooncake_suite import MooncakeSuite

pytestmark = needs_wheel


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("mooncake"), *SUITE_FLAGS) as made:
        yield made


class TestRealMemory(MooncakeSuite):
    awaits, cycles = 4, 100

    @pytest.fixture
    def harness(self, real: Cluster, tmp_path: Path) -> RealHarness:
        return RealHarness(real, "mooncake-memory", tmp_path)
