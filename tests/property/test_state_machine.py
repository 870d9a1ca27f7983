"""The pure state against the independent model: every answer and every record, step by step."""

from random import Random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.decisions import DECIDED, TABLES
from tests.model.machine import Driver, WeightMachine, walk
from tests.model.pure_driver import PureDriver
from weightctl.controller.core.records import Snapshot

STEPS_MIN = 20_000
EXAMPLES = 300
STEPS_EACH = 80


class PureMachine(WeightMachine):
    def driver_of(self, snapshot: Snapshot) -> Driver:
        return PureDriver(snapshot)


def test_the_pure_state_does_what_the_contracts_tables_say() -> None:
    """Runs the same steps each time, so a failure repeats by itself."""
    PureMachine.steps = 0
    run_state_machine_as_test(
        PureMachine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS_EACH,
            derandomize=True,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert PureMachine.steps >= STEPS_MIN


WALKS = 1000
WALK_STEPS = 100


@pytest.fixture(scope="module")
def walked() -> int:
    """Take every walk once; the seed of each is its number."""
    PureMachine.steps = 0
    DECIDED.clear()
    for seed in range(WALKS):
        try:
            walk(PureMachine(), Random(seed), WALK_STEPS)
        except Exception as error:
            error.add_note(f"in the walk with seed {seed}")
            raise
    return PureMachine.steps


def test_random_walks_agree_with_the_contracts_tables(walked: int) -> None:
    assert walked >= STEPS_MIN


def test_every_line_of_the_tables_decided_in_some_walk(walked: int) -> None:
    lines = {
        (call, number, verdict)
        for call, table in TABLES.items()
        for number, (verdict, _) in enumerate(table)
    }
    assert lines - set(DECIDED) == set()
