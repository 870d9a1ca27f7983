"""The n-th operation of a journal's life fails, for every n: with each error, once or from then on.

A sample of the places here; `make torture` takes them all.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.disks.failing_journal import count_operations, fail_each, undisturbed
from tests.faults.disks.faults import FAULTS
from tests.faults.disks.journal import Picture, short_limits
from tests.support.fuse.mounted import Lab, mounted

PLACES = 12
"""Places of each fault here."""


@dataclass(frozen=True, slots=True)
class Bench:
    """A mounted disk, and what an undisturbed life shows."""

    lab: Lab
    disk: Path
    pictures: Sequence[Picture]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("journal")
    with short_limits(), mounted(folder / "disk") as lab:
        yield Bench(lab, folder / "disk", asyncio.run(undisturbed(folder / "undisturbed")))


@pytest.mark.parametrize("name", FAULTS)
def test_the_journal_outlives_a_failure_at_any_place(bench: Bench, name: str) -> None:
    ops, fault = FAULTS[name]
    count = count_operations(bench.lab, bench.disk, ops)
    offset, kinds = list(FAULTS).index(name), len(FAULTS)  # not the same places for each fault
    chosen = {(n * kinds + offset) * count // (PLACES * kinds) for n in range(PLACES)}
    faults = [fault(at) for at in sorted(chosen)]
    fail_each(bench.lab, bench.disk, faults, bench.pictures).check()
