"""The harness keeps its promises: both loops, no blocking call on either, a seed to repeat."""

import asyncio
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from blockbuster import BlockingError

from tests.support.surroundings import no_child_hangs

LOOPS_SEEN: set[str] = set()

BLOCKING_CALLS: dict[str, Callable[[], object]] = {
    "sleep": lambda: time.sleep(0),
    "open": lambda: open(os.devnull, "rb"),  # noqa: PTH123, SIM115 - a call that is refused
    "os-open": lambda: os.open(os.devnull, os.O_RDONLY),
    "fsync": lambda: os.fsync(0),
    "listdir": lambda: os.listdir("/"),  # noqa: PTH208 - a call that is refused
    "sqlite": lambda: sqlite3.connect(":memory:"),
}


async def test_asynchronous_test_runs_on_a_known_loop() -> None:
    LOOPS_SEEN.add(type(asyncio.get_running_loop()).__module__.partition(".")[0])


def test_both_loops_were_used() -> None:
    assert LOOPS_SEEN == {"asyncio", "uvloop"}


@pytest.mark.parametrize("call", BLOCKING_CALLS.values(), ids=BLOCKING_CALLS.keys())
async def test_blocking_call_on_the_loop_is_an_error(call: Callable[[], object]) -> None:
    with pytest.raises(BlockingError):
        call()


async def test_blocking_call_in_a_thread_is_allowed() -> None:
    for call in (BLOCKING_CALLS["sleep"], BLOCKING_CALLS["listdir"]):
        await asyncio.to_thread(call)


def test_nothing_of_the_operators_surroundings_reaches_a_test() -> None:
    assert not [name for name in os.environ if name.startswith("WEIGHTCTL_")]
    assert not list(Path.home().rglob("weightctl*"))
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        assert Path(os.environ[name]).is_relative_to(Path.home())


def test_a_child_that_hangs_is_ended() -> None:
    """Whoever waits for it, as `run` does here, sees it die."""
    hang = [sys.executable, "-c", "import time; time.sleep(3600)"]
    with no_child_hangs(0.2):
        assert subprocess.run(hang, check=False).returncode == -9


def test_property_tests_have_a_seed_to_repeat(pytestconfig: pytest.Config) -> None:
    assert int(pytestconfig.getoption("--hypothesis-seed")) >= 0
