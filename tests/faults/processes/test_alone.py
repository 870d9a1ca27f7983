"""SIGKILL of a verb's own process, with no controller beside it."""

import time
from pathlib import Path

import pytest

from tests.faults.processes.courses import COURSES, Life
from tests.faults.processes.ledger import Ledger, check_readable
from tests.faults.processes.rounds import Rounds
from tests.faults.processes.sidecar import Sidecar, sidecar
from weightctl.controller.core.records import Availability
from weightctl.controller.core.state import WeightState
from weightctl.controller.store.reading import read_state

NOT_NOW = {5, 13}
"""The lease of a killed reader lives as long as it was given; a slow machine may outlive one."""
POINTS = {
    "import": (
        *("journal.create.before", "journal.create.after", "file.rename:2", "tier.dfs.piece:3"),
        "journal.append.after",
    ),
    "evict": ("journal.append.after", "tier.memory.drop.before"),
    "rehydrate": ("tier.memory.piece:2",),
    "lease acquire": ("journal.append.after",),
    "lease release": ("journal.append.before",),
    "load": ("file.rename",),
    "snapshot save": ("file.rename",),
    "delete": ("tier.dfs.drop.after", "journal.append.after"),
}
"""A life in its order; each kill of a verb meets what the one before it has left."""


def test_every_verb_can_be_killed_and_asked_for_again(tmp_path: Path) -> None:
    """Each point of a life in turn; the same verb again, alone too, ends what was begun."""
    with sidecar(tmp_path, ("memory", "dfs"), lease_ms=3000) as one:
        ledger = Ledger()
        life = Life(one, ledger, "lab/model/v1@1")
        for name, points in POINTS.items():
            for point in points:
                verb(life, name, f"{point}=kill")
            verb(life, name, "")
        one.start()
        rounds = Rounds(one)
        rounds.ledger = ledger
        rounds.settle()
        assert life.record().availability is Availability.DELETED


def verb(life: Life, name: str, armed: str) -> None:
    """One process: killed where it is armed to be, else it must do what it says."""
    one, course = life.sidecar, COURSES[name]
    one.arm(armed)
    if name == "lease release":
        life.ledger.asked_to_release(life.lease_id)
    ended = one.run(*course.words(life))
    while ended.code in NOT_NOW:
        time.sleep(0.5)
        ended = one.run(*course.words(life))
    if armed:
        assert ended.killed, f"{name} at {armed}: {ended.code}\n{ended.err}"
        if not armed.startswith("journal.create.before"):  # there is no state yet
            life.ledger.check_dead(one)
        return
    assert ended.code == 0, f"{name}: {ended.err}"
    life.told(ended.document)


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_restore_that_is_killed_is_done_wholly_or_not_at_all(tmp_path: Path, side: str) -> None:
    with sidecar(tmp_path, ("memory", "local_disk")) as one:
        one.start()
        rounds = Rounds(one)
        life = rounds.led_up_to("delete")
        saved = state_of(one)
        rounds.lead(life, COURSES["lease acquire"])
        one.terminate()
        present = state_of(one)
        one.arm(f"journal.replace.{side}=kill")
        words = ["snapshot", "restore", str(tmp_path / "snapshot"), "--yes"]
        assert one.run(*words).killed
        assert same(state_of(one), saved if side == "after" else present)
        one.disarm()
        assert one.run(*words).code == 0
        assert same(state_of(one), saved)
        rounds = Rounds(one)  # what came after the snapshot is forgotten, as it is documented
        one.start()
        rounds.settle(life)
        with read_state(one.state_dir) as stored:
            check_readable(one, stored)


def state_of(one: Sidecar) -> WeightState:
    with read_state(one.state_dir) as stored:
        assert not stored.problem
        return stored.state


def same(one: WeightState, other: WeightState) -> bool:
    """Whether the records are the same; numbers may skip."""
    return (one.metadata, one.leases, one.operations) == (
        other.metadata,
        other.leases,
        other.operations,
    )
