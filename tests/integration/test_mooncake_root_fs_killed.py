"""`kill -9` of the sidecar whose cold copies are files below `root_fs_dir`: all of it mends."""

from collections.abc import Iterator

import pytest

from tests.faults.processes.rounds import Point
from tests.support.mooncake.below_fs import below_fs
from tests.support.mooncake.killed import Beside, MooncakeRounds, dealt
from tests.support.mooncake.lab import SOON_DISCARDED, needs_wheel

pytestmark = needs_wheel

# Not at `tier.fs.drop`: a removal from memory takes the file along, and whether that step comes
# first is chance.
LIVES = (
    ("tier.*.piece:2", "tier.memory.drop.before", "tier.memory.store.before",
     "tier.memory.drop.after"),
    ("tier.memory.store.after", "tier.memory.drop.after", "tier.memory.store.after",
     "tier.fs.observe.before:2"),
)  # fmt: skip


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MooncakeRounds]:
    folder = tmp_path_factory.mktemp("cluster")
    with below_fs(folder, *SOON_DISCARDED) as real:
        beside = Beside(real, folder / "sidecar", "fs", "mooncake-disk")
        try:
            beside.start()
            yield MooncakeRounds(beside)
        finally:
            beside.kill()


@pytest.mark.parametrize("point", dealt(LIVES), ids=str)
def test_a_kill_there_loses_nothing_and_the_same_verb_ends_it(
    rounds: MooncakeRounds, point: Point
) -> None:
    assert rounds.hits(point), f"not reached: {rounds.score.missed}"
