"""The n-th operation of a journal's life fails, for every n: with each error, once or from then on.

A sample of the places here; `make torture-disks` takes them all.
"""

import asyncio
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.disks.failing_journal import count_operations, fail_each, undisturbed
from tests.faults.disks.faults import FAULTS
from tests.faults.disks.journal import Picture, short_limits
from tests.support.fuse.mounted import Lab, mounted
from tests.support.store_child import REVISIONS
from weightctl.controller.errors import StateDirectoryError
from weightctl.controller.store.evidence import read_evidence

PLACES = 11
"""Places of each fault here.  The kernel ends a process (SIGBUS) whose medium dies just when it
first touches SQLite's mapped index of the log: one place of this life, which no sample may have."""


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


def test_evidence_that_cannot_be_read_is_an_error_with_a_reason(tmp_path: Path) -> None:
    """Found at reading operation 332 of the life: the error of SQLite itself came out."""
    path = tmp_path / "weightctl.db"
    path.write_bytes(b"no database".ljust(4096))
    connection = sqlite3.connect(path)
    try:
        with pytest.raises(StateDirectoryError, match="DamagedEvidence"):
            read_evidence(connection, REVISIONS[0])
    finally:
        connection.close()
