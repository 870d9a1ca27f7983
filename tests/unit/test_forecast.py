"""The forecast: the whole way from what is seen to the wanted state, without touching anything."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.support.situations import TARGETS, situation, view
from weightctl.controller.core.forecast import ROUNDS_MAX, after, forecast
from weightctl.controller.core.plan import Plan, Situation, Step
from weightctl.controller.core.planner import plan
from weightctl.controller.core.policy import Policy
from weightctl.controller.core.records import Availability, Operation
from weightctl.controller.runtime.headway import distance

TIERS = ("mem", "disk", "dfs")


def ways(rounds: tuple[Plan, ...]) -> list[list[str]]:
    return [
        [f"{step.kind} {step.source}>{step.target}".rstrip(">") for step in made.steps]
        for made in rounds
    ]


def test_an_eviction_is_shown_to_its_end() -> None:
    rounds = forecast(situation({"mem": "cc", "disk": "-c"}, operation=Operation.EVICTING))
    assert ways(rounds) == [
        ["store mem>disk", "verify disk"],
        ["verify disk", "drop mem"],
        ["drop mem"],
        ["finish "],
    ]
    assert rounds[-1].converges


def test_a_deletion_is_shown_payloads_first() -> None:
    rounds = forecast(situation({"mem": "cc", "disk": "cc"}, availability=Availability.DELETING))
    assert ways(rounds) == [
        ["drop mem", "drop disk"],
        ["drop mem", "drop disk"],
        ["finish_delete "],
    ]
    assert [step.count for step in rounds[0].steps + rounds[1].steps] == [1, 1, 1, 1]


def test_room_that_a_step_takes_is_gone_in_the_next_round() -> None:
    tiers = (view("mem", "--", free_bytes=200), view("disk", "cc"))
    rounds = forecast(situation(tiers, operation=Operation.REHYDRATING))
    assert [made.free_bytes["mem"] for made in rounds] == [200, 0]


def test_a_forecast_that_must_wait_does_not_converge() -> None:
    rounds = forecast(situation({"mem": "cc", "disk": "-?"}, operation=Operation.EVICTING))
    assert not rounds[-1].converges


@given(
    st.integers(1, 4).flatmap(
        lambda size: st.tuples(*[st.text("?-pcvx", min_size=size, max_size=size)] * len(TIERS))
    ),
    st.sampled_from(list(TARGETS)),
)
def test_a_forecast_begins_with_the_plan_and_ends(
    letters: tuple[str, ...], operation: Operation
) -> None:
    seen = situation(dict(zip(TIERS, letters, strict=True)), operation=operation)
    rounds = forecast(seen)
    assert rounds[0] == plan(seen)
    assert len(rounds) < ROUNDS_MAX, "it ends by itself"
    assert not any(step.mask for step in rounds[-1].steps)


def one_of(step: Step) -> Step:
    """The step for its first member alone."""
    first = next(step.indexes())
    mask = bytes(index == first for index in range(len(step.mask)))
    return replace(step, mask=mask, count=1, size_bytes=step.size_bytes // step.count)


def left(seen: Situation) -> int | None:
    """What is left to do; None where something hides a part of the way."""
    way = forecast(seen)
    return None if any(made.waits for made in way) else distance(way)


@given(
    st.integers(1, 3).flatmap(
        lambda size: st.tuples(*[st.text("-cvx", min_size=size, max_size=size)] * 4)
    ),
    st.sampled_from(list(TARGETS)),
    st.integers(1, 3),
)
def test_each_step_of_each_member_makes_the_way_shorter(
    letters: tuple[str, ...], operation: Operation, copies: int
) -> None:
    names = (*TIERS, "nof")
    seen = situation(
        dict(zip(names, letters, strict=True)),
        operation=operation,
        policy=Policy(cold_copies=copies),
    )
    before = left(seen)
    for step in plan(seen).steps:
        if step.mask and before is not None:
            then = left(after(seen, [one_of(step)]))
            assert then is None or then < before, step
