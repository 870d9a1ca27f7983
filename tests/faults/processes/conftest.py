"""One sidecar with four tiers for all tests of a module; each test leaves it at peace."""

from collections.abc import Iterator

import pytest

from tests.faults.processes.rounds import Rounds
from tests.faults.processes.sidecar import sidecar


@pytest.fixture(scope="module")
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rounds]:
    deadline_s = getattr(request.module, "DEADLINE_S", 10.0)
    with sidecar(tmp_path_factory.mktemp("sidecar"), deadline_s=deadline_s) as one:
        one.start()
        yield Rounds(one)


@pytest.fixture
def rounds(shared: Rounds) -> Iterator[Rounds]:
    """Rounds over a running sidecar, also after a test that failed."""
    if not shared.sidecar.alive:
        shared.sidecar.start()
    yield shared
    shared.sidecar.disarm()
