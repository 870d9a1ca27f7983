"""Where in an operation the demo kills, and what it says it hit."""

from typing import Any, cast

import pytest

from weightctl.controller.api import documents as doc
from weightctl.controller.cli.demo.course import Import, Place, Points, Way, summary
from weightctl.controller.clock import SystemEntropy

STEPS = ("import", "evict", "delete")


def plan(*steps: tuple[str, int], pending: int = 0) -> doc.Plan:
    """A plan of which only what counts here is filled in."""
    wait = {"reason": "CopyInProgress", "what": "", "members": pending, "untilMs": None}
    rows = [{"step": step, "members": members} for step, members in steps]
    return cast("doc.Plan", {"steps": rows, "waits": [wait] if pending else []})


EVICT = (("verify", 15), ("drop", 15), ("finish", 0))
REPAIR = (("store", 15), ("verify", 15), ("store", 15), ("verify", 15), ("finish", 0))


def test_kills_of_all_rounds_cover_the_course_of_each_step() -> None:
    rounds = 20
    points = Points(SystemEntropy(5), rounds)
    taken = [{step: points.next(step) for step in STEPS} for _ in range(rounds)]
    for step in STEPS:
        assert sorted(int(row[step] * rounds) for row in taken) == list(range(rounds))
        assert [row[step] for row in taken] != sorted(row[step] for row in taken)


def test_the_same_seed_gives_the_same_kills() -> None:
    first, second = (Points(SystemEntropy(9), 3) for _ in range(2))
    assert [first.next("evict") for _ in range(7)] == [second.next("evict") for _ in range(7)]


def test_fixed_points_are_taken_in_turn() -> None:
    points = Points(SystemEntropy(1), 1, (0.2, 0.7))
    assert [points.next(step) for step in STEPS] == [0.2, 0.7, 0.2]


def test_a_point_becomes_members_done_and_a_share_of_the_next() -> None:
    way = Way(plan(*EVICT))
    goals = [way.goal(share / 1000) for share in range(1000)]
    assert goals[0] == (0, 0.0)
    assert goals == sorted(goals)
    assert goals[-1] == (way.length, 0.0)
    assert {done for done, _ in goals} == set(range(way.length + 1)), "then comes the finish"
    assert all(0 <= share < 1 for _, share in goals)


@pytest.mark.parametrize(
    "first, seen, found, place",
    [
        (EVICT, plan(*EVICT), plan(*EVICT), "verifying 0 of 15"),
        (EVICT, plan(("verify", 8), ("drop", 7), ("drop", 8)), plan(*EVICT), "verifying 7 of 15"),
        (EVICT, plan(("drop", 11)), plan(("verify", 10), ("drop", 10)), "dropping 5 of 15"),
        (EVICT, plan(("drop", 1)), plan(), "finishing"),
        (REPAIR, plan(("store", 20), ("verify", 30)), plan(*REPAIR[2:]), "copying 15 of 30"),
        (REPAIR, plan(("verify", 4)), plan(("verify", 30)), "verifying 26 of 30"),
        ((("store", 15),), plan(pending=1), plan(("store", 1)), "copying 14 of 15"),
        ((("store", 15),), plan(("store", 9)), plan(("store", 8), pending=1), "copying 6 of 15"),
    ],
)
def test_what_moved_is_told_by_the_media_and_what_was_verified_by_the_last_look(
    first: Any, seen: doc.Plan, found: doc.Plan, place: str
) -> None:
    assert str(Way(plan(*first)).place(seen, found)) == place


@pytest.mark.parametrize(
    "point, hashed, stored, verified, due",
    [
        (0.0, 0, 0, 0, True),
        (0.1, 60, 0, 0, False),
        (0.1, 70, 0, 0, True),
        (0.4, 100, 99, 0, False),
        (0.4, 100, 101, 0, True),
        (0.7, 100, 199, 0, False),
        (0.7, 100, 200, 0, True),
        (0.95, 100, 200, 0, False),
        (0.95, 100, 200, 100, True),
    ],
)
def test_a_point_of_an_import_is_due_by_what_it_has_reported(
    point: float, hashed: int, stored: int, verified: int, due: bool
) -> None:
    course = Import(100)
    course.take({"stage": "hash", "done": hashed})
    course.take({"stage": "store memory", "done": min(stored, 100)})
    course.take({"stage": "store local_disk", "done": max(stored - 100, 0)})
    course.take({"stage": "verify local_disk", "done": verified})
    assert course.reached(point)[0] == due


@pytest.mark.parametrize(
    "stored, verified, place",
    [
        (0, 0, "copying 0 %"),
        (74, 0, "copying 37 %"),
        (200, 9, "verifying"),
        (200, 100, "finishing"),
    ],
)
def test_an_import_says_where_it_was(stored: int, verified: int, place: str) -> None:
    course = Import(100)
    assert str(course.hashed()) == "before begin 0 %"
    course.take({"stage": "store memory", "done": stored})
    course.take({"stage": "verify local_disk", "done": verified})
    assert str(course.place()) == place


def test_the_closing_table_counts_kills_by_stage_in_order_of_the_course() -> None:
    places = [
        Place(stage="missed"),
        Place(stage="copying", done=3, total=4),
        Place(stage="before begin", done=1, total=2),
        Place(stage="copying", done=1, total=4),
        Place(stage="finishing"),
    ]
    kills = [
        doc.DemoKill(
            round=1, point=0.5, stage=one.stage, done=one.done, total=one.total, unit=one.unit
        )
        for one in places
    ]
    assert summary(kills) == "before begin 1 (50 %), copying 2 (25-75 %), finishing 1, missed 1"
    assert summary([]) == "-"
