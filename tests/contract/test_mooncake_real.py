"""The contract of a tier, for the tiers of a real Master with two hosts that offload."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.mooncake_harness import MooncakeHarness
from tests.support.mooncake_lab import Cluster, cluster, needs_wheel
from tests.support.mooncake_suite import MooncakeSuite

# A frozen Master must not lose its hosts, and what a dead client began must go soon.
FLAGS = (
    "--client_ttl=120",
    "--put_start_discard_timeout_sec=2",
    "--put_start_release_timeout_sec=4",
)

pytestmark = needs_wheel


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("mooncake")
    with cluster(folder, *FLAGS) as made:
        yield made


DEADLINE_S = 2.0
"""A case in which the Master is frozen waits for several of these."""


class TestRealMemory(MooncakeSuite):
    @pytest.fixture
    def harness(self, real: Cluster, tmp_path: Path) -> MooncakeHarness:
        return MooncakeHarness(real, "mooncake-memory", tmp_path, deadline_s=DEADLINE_S)


class TestRealLocalDisk(MooncakeSuite):
    @pytest.fixture
    def harness(self, real: Cluster, tmp_path: Path) -> MooncakeHarness:
        return MooncakeHarness(real, "mooncake-local-disk", tmp_path, deadline_s=DEADLINE_S)
