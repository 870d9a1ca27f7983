"""Who could not give or take a copy is tried after those who may; nothing is lost over it."""

from typing import Any

import pytest

from tests.support.situations import IDENTITY, MEMBER_BYTES, situation, view
from tests.unit.test_planner import steps, waits
from weightctl.controller.core.identity import payload_group_id
from weightctl.controller.core.masks import GIVEN_UP
from weightctl.controller.core.plan import TierView
from weightctl.controller.core.planner import plan
from weightctl.controller.core.policy import Policy
from weightctl.controller.core.records import Operation, Residency
from weightctl.controller.ports import (
    Busy,
    Conflict,
    Corrupt,
    Done,
    Fenced,
    NoCapacity,
    NoOp,
    Outcome,
    Permanent,
    Retry,
    Unknown,
)
from weightctl.controller.runtime import failures
from weightctl.controller.runtime.failures import FailureBook, weight_of

EVICT, REHYDRATE, REPAIR = Operation.EVICTING, Operation.REHYDRATING, Operation.REPAIRING
ORDER = Policy(tier_preference=("mem", "disk", "far", "nof"))
COLD = {"target": Residency.COLD}
Tiers = dict[str, tuple[str, tuple[int, ...]]]


def views(tiers: Tiers) -> tuple[TierView, ...]:
    """Letters and failures by tier; no failures are none at all."""
    return tuple(
        view(name, letters, failures=bytes(failed)) for name, (letters, failed) in tiers.items()
    )


N = GIVEN_UP
TABLE: dict[str, tuple[Operation, Tiers, dict[str, Any], list[str], list[str]]] = {
    "evict reads the copy back that has not failed": (
        EVICT, {"mem": ("cc", ()), "disk": ("cc", (1, 0)), "far": ("cc", ())}, {},
        ["verify disk> 1", "verify far> 0"], []),
    "evict reads back what has failed least": (
        EVICT, {"mem": ("cc", ()), "disk": ("cc", (3, 1)), "far": ("cc", (2, 2))}, {},
        ["verify disk> 1", "verify far> 0"], []),
    "evict tries again what has failed when there is nothing else": (
        EVICT, {"mem": ("c", ()), "disk": ("c", (200,)), "far": ("-", ())}, {},
        ["store mem>far 0", "verify disk> 0"], []),
    "evict makes no further copy after a few failures": (
        EVICT, {"mem": ("c", ()), "disk": ("c", (N - 1,)), "far": ("-", ())}, {},
        ["verify disk> 0"], []),
    "evict makes no further copy while one is to be hoped for": (
        EVICT, {"mem": ("c", ()), "disk": ("c", (N,)), "far": ("-", ()), "nof": ("c", ())}, {},
        ["verify nof> 0"], []),
    "evict makes no further copy while a tier is silent": (
        EVICT, {"mem": ("c", ()), "disk": ("c", (N,)), "far": ("-", ()), "nof": ("?", ())}, {},
        ["verify disk> 0"], []),
    "a verified copy that has failed since still justifies a drop": (
        EVICT, {"mem": ("c", ()), "disk": ("v", (N,))}, {}, ["drop mem> 0"], []),
    "failures justify nothing": (
        EVICT, {"mem": ("c", (N,)), "disk": ("c", (N,))}, {}, ["verify disk> 0"], []),
    "rehydrate reads from who has not failed": (
        REHYDRATE, {"mem": ("--", ()), "disk": ("cc", (1, 0)), "far": ("cc", ())}, {},
        ["store disk>mem 1", "store far>mem 0"], []),
    "rehydrate asks the only source again and again": (
        REHYDRATE, {"mem": ("-", ()), "disk": ("c", (255,))}, {}, ["store disk>mem 0"], []),
    "evict asks the tier of its preference thrice": (
        EVICT, {"mem": ("ccc", ()), "disk": ("---", (2, 3, 0)), "far": ("---", ())}, {},
        ["store mem>disk 02", "store mem>far 1"], []),
    "evict asks whom it has when all have refused": (
        EVICT, {"mem": ("c", ()), "disk": ("-", (9,)), "far": ("-", (8,))}, {},
        ["store mem>far 0"], []),
    "repair restores what cannot be read": (
        REPAIR, {"mem": ("v", ()), "disk": ("c", (N,)), "far": ("-", ())}, COLD,
        ["store mem>far 0", "verify disk> 0"], []),
    "repair ends although a copy too many cannot be read": (
        REPAIR, {"mem": ("v", ()), "disk": ("c", (N,)), "far": ("v", ())}, COLD, ["finish >"], []),
    "repair does not end after a few failures": (
        REPAIR, {"mem": ("v", ()), "disk": ("c", (N - 1,)), "far": ("v", ())}, COLD,
        ["verify disk> 0"], []),
    "repair does not end on a copy that cannot be read": (
        REPAIR, {"mem": ("v", ()), "disk": ("c", (N,))}, COLD,
        ["verify disk> 0"], ["NoTier"]),
    "repair towards hot wants a memory copy that can be read": (
        REPAIR, {"mem": ("c", (N,)), "disk": ("v", ())}, {}, ["verify mem> 0"], ["NoTier"]),
}  # fmt: skip


