"""Each operation with one incident, at every place: crashes, errors, stale views, lost answers."""

import pytest

from tests.sim.enumeration import QUICK, Enumerated, enumerate_incidents, enumerate_jams
from tests.sim.scenarios import OPERATIONS
from tests.sim.shrink import told

pytestmark = pytest.mark.usefixtures("simulated")


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("family", QUICK)
def test_an_incident_at_any_place_breaks_no_rule(operation: str, family: str) -> None:
    _judge(enumerate_incidents(operation, QUICK[family]))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_tiers_that_are_clogged_and_released_in_any_order_break_no_rule(operation: str) -> None:
    _judge(enumerate_jams(operation))


def _judge(done: Enumerated) -> None:
    for one in done.broken:
        pytest.fail(told(one.script, one.report))
    assert done.incidents, "nothing went wrong"
