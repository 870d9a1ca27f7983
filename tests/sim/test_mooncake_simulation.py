"""The whole sidecar with the real adapter beside an imitated Mooncake, in virtual time."""

import os
import subprocess
import sys

import pytest

from tests.sim.mooncake.histories import FACES, generate
from tests.sim.mooncake.planted import PLANTED, hunt
from tests.sim.mooncake.scenarios import SCENARIOS
from tests.sim.mooncake.soak import play

SEEDS = (7, 17, 55, 57, 58, *range(100, 160))
"""The first few meet what is rare, as the product is now; more are played until all was met."""
PLAYED_MIN = 12
TWICE = 2
"""A seed with two Masters."""


def test_no_rule_breaks_and_everything_that_may_happen_does() -> None:
    played = play(SCENARIOS.values(), ())
    for number, seed in enumerate(SEEDS):
        if number >= PLAYED_MIN and set(played.faced) >= FACES:
            break
        played.add(play((), [seed]))
    assert not played.broken, "\n".join(played.broken)
    assert sorted(FACES - set(played.faced)) == [], "these did not happen"


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_of_the_adapter_is_found(fault: str) -> None:
    assert all(hunt(fault))


def test_a_history_is_a_function_of_its_seed_in_every_process() -> None:
    script = (
        "from tests.sim.mooncake.histories import generate;"
        f"print(generate({TWICE}).play().report.digest)"
    )
    digests = {str(generate(TWICE).play().report.digest)}
    for hashing in ("1", "2"):
        told = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hashing, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(told.stdout.strip())
    assert len(digests) == 1
