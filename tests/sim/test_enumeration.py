"""Each operation with one incident, at every place: crashes, errors, stale views, lost answers."""

import pytest

from tests.sim.enumeration import QUICK, enumerate_incidents
from tests.sim.scenarios import OPERATIONS
from tests.sim.shrink import told

pytestmark = pytest.mark.usefixtures("simulated")


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("family", QUICK)
def test_an_incident_at_any_place_breaks_no_rule(operation: str, family: str) -> None:
    done = enumerate_incidents(operation, QUICK[family])
    for one in done.broken:
        pytest.fail(told(one.script, one.report))
    assert done.incidents, "nothing went wrong"
