"""The pure state against the independent model: every answer and every record, step by step."""

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.machine import Driver, WeightMachine
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
