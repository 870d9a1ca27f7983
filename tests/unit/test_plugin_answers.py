"""What a plugin hands over is used only where every field is what the port says."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from weightctl.controller.clock import SystemClock
from weightctl.controller.core.observation import ReplicaDetail, TierObservation
from weightctl.controller.core.tiers import Capabilities, TierCapacity, TierProfile
from weightctl.controller.errors import (
    BusyError,
    CapacityError,
    ThrottledError,
    UnknownOutcomeError,
    WeightctlError,
)
from weightctl.controller.ports import Busy, Corrupt, Done, InventoryItem, Retry, Unknown
from weightctl.controller.runtime import answers
from weightctl.controller.runtime.answers import BadAnswerError
from weightctl.controller.runtime.fields import NUMBER_MAX, flaw_of
from weightctl.controller.runtime.guest import Guest
from weightctl.controller.runtime.holding import Owner

NAN, HUGE = float("nan"), 10**400
PROFILE = TierProfile(name="bad", kind="test", hot=False)
NO_IDS: list[Any] = ["\ud800", "a\0b", "a\nb", "\x7f", 5, None, "x" * 5000]


@pytest.mark.parametrize("text", NO_IDS)
def test_an_id_that_cannot_be_written_down_is_refused(text: Any) -> None:
    detail = ReplicaDetail(instance_id=text, size_bytes=1)
    for answer in (
        TierObservation(states=b"\3", epoch=text),
        TierObservation(states=b"\3", epoch="e", details={0: detail}),
    ):
        with pytest.raises(BadAnswerError):
            answers.seen_in(answer)
    (outcome,) = answers.outcomes_in([Done(instance_id=text)], 1)
    assert isinstance(outcome, Unknown)
    assert "Done.instance_id" in outcome.detail


PLAIN: dict[str, Any] = {"key": "k", "instance_id": "1", "size_bytes": 1, "state": "complete"}
ITEM = InventoryItem(**PLAIN)
NO_LISTS: list[Any] = [
    {5: []},
    {(1,): []},
    {"\ud800": []},
    {"g": [replace(ITEM, key="\ud800")]},
    {"g": [InventoryItem(**{**PLAIN, "key": 5})]},
    {"g": [replace(ITEM, instance_id="\udcff")]},
    {"g": [replace(ITEM, size_bytes=-1)]},
    {"g": [InventoryItem(**{**PLAIN, "size_bytes": "big"})]},
    {"g": [InventoryItem(**{**PLAIN, "state": 7})]},
]


@pytest.mark.parametrize("answer", NO_LISTS)
async def test_a_list_with_one_thing_of_no_use_is_none(answer: Any) -> None:
    with pytest.raises(BadAnswerError):
        await answers.listed_in(answer)


async def test_what_a_stranger_named_in_bytes_is_listed() -> None:
    listed = {"g\udcff": [replace(ITEM, key="\udcfe")]}
    assert await answers.listed_in(listed) == listed


@pytest.mark.parametrize(
    "details",
    [
        {"a": ReplicaDetail(instance_id="1", size_bytes=1)},
        {-1: ReplicaDetail(instance_id="1", size_bytes=1)},
        {0: ReplicaDetail(instance_id="1", size_bytes="x")},  # type: ignore[arg-type]
        {0: ReplicaDetail(instance_id="1", size_bytes=1, sha256="y")},  # type: ignore[arg-type]
        {0: ReplicaDetail(instance_id="1", size_bytes=1, busy_until_ms=HUGE)},
    ],
)
def test_details_are_taken_whole_or_not_at_all(details: Any) -> None:
    with pytest.raises(BadAnswerError):
        answers.seen_in(TierObservation(states=b"\3", epoch="e", details=details))


@pytest.mark.parametrize(
    "outcome",
    [
        Busy(until_ms="soon"),  # type: ignore[arg-type]
        Busy(until_ms=HUGE),
        Retry(after_s=NAN),
        Retry(after_s=float("inf")),
        Retry(after_s=-1.0),
        Done(moved_bytes="many"),  # type: ignore[arg-type]
        Corrupt(expected=b"x", got=b"y" * 5_000_000),
        Corrupt(expected="x", got=b"y"),  # type: ignore[arg-type]
        Retry(detail=5),  # type: ignore[arg-type]
    ],
)
def test_an_outcome_with_a_field_of_no_use_is_unknown(outcome: Any) -> None:
    (taken,) = answers.outcomes_in([outcome], 1)
    assert isinstance(taken, Unknown)
    assert f"{type(outcome).__name__}." in taken.detail


def test_a_text_that_cannot_be_sent_is_made_one_that_can() -> None:
    (taken,) = answers.outcomes_in([Retry(detail="\ud800")], 1)
    assert isinstance(taken, Retry)
    assert taken.detail.encode() == b"\\ud800"


@pytest.mark.parametrize("number", [2**63, 2**70, HUGE])
def test_a_capacity_is_never_more_than_can_be_stored(number: int) -> None:
    answer = TierCapacity(used_bytes=0, free_bytes=number, total_bytes=number)
    assert answers.capacity_in(answer).free_bytes == NUMBER_MAX


@pytest.mark.parametrize("number", [True, None, "1", -1, 1.0])
def test_a_capacity_that_is_no_number_is_refused(number: Any) -> None:
    with pytest.raises(BadAnswerError):
        answers.capacity_in(TierCapacity(used_bytes=0, free_bytes=number, total_bytes=1))


ERRORS: list[tuple[WeightctlError, str, object]] = [
    (ThrottledError(NAN, "a", "b", "c"), "after_s", 0.0),
    (ThrottledError(-5.0, "a", "b", "c"), "after_s", 0.0),
    (ThrottledError("x", "a", "b", "c"), "after_s", 0.0),  # type: ignore[arg-type]
    (BusyError("x", "a", "b", "c"), "until_ms", None),  # type: ignore[arg-type]
    (CapacityError(HUGE, -1, "a", "b", "c"), "needed_bytes", 0),
]


@pytest.mark.parametrize("error, name, taken", ERRORS)
def test_the_numbers_of_an_error_can_be_reckoned_with(
    error: WeightctlError, name: str, taken: object
) -> None:
    assert getattr(answers.bounded(error), name) == taken


FIELDS: list[tuple[str, Any]] = [
    ("kind", "\ud800"),
    ("hot", "no"),
    ("hot", []),
    ("hot", 1),
    ("capabilities", None),
    ("bandwidth_bytes_per_s", "fast"),
    ("bandwidth_bytes_per_s", None),
    ("bandwidth_bytes_per_s", -1),
    ("bandwidth_bytes_per_s", HUGE),
    ("latency_s", "x"),
    ("latency_s", NAN),
]


@pytest.mark.parametrize("name, value", FIELDS)
def test_a_profile_is_checked_field_by_field(name: str, value: Any) -> None:
    assert flaw_of(replace(PROFILE, **{name: value})).startswith(f"TierProfile.{name} is a ")


def test_what_it_can_do_is_yes_or_no() -> None:
    assert not flaw_of(PROFILE)
    assert flaw_of(Capabilities(shared="yes")).startswith(  # type: ignore[arg-type]
        "Capabilities.shared is a str"
    )


def raises_it() -> None:
    raise KeyboardInterrupt


def is_asked_twice() -> None:
    """The first one cancels the main task, the second one raises."""
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)


@pytest.fixture
def heeded() -> Iterator[None]:
    """Whoever starts the tests in the background has them ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeded")
@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize(
    "act, ends", [(raises_it, UnknownOutcomeError), (is_asked_twice, KeyboardInterrupt)]
)
def test_a_ctrl_c_ends_the_process_and_what_looks_like_one_does_not(
    act: Callable[[], None], ends: type[BaseException], waits: bool
) -> None:
    guest = Guest(PROFILE, SystemClock(), Owner(name="bad"))

    async def call() -> None:
        act()

    async def main() -> None:
        if waits:
            await guest.driven("observe", call)
        else:
            guest.asked("fileno", act)

    with asyncio.Runner() as runner, pytest.raises((ends, WeightctlError)) as caught:
        runner.run(main())
    assert isinstance(caught.value, KeyboardInterrupt) is (ends is KeyboardInterrupt)
