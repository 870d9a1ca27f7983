"""One MooseFS for all tests of this folder; each begins when all of it serves."""

from collections.abc import Iterator

import pytest

from tests.faults.moosefs.lab import Lab, laboratory


@pytest.fixture(scope="session")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with laboratory(tmp_path_factory.mktemp("moosefs")) as lab:
        yield lab


@pytest.fixture
def lab(started: Lab) -> Lab:
    started.wait_served()
    return started
