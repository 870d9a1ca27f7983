"""SIGKILL of the processes that do the calls of dfs and nof: the controller goes on by itself."""

import pytest

from tests.faults.processes.rounds import Point, Rounds

POINTS = [
    ("repair", "tier.dfs.piece"),
    ("repair", "tier.nof.piece"),
    ("repair", "tier.dfs.store.after"),
    ("repair", "tier.nof.verify.before"),
    ("evict", "tier.nof.observe.before"),
    ("rehydrate", "tier.nof.open.after"),
    ("delete", "tier.dfs.drop.before"),
    ("delete", "tier.nof.drop.before"),
]


@pytest.mark.parametrize("course, name", POINTS)
def test_an_operation_goes_on_when_its_workers_are_killed(
    rounds: Rounds, course: str, name: str
) -> None:
    starts = rounds.sidecar.starts
    assert rounds.hits(Point(course=course, name=name, action="kill-children"))
    assert rounds.sidecar.starts == starts, "the controller itself lives on"
