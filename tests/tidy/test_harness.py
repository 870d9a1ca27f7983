"""The harness keeps its promises: both loops, and no blocking call on either."""

import asyncio
import sys
import time

import pytest
from blockbuster import BlockingError

SEEN: set[str] = set()


async def test_asynchronous_test_runs_on_a_known_loop() -> None:
    SEEN.add(type(asyncio.get_running_loop()).__module__.partition(".")[0])


def test_both_loops_were_used() -> None:
    assert SEEN == {"asyncio", "uvloop"}


async def test_blocking_call_on_the_loop_is_an_error() -> None:
    with pytest.raises(BlockingError):
        time.sleep(0)  # noqa: ASYNC251 - this call is the one that has to be caught


def test_python_is_a_supported_one() -> None:
    assert sys.version_info >= (3, 11)
