"""What `explain` says of a record alone: what is told is what the loop goes by."""

import pytest

from tests.support.rig import IDENTITY
from tests.support.situations import group, record
from weightctl.controller.api import views
from weightctl.controller.api.explain import explain
from weightctl.controller.cli.tables import table
from weightctl.controller.core.plan import Plan, Reason, Verdict, Wait
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


@pytest.mark.parametrize("silent", [True, False])
def test_what_a_silent_tier_decides_is_told_as_the_record_has_it(silent: bool) -> None:
    kept = record(group(2), availability=Availability.READY, residency=Residency.COLD)
    state = WeightState()
    state.put_metadata(kept)
    waits = (Wait(reason=Reason.TIER_UNKNOWN, what="memory: no answer"),) if silent else ()
    seen = None if silent else Residency.COLD
    found = Plan(
        verdict=Verdict.WAITING,
        waits=waits,
        availability=Availability.READY,
        residency=seen,
        bytes_by_pair={},
        needed_bytes={},
        free_bytes={},
    )
    told = explain(state, kept.identity, Policy(), now_ms=1, rounds=[found])["summary"]
    assert told.startswith("it is complete and readable; residency COLD")
    assert ("not every tier says" in told) is silent


@pytest.mark.parametrize(
    "availability, wanted", [(None, "what the tiers hold is not known"), ("READY", "2 of 2")]
)
def test_a_plan_counts_nothing_as_done_that_no_tier_tells(
    availability: str | None, wanted: str
) -> None:
    found = Plan(
        verdict=Verdict.WAITING,
        waits=(Wait(reason=Reason.TIER_UNKNOWN, what="memory: no answer"),),
        processed_members=2,
        total_members=2,
        bytes_by_pair={},
        needed_bytes={},
        free_bytes={},
    )
    document = {**views.plan(IDENTITY, "keep", [found]), "availability": availability}
    assert wanted in table(document)
