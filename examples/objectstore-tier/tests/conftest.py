"""The bucket of a test, and on which event loops it runs."""

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import uvloop
from buckets import BucketHarness, LocalS3, shared_server


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The contract on the loop that weightctl runs on; what is the package's own on both."""
    loops: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"uvloop": uvloop.new_event_loop}
    if item.path.name != "test_contract.py" or "EXTENDED" in os.environ:
        loops["asyncio"] = asyncio.SelectorEventLoop
    return loops


@pytest.fixture
def server() -> LocalS3:
    return shared_server()


@pytest.fixture
def harness(tmp_path: Path) -> BucketHarness:
    return BucketHarness(tmp_path)
