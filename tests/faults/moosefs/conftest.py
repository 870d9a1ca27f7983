"""One MooseFS for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.faults.moosefs.lab import Lab, laboratory


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with laboratory(tmp_path_factory.mktemp("moosefs")) as lab:
        yield lab
