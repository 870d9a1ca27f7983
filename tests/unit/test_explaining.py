"""What `explain` says of a record alone: what is told is what the loop goes by."""

import pytest

from tests.support.situations import group, record
from weightctl.controller.api.explain import explain
from weightctl.controller.core.policy import Policy
from weightctl.controller.core.records import Availability, Residency
from weightctl.controller.core.state import WeightState


@pytest.mark.parametrize(
    "idle_ms, until_ms, what",
    [
        (None, None, "a running controller removes it"),
        (0, 1_300_000, "at the earliest then"),
        (299_999, 1_000_001, "at the earliest then"),
        (300_000, None, "the controller removes it at its next look"),
    ],
)
def test_an_import_left_behind_is_removed_so_long_after_its_writer_was_heard_of(
    idle_ms: int | None, until_ms: int | None, what: str
) -> None:
    left = record(group(2), availability=Availability.IMPORTING, residency=Residency.UNKNOWN)
    state = WeightState()
    state.put_metadata(left)
    told = explain(state, left.identity, Policy(), now_ms=1_000_000, import_idle_ms=idle_ms)
    (hold,) = told["holds"]
    assert hold["reason"] == "ImportRunning"
    assert hold["untilMs"] == until_ms
    assert what in hold["what"]
