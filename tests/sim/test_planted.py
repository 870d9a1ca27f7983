"""The lab finds what it must find: each planted fault breaks a rule within the budget."""

import pytest

from tests.sim.lab import hunt
from tests.sim.planted import MUST_FIND, PLANTED
from tests.sim.planting import Planted, StalePlantError, planted
from tests.sim.scenarios import OPERATIONS
from weightctl.adapters.conformance.simulation.world import simulate
from weightctl.controller.core import planner

SEEDS_MAX = 60
FALLS_OVER = {"crashed", "internal-error"}
"""A planted fault that only makes the product fall over has not been found by any rule."""


def test_enough_is_planted() -> None:
    assert len(PLANTED) >= 30
    assert set(MUST_FIND) == set(PLANTED)
    assert FALLS_OVER.isdisjoint(oracle for names in MUST_FIND.values() for oracle in names)


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found(fault: str) -> None:
    found = hunt(fault, PLANTED[fault], SEEDS_MAX)
    assert found.oracle, f"{fault!r} was not found in {found.incidents} incidents"
    assert found.oracle in MUST_FIND[fault]


def test_what_was_planted_is_gone_afterwards() -> None:
    before = planner._evict.__code__
    with planted(*PLANTED["evidence is not checked"]):
        assert planner._evict.__code__ is not before
        assert simulate(OPERATIONS["evict"]).oracle
    assert planner._evict.__code__ is before
    assert not simulate(OPERATIONS["evict"]).oracle


def test_a_fault_whose_text_has_gone_must_be_planted_anew() -> None:
    gone = Planted(at="controller.core.planner:_evict", old="return _NEVER", new="return _DROP")
    with pytest.raises(StalePlantError, match="_evict"), planted(gone):
        pass
