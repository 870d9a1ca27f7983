"""One moto server for the run, and on which event loops a test runs."""

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping

import pytest
import uvloop
from buckets import KEYS, LocalS3


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The contract on the loop that weightctl runs on; what is the package's own on both."""
    loops: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"uvloop": uvloop.new_event_loop}
    if item.path.name != "test_contract.py" or "EXTENDED" in os.environ:
        loops["asyncio"] = asyncio.SelectorEventLoop
    return loops


@pytest.fixture(scope="session")
def server() -> Iterator[LocalS3]:
    with LocalS3() as server:
        yield server


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
