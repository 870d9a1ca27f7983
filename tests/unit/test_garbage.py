"""Full collections happen in rounds only, and what has died is found all the same."""

import asyncio
import gc
import weakref

import pytest

from tests.support.virtual_time import VirtualClock
from weightctl.controller.runtime.garbage import ROUND_S, ROUNDS_A_DAY, collect_in_rounds


class Knot:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def untouched() -> object:
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("untouched")
async def test_what_died_young_is_found_by_the_next_round_and_the_rest_within_a_day() -> None:
    clock, before = VirtualClock(), gc.get_threshold()
    old = Knot()
    was_old = weakref.ref(old)
    collecting = asyncio.create_task(collect_in_rounds(clock))
    await clock.advance(0)
    assert gc.get_threshold()[:2] == before[:2]
    assert gc.get_threshold()[2] > 100_000, "the interpreter begins no full collection by itself"

    was_young = weakref.ref(Knot())
    gc.collect(1)
    del old
    await clock.advance(ROUND_S)
    assert was_young() is None
    assert was_old() is not None, "what is kept out of the rounds is not walked in each"
    await clock.advance(ROUND_S * (ROUNDS_A_DAY - 1))
    assert was_old() is None

    collecting.cancel()
    await asyncio.gather(collecting, return_exceptions=True)
    assert gc.get_threshold() == before