@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE)
def test_plan(row: tuple[Operation, Tiers, dict[str, Any], list[str], list[str]]) -> None:
    operation, tiers, changes, want_steps, want_waits = row
    made = plan(situation(views(tiers), operation=operation, policy=ORDER, **changes))
    assert (steps(made), waits(made)) == (want_steps, want_waits)


def test_room_is_counted_once_for_members_of_different_luck() -> None:
    tiers = (
        view("mem", "ccc"),
        view("disk", "---", free_bytes=2 * MEMBER_BYTES, failures=bytes((9, 0, 0))),
    )
    made = plan(situation(tiers, operation=EVICT, policy=ORDER))
    assert (steps(made), waits(made)) == ([], ["NoCapacity"])


# --- the book -------------------------------------------------------------------------------------

GROUP = payload_group_id(IDENTITY)


class FakeClock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return 0

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError(seconds)


def fail(book: FailureBook, times: int, *, index: int = 0, tier: str = "disk") -> None:
    for _ in range(times):
        book.failed(tier, GROUP, 3, [index])


def test_failures_in_a_row_count_and_one_success_ends_them() -> None:
    book = FailureBook(FakeClock())
    assert book.counts("disk", GROUP, 3) == b""
    assert book.failed("disk", GROUP, 3, [0, 2]) == 2
    assert book.failed("disk", GROUP, 3, [0, 1]) == 1
    assert book.counts("disk", GROUP, 3) == bytes((2, 1, 1))
    book.worked("disk", GROUP, [0, 2])
    assert book.counts("disk", GROUP, 3) == bytes((0, 1, 0))
    book.worked("disk", GROUP, [1])
    assert book.counts("disk", GROUP, 3) == b""


def test_nothing_is_given_up_before_it_has_failed_for_a_while() -> None:
    clock = FakeClock()
    book = FailureBook(clock)
    fail(book, 100)
    assert book.counts("disk", GROUP, 3)[0] == GIVEN_UP - 1
    clock.now_s = failures.DOUBT_S
    fail(book, 1)
    assert book.counts("disk", GROUP, 3)[0] == GIVEN_UP


def test_counting_has_an_end_after_which_it_is_tried_before_what_failed_less_often() -> None:
    clock = FakeClock()
    book = FailureBook(clock)
    fail(book, 1)
    clock.now_s = failures.DOUBT_S
    fail(book, 254)
    assert book.counts("disk", GROUP, 3)[0] == 255
    fail(book, 1)
    assert book.counts("disk", GROUP, 3)[0] == GIVEN_UP


def test_failures_are_forgotten_when_they_are_old() -> None:
    clock = FakeClock()
    book = FailureBook(clock)
    fail(book, 3)
    clock.now_s = failures.KEPT_S + 1
    assert book.counts("disk", GROUP, 3) == b""


def test_a_tier_that_only_fails_is_expected_to_fail_for_the_rest() -> None:
    book = FailureBook(FakeClock())
    fail(book, failures.STREAK - 1)
    assert book.counts("disk", GROUP, 3)[1] == 0
    fail(book, 1)
    assert book.counts("disk", GROUP, 3)[1] == 1
    book.worked("disk", GROUP, [2])
    assert book.counts("disk", GROUP, 3)[1] == 0


def test_the_book_is_bounded() -> None:
    book = FailureBook(FakeClock(), members_max=6)
    for tier in ("a", "b", "c"):
        fail(book, 1, tier=tier)
    assert [bool(book.counts(tier, GROUP, 3)) for tier in ("a", "b", "c")] == [False, True, True]


def test_how_much_each_outcome_counts() -> None:
    none: list[Outcome] = [Done(), NoOp(), Fenced()]
    one: list[Outcome] = [
        *(Busy(), Retry(), Unknown(), Conflict(detail=""), Corrupt(expected=b"", got=b"")),
        NoCapacity(needed_bytes=1, free_bytes=0),
    ]
    assert {weight_of(outcome) for outcome in none} == {0}
    assert {weight_of(outcome) for outcome in one} == {1}
    assert weight_of(Permanent(detail="")) > 1
