"""Simulations run on a loop of their own with SQL in memory: nothing in them can block."""

from collections.abc import Iterator

import pytest
from blockbuster import BlockBuster


@pytest.fixture(scope="module")
def simulated(blockbuster: BlockBuster) -> Iterator[None]:
    """Switch the detector off; it would take SQL in memory for a blocking call."""
    blockbuster.deactivate()
    yield
    blockbuster.activate()
