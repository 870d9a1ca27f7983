"""Each operation with one wrong answer at every place: lost, doubled, cut, false, an error."""

import pytest

from tests.sim import test_enumeration
from tests.sim.enumeration import QUICK, enumerate_incidents, judged
from tests.sim.scenarios import OPERATIONS

FAMILIES = ("answer", "bytes", "error", "error after")


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_wrong_answer_at_any_place_breaks_no_rule(operation: str, family: str) -> None:
    judged(enumerate_incidents(operation, QUICK[family]))


def test_every_family_is_tried() -> None:
    assert {*FAMILIES, *test_enumeration.FAMILIES} == set(QUICK)
