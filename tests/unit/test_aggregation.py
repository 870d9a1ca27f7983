"""From the members' states to availability and residency."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.situations import MEMBER_BYTES, group, situation, view
from weightctl.controller.core.aggregate import aggregate, fold
from weightctl.controller.core.observation import Members
from weightctl.controller.core.planner import plan
from weightctl.controller.core.records import Availability, DataType, Residency

TIERS = ("mem", "disk", "dfs")
WRONG_SIZE = group(3, size_bytes=MEMBER_BYTES + 1)
WRONG_TYPE = replace(group(3), data_types=bytes([DataType.OTHER, *group(3).data_types[1:]]))
OTHER_KEY = replace(group(3), keys=("weights/other", *group(3).keys[1:]))
TOO_FEW, TOO_MANY = group(2), group(4)

words = st.integers(1, 3).flatmap(
    lambda size: st.tuples(*[st.text("?-pcvx", min_size=size, max_size=size)] * len(TIERS))
)


@pytest.mark.parametrize(
    "members, mem, disk, residency",
    [
        pytest.param(WRONG_SIZE, "ccc", "---", Residency.HOT, id="wrong-size-in-memory"),
        pytest.param(WRONG_TYPE, "ccc", "c--", Residency.HOT, id="wrong-type-in-memory"),
        pytest.param(OTHER_KEY, "---", "ccc", Residency.COLD, id="other-key-in-cold"),
        pytest.param(WRONG_SIZE, "cc-", "ccc", Residency.MIXED, id="wrong-size-in-both"),
        pytest.param(WRONG_SIZE, "---", "?cc", None, id="wrong-size-perhaps-cold"),
        pytest.param(WRONG_SIZE, "?--", "?cc", None, id="wrong-size-cold-between-the-ends"),
        pytest.param(WRONG_SIZE, "---", "---", Residency.ABSENT, id="wrong-size-nowhere"),
        pytest.param(TOO_FEW, "cc", "--", Residency.MIXED, id="too-few-in-memory"),
        pytest.param(TOO_MANY, "----", "cccc", Residency.MIXED, id="too-many-in-cold"),
        pytest.param(TOO_FEW, "--", "--", Residency.ABSENT, id="too-few-nowhere"),
    ],
)
def test_residency_asks_only_that_the_number_of_members_is_right(
    members: Members, mem: str, disk: str, residency: Residency | None
) -> None:
    promised = situation({"mem": "ccc"}).record
    made = plan(situation({"mem": mem, "disk": disk}, members=members, record=promised))
    assert (made.availability, made.residency) == (Availability.DEGRADED, residency)


@given(words, st.sampled_from([(True, True), (False, True), (False, False)]))
def test_what_is_certain_holds_whatever_the_silent_tiers_would_say(
    letters: tuple[str, ...], facts: tuple[bool, bool]
) -> None:
    def judged(words: Sequence[str]) -> tuple[Availability | None, Residency | None]:
        views = [view(name, word) for name, word in zip(TIERS, words, strict=True)]
        folded = fold(views, len(words[0]))
        return aggregate(folded, complete_group=facts[0], count_right=facts[1])

    availability, residency = judged(letters)
    text = "/".join(letters)
    for answer in product("-c", repeat=text.count("?")):
        answered = text
        for letter in answer:
            answered = answered.replace("?", letter, 1)
        truth = judged(answered.split("/"))
        assert availability in {None, truth[0]}, answered
        assert residency in {None, truth[1]}, answered
