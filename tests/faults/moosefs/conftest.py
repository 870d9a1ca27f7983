"""One MooseFS for all tests of this folder; each begins when all of it serves."""

import asyncio
from collections.abc import Callable, Iterator, Mapping

import pytest
import uvloop

from tests.faults.moosefs.lab import Lab, laboratory
from tests.faults.moosefs.torture import LOOPS

FACTORIES: Mapping[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.SelectorEventLoop,
    "uvloop": uvloop.new_event_loop,
}


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run every test of this folder on these loops."""
    return {name: FACTORIES[name] for name in LOOPS}


@pytest.fixture(scope="session")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with laboratory(tmp_path_factory.mktemp("moosefs")) as lab:
        yield lab


@pytest.fixture
def lab(started: Lab) -> Lab:
    started.wait_served()
    return started
