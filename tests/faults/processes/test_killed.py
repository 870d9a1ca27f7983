"""SIGKILL of `weightctl run` at chosen failpoints; `make torture` goes through all of them.

The rows are dealt out so that one revision after the other goes through its life and is hit in each
operation; after each hit the dead are looked at, a new process mends, and everything is compared.
"""

import pytest

from tests.faults.processes.rounds import Point, Rounds, enumerated

LIVES: tuple[dict[str, str], ...] = (
    {
        "import": "journal.append.before",
        "repair": "tier.dfs.store.before",
        "evict": "tier.memory.drop.before",
        "rehydrate": "tier.memory.store.before",
        "lease acquire": "journal.append.before",
        "lease renew": "journal.append.before",
        "lease release": "journal.append.before",
        "load": "file.open",
        "snapshot save": "file.open",
        "delete": "journal.append.before",
    },
    {
        "import": "tier.local_disk.piece:3",
        "repair": "tier.nof.piece:2",
        "evict": "file.remove:2",
        "rehydrate": "tier.memory.piece:2",
        "lease acquire": "journal.append.after",
        "lease renew": "journal.append.after",
        "load": "file.rename",
        "delete": "tier.memory.drop.after",
    },
    {
        "import": "tier.memory.store.after",
        "repair": "tier.nof.store.after",
        "evict": "journal.append.after",
        "rehydrate": "journal.append.before",
        "snapshot save": "file.rename",
        "delete": "tier.nof.drop.before",
    },
    {
        "import": "tier.local_disk.verify.after",
        "repair": "journal.append.after",
        "evict": "journal.append.before:2",
        "rehydrate": "journal.append.before:2",
        "delete": "journal.append.before:2",
    },
    {
        "import": "journal.append.after",
        "rehydrate": "journal.append.after:2",
        "delete": "journal.append.after:2",
    },
)
POINTS = [(course, name) for life in LIVES for course, name in life.items()]


@pytest.mark.parametrize("course, place", POINTS)
def test_nothing_is_lost_and_everything_mends_after_a_kill(
    rounds: Rounds, course: str, place: str
) -> None:
    name, _, number = place.partition(":")
    assert rounds.hits(Point(course=course, name=name, number=int(number or 1)))


def test_the_enumeration_finds_the_points_of_every_kind(rounds: Rounds) -> None:
    """What `make torture` goes through: each primitive and each commit of a course."""
    points = {point.name for point in enumerated(rounds, ("rehydrate",), most=1)}
    for call in ("observe", "store"):
        assert {f"tier.memory.{call}.before", f"tier.memory.{call}.after"} <= points
    assert {"journal.append.before", "journal.append.after", "tier.memory.piece"} <= points
    assert {"file.open", "file.rename"} <= points
