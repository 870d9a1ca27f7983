"""`kill -9` of the whole sidecar at each primitive, beside a real Master: all of it mends.

The rounds, the courses and what is checked after each kill are those of tests/faults/processes;
only the media are others, so what is readable is asked of the Master.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.processes.ledger import check_tensors
from tests.faults.processes.rounds import Point
from tests.support.mooncake.killed import Beside, MooncakeRounds, dealt
from tests.support.mooncake.lab import PATIENT, SOON_DISCARDED, cluster, needs_wheel
from weightctl.controller.core.identity import manifest_key, parse_identity

pytestmark = needs_wheel

# A process with nothing but the Mooncake client: the bytes of one object into a file.
_GET = """
import sys
from mooncake.store import MooncakeDistributedStore
store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 32 << 20, "tcp", "", sys.argv[1]) == 0
open(sys.argv[3], "wb").write(store.get(sys.argv[2]))
store.close()
"""
# Dealt out so that one life serves a point of each course.
LIVES = (
    ("tier.*.piece:2", "tier.ssd.verify.before", "tier.memory.store.before",
     "tier.memory.drop.before"),
    ("tier.memory.store.after", "tier.memory.drop.before", "tier.memory.store.after",
     "tier.memory.drop.after"),
    ("tier.ssd.store.before", "tier.memory.drop.after", "journal.append.before:2",
     "tier.*.inventory.before"),
    ("tier.ssd.verify.after", "journal.append.after:2", "journal.append.after",
     "journal.append.before:2"),
)  # fmt: skip
POINTS = dealt(LIVES)


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MooncakeRounds]:
    folder = tmp_path_factory.mktemp("cluster")
    with cluster(folder, PATIENT, *SOON_DISCARDED) as real:
        beside = Beside(real, folder / "sidecar")
        try:
            beside.start()
            yield MooncakeRounds(beside)
        finally:
            beside.kill()


@pytest.mark.parametrize("point", POINTS, ids=str)
def test_a_kill_there_loses_nothing_and_the_same_verb_ends_it(
    rounds: MooncakeRounds, point: Point
) -> None:
    assert rounds.hits(point), f"not reached: {rounds.score.missed}"


def test_a_new_store_takes_the_cluster_over_and_adopts_what_the_lost_one_had(
    rounds: MooncakeRounds, tmp_path: Path
) -> None:
    """The last here: the first store has lost the cluster then."""
    life = rounds.led_up_to("evict")
    old = rounds.sidecar
    assert isinstance(old, Beside)
    old.terminate()
    kept = tmp_path / "manifest"
    command = [sys.executable, "-c", _GET, old.real.master]
    subprocess.run(
        [*command, manifest_key(parse_identity(life.identity)), str(kept)],
        check=True,
        capture_output=True,
    )
    words = ("adopt", life.identity, "--manifest", str(kept))
    beside = Beside(old.real, tmp_path)
    refused = beside.run(*words)
    assert (refused.code, "belongs to another store" in refused.err) == (1, True)
    beside.take_over()
    beside.arm("journal.append.before=kill")
    assert beside.run(*words).killed
    beside.disarm()
    assert beside.run(*words).document["verdict"] == "adopted"
    beside.start()
    try:
        beside.ask("evict", identity=life.identity, wait=True, timeout_s=120.0)
        check_tensors(beside, life.identity)
    finally:
        beside.kill()
