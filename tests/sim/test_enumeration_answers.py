"""Each operation with one wrong answer at every place: lost, doubled, cut, false, an error."""

import pytest

from tests.sim import test_enumeration
from tests.sim.enumeration import FAMILIES as EVERY_FAMILY
from tests.sim.enumeration import enumerate_incidents, judged, quick
from tests.sim.scenarios import OPERATIONS
from weightctl.adapters.conformance.faults import ERRORS, Call, Kind

FAMILIES = ("answer", "bytes", "error", "error after")
_errors: set[tuple[str, str, int]] = set()
_tried: set[tuple[str, str]] = set()


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_wrong_answer_at_any_place_breaks_no_rule(operation: str, family: str) -> None:
    done = enumerate_incidents(operation, quick(operation)[family])
    judged(done)
    _errors.update(done.errors)
    _tried.add((operation, family))


def test_each_class_of_error_came_from_each_kind_of_call() -> None:
    if len(_tried) < len(OPERATIONS) * len(FAMILIES):
        pytest.skip("not all operations were run")
    expected = {(str(call), str(Kind.ERROR), n) for call in Call for n in range(len(ERRORS))}
    primitives = (Call.STORE, Call.DROP, Call.QUARANTINE, Call.VERIFY)
    expected |= {(str(c), str(Kind.FAIL_AFTER), n) for c in primitives for n in range(len(ERRORS))}
    assert sorted(expected - _errors) == []


def test_every_family_is_tried() -> None:
    assert {*FAMILIES, *test_enumeration.FAMILIES} == set(EVERY_FAMILY)
