"""The power goes at every place of a life: what was said is there, the rest is whole or absent.

`make torture-disks` runs the same with many more random losses at every place.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.disks.journal import short_limits
from tests.faults.disks.kinds import KINDS
from tests.faults.disks.power import lose_power
from tests.faults.disks.recording import record_journal, record_product, record_tier
from tests.support.mounts import ram

SCRATCH_BYTES = 256 * 1024 * 1024
SAMPLES = {"local_disk": (3, 1), "dfs": (3, 1), "nof": (2, 3)}
"""Random losses at each place, and how many places for each that is judged."""


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    with ram(tmp_path / "ram", SCRATCH_BYTES) as folder:
        yield folder


@pytest.mark.parametrize("name", KINDS)
def test_a_tier_keeps_what_it_said_when_the_power_goes_at_any_place(
    name: str, tmp_path: Path, scratch: Path
) -> None:
    recording = record_tier(name, tmp_path / "disk")
    random_each, every = SAMPLES[name]
    verdicts = lose_power(
        recording.log, recording.judge, scratch, random_each=random_each, every=every
    )
    verdicts.check()


def test_the_journal_keeps_what_it_acknowledged_when_the_power_goes_at_any_place(
    tmp_path: Path, scratch: Path
) -> None:
    with short_limits():
        recording = record_journal(tmp_path / "disk")
        verdicts = lose_power(recording.log, recording.judge, scratch, random_each=2, every=4)
    verdicts.check()


def test_a_model_that_was_ready_can_be_loaded_when_the_power_went_at_any_place(
    tmp_path: Path, scratch: Path
) -> None:
    """Memory is gone, too: every byte comes from what the disk has kept."""
    recording = record_product(tmp_path / "disk", scratch)
    images = scratch / "images"
    images.mkdir()
    lose_power(recording.log, recording.judge, images, random_each=0, every=14).check()
