"""SIGKILL of `weightctl run` where nobody chose the place, and of the start that mends after one.

`make torture` runs the same rounds by chance for much longer.
"""

from pathlib import Path

import pytest

from tests.faults.processes.chance import Chance
from tests.faults.processes.courses import COURSES
from tests.faults.processes.rounds import Rounds
from tests.faults.processes.sidecar import sidecar


@pytest.mark.parametrize(
    "armed", ["journal.term.before=kill", "journal.term.after=kill", "tier.*.observe.after:2=kill"]
)
def test_a_start_that_is_killed_in_its_turn_leaves_it_to_the_next(
    rounds: Rounds, armed: str
) -> None:
    life = rounds.led_up_to("repair")
    rounds.sidecar.ask("evict", identity=life.identity)
    rounds.sidecar.kill()
    rounds.mend(armed)
    rounds.settle(life)
    rounds.lead(life, COURSES["delete"])


def test_rounds_by_chance_lose_nothing(tmp_path: Path) -> None:
    with sidecar(tmp_path, deadline_s=1.0) as one:
        one.start()
        chance = Chance(Rounds(one), seed=20261130)
        for _ in range(5):
            chance.round()
