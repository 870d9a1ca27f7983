"""The n-th operation of a tier's life fails, for every n: with each error, once or from then on.

A sample of the places here; `make torture-disks` takes them all.
"""

import errno
from collections.abc import Iterator

import pytest

from tests.faults.disks.failing import Subject, count_operations, fail_each
from tests.faults.disks.faults import FAULTS, SYNCING
from tests.faults.disks.kinds import KINDS
from tests.support.fuse.faults import Fault
from tests.support.fuse.mounted import mounted
from tests.support.mounts import ram

SCRATCH_BYTES = 64 * 1024 * 1024
PLACES = {"local_disk": 6, "dfs": 1, "nof": 1}
"""Places of each fault here."""


@pytest.fixture(scope="module", params=KINDS)
def subject(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Subject]:
    folder = tmp_path_factory.mktemp("disks")
    with mounted(folder / "disk") as lab, ram(folder / "ram", SCRATCH_BYTES) as scratch:
        kind = KINDS[request.param]
        yield Subject(kind=kind, lab=lab, disk=folder / "disk", scratch=scratch)


@pytest.mark.parametrize("name", FAULTS)
def test_a_tier_outlives_a_failure_at_any_place(subject: Subject, name: str) -> None:
    ops, fault = FAULTS[name]
    count = count_operations(subject, ops)
    places = PLACES[subject.kind.name]
    offset, faults = list(FAULTS).index(name), len(FAULTS)  # not the same places for each fault
    chosen = [(n * faults + offset) * count // (places * faults) for n in range(places)]
    fail_each(subject, [fault(at) for at in chosen]).check()


def test_a_failed_sync_promises_nothing_that_a_power_loss_takes(subject: Subject) -> None:
    """The life goes on after the error, and then the power goes."""
    count = count_operations(subject, SYNCING)
    places = range(1, count, max(1, count // (2 * PLACES[subject.kind.name])))[:12]
    faults = [Fault(ops=SYNCING, at=at, error=errno.EIO) for at in places]
    failures = fail_each(subject, faults, lose_power_every=6)
    assert failures.images
    failures.check()
