"""The contract cases on both event loops, shared out over pairs of tiers that are alike.

Each case runs on one loop with the one tier of a pair and on the other loop with the other: with
seven tiers that costs half of every case on every loop, and no case is left to one loop.  What a
tier has of its own beside the suite runs on both, as every other test does.
"""

import asyncio
import zlib
from collections.abc import Callable, Mapping

import pytest
import uvloop

LOOPS: tuple[tuple[str, Callable[[], asyncio.AbstractEventLoop]], ...] = (
    ("asyncio", asyncio.SelectorEventLoop),
    ("uvloop", uvloop.new_event_loop),
)
PAIRS = (
    ("TestDfs", "TestNof"),
    ("TestLocalDisk", "TestMemory"),
    ("TestFakeLocalDisk", "TestFakeMemory"),
    ("TestFaulty", "TestReference"),
)
PLACES = {name: place for pair in PAIRS for place, name in enumerate(pair)}


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]] | None:
    """The loop of a case of the suite; None for what the whole tree says."""
    suite = item.parent
    place = PLACES.get(suite.name) if isinstance(suite, pytest.Class) else None
    if place is None:
        return None
    name, factory = LOOPS[(zlib.crc32(item.name.encode()) + place) % len(LOOPS)]
    return {name: factory}
