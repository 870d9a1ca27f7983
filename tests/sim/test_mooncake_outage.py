"""No Master for long, beside the whole sidecar: little is asked, kept and said meanwhile.

Three spans of an hour are compared; `python -m tests.sim.mooncake.soak` has each last for a day.
"""

from tests.sim.mooncake.outage import SPANS, outage
from weightctl.controller.core.records import Availability, Operation

SPAN_S = 3600.0
LINES_A_SPAN = 30
ASKED_A_SECOND = 1.0


def test_an_outage_costs_little_is_told_and_ends_by_itself() -> None:
    diary = outage(SPAN_S)
    assert not diary.broken
    *spans, after = diary.health
    for number, health in enumerate(spans, 1):
        told = health.media["mem"]
        assert told.state.startswith("no Master has served for ")
        assert "master0:9003 served last" in told.state
        assert (told.numbers["serving"], told.numbers["outages"]) == (0, 1)
        assert abs(told.numbers["outage_seconds"] - number * SPAN_S) < 60
        assert all(health.tiers.values()), "each tier says why it gives no answer"
    assert max(diary.said[1:SPANS]) <= LINES_A_SPAN, diary.said
    assert diary.asked[2] - diary.asked[1] <= ASKED_A_SECOND * SPAN_S
    assert abs(diary.held[2] - diary.held[1]) < diary.held[1] / 100, "nothing piles up"

    told = after.media["mem"]
    assert told.state == "leader master0:9003 serves"
    assert told.numbers["outage_seconds_total"] >= SPANS * SPAN_S
    assert not any(after.tiers.values())
    for record in diary.records:
        assert (record.availability, record.operation) == (Availability.READY, Operation.NONE)
