"""The simulated journal passes the suites of the real one, each test on a disk in memory.

Left out are only those that look at the files themselves, from outside or through SQLite's faults.
"""

import inspect
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import FunctionType

import pytest

from tests.support.virtual_time import SeededEntropy, VirtualClock
from tests.unit.store import (
    test_damage_book,
    test_directory,
    test_journal_commits,
    test_requests,
    test_restart,
)
from weightctl.adapters.conformance.simulation.disk import Disk, open_store
from weightctl.controller.store.gate import CapabilityGate
from weightctl.controller.store.store import WeightMetadataStore

SUITES = (test_journal_commits, test_restart, test_requests, test_directory, test_damage_book)
ON_FILES = frozenset(
    {
        "test_nothing_is_visible_before_it_is_durable",
        "test_commit_that_fails_but_reached_the_log_counts_after_the_restart",
        "test_log_stays_short_and_folding_changes_nothing",
        "test_storm_keeps_the_write_ahead_log_bounded",
        "test_readers_see_what_is_durable_beside_the_writer",
        "test_log_is_shown_decoded_in_order",
        "test_evidence_of_a_revision_is_found_from_outside",
        "test_a_verdict_is_durable_and_seen_from_outside",
        "test_a_directory_without_the_table_is_read_and_gets_it",
        "test_a_changed_verdict_is_refused_and_not_believed",
    }
)
"""Tests that look into the files."""


@pytest.fixture(autouse=True)
def _disks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every folder is a disk in memory."""
    disks: dict[Path, Disk] = {}

    @asynccontextmanager
    async def opened(
        folder: Path, clock: VirtualClock | None = None, gate: CapabilityGate | None = None
    ) -> AsyncIterator[WeightMetadataStore]:
        used = VirtualClock(wall_ms=1000) if clock is None else clock
        disk = disks.setdefault(folder, Disk())
        async with open_store(disk, clock=used, entropy=SeededEntropy(1), gate=gate) as store:
            yield store

    for suite in SUITES:
        monkeypatch.setattr(suite, "opened", opened)
    yield
    for disk in disks.values():
        disk.dispose()


def _tests() -> dict[str, FunctionType]:
    return {
        f"{suite.__name__.rpartition('.')[2]}_{name.removeprefix('test_')}": test
        for suite in SUITES
        for name, test in vars(suite).items()
        if name.startswith("test_") and inspect.iscoroutinefunction(test) and name not in ON_FILES
    }


globals().update(_tests())


def test_what_is_left_out_is_still_there() -> None:
    assert ON_FILES <= {name for suite in SUITES for name in vars(suite)}
    assert len(_tests()) > 5 * len(ON_FILES)
