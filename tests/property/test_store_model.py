"""The real store, journal and all, against the independent model: the same answers each step."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
import uvloop

from tests.model.machine import Driver, WeightMachine, walk
from tests.model.store_driver import StoreDriver
from weightctl.controller.core.records import Snapshot
from weightctl.controller.store import commit as commits
from weightctl.controller.store import journal

WALKS = 130
WALK_STEPS = 80
STEPS_MIN = 10_000
"""On each of the two loops."""

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.SelectorEventLoop,
    "uvloop": uvloop.new_event_loop,
}


@pytest.fixture(params=list(LOOPS.values()), ids=list(LOOPS))
def driver(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StoreDriver]:
    """One store for all walks; it folds its log every few entries."""
    monkeypatch.setattr(journal, "LOG_ENTRIES_MAX", 16)
    monkeypatch.setattr(commits, "FOLD_ENTRIES", 8)
    driver = StoreDriver(tmp_path, request.param)
    try:
        yield driver
    finally:
        driver.close()
        driver.runner.close()


def test_the_store_does_what_the_contracts_tables_say(
    driver: StoreDriver, pytestconfig: pytest.Config
) -> None:
    """Random walks from many starts, with restarts in between; the seed is printed."""

    class StoreMachine(WeightMachine):
        def driver_of(self, snapshot: Snapshot) -> Driver:
            return driver.begin(snapshot)

    base = int(pytestconfig.option.hypothesis_seed)
    for seed in range(base, base + WALKS):
        try:
            walk(StoreMachine(), Random(seed), WALK_STEPS)
        except BaseException as error:
            error.add_note(f"in the walk with seed {seed}")
            raise
    assert StoreMachine.steps >= STEPS_MIN
    assert driver.restarts >= WALKS
