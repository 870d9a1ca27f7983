"""Each operation with one incident, at every place: crashes, second leaders, views of the past."""

import pytest

from tests.sim.enumeration import enumerate_incidents, enumerate_jams, judged, quick
from tests.sim.scenarios import OPERATIONS

FAMILIES = ("crash", "journal", "second leader", "view")


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_death_or_a_wrong_view_at_any_place_breaks_no_rule(operation: str, family: str) -> None:
    judged(enumerate_incidents(operation, quick(operation)[family]))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_tiers_that_are_clogged_and_released_in_any_order_break_no_rule(operation: str) -> None:
    judged(enumerate_jams(operation))
