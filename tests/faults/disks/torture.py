"""Every fault at every place, every place of a power loss: the whole of what the tests sample.

    python -m tests.faults.disks.torture [--only TEXT] [--every N]

Prints what was tried and ends with 1 where something was found.  Takes about an hour alone on two
processors; `--every 10` takes each tenth place, `--only nof` what has that in its name.
"""

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults.disks import failing, failing_journal
from tests.faults.disks.failing import Subject
from tests.faults.disks.faults import FAULTS, SYNCING
from tests.faults.disks.journal import short_limits
from tests.faults.disks.kinds import KINDS
from tests.faults.disks.power import Verdicts, lose_power
from tests.faults.disks.recording import (
    Recording,
    record_journal,
    record_product,
    record_tier,
)
from tests.support.fuse.faults import Fault
from tests.support.fuse.mounted import mounted
from tests.support.mounts import ram

SCRATCH_BYTES = 256 * 1024 * 1024
RANDOM_EACH = 20
Judged = failing.Failures | Verdicts
Run = Callable[[Path, int], Judged]


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.faults.disks.torture", description=__doc__)
    parser.add_argument("--only", default="", help="what has this text in its name")
    parser.add_argument("--every", type=int, default=1, help="each so many places")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing stays mounted
    found = 0
    for name, run in runs():
        if given.only not in name:
            continue
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="weightctl-disks-") as folder:
            judged = run(Path(folder), given.every)
        print(f"{name}: {judged}, {time.monotonic() - began:.0f} s", flush=True)
        try:
            judged.check()
        except AssertionError as error:
            found += 1
            print(f"FOUND: {error}", flush=True)
    print(f"{found} found" if found else "nothing found")
    return 1 if found else 0


def runs() -> Iterator[tuple[str, Run]]:
    """Each name, and what runs it in a folder at every so many places."""
    for kind in KINDS:
        for fault in FAULTS:
            yield f"{kind}: {fault}", _fail_tier(kind, fault)
        yield f"{kind}: a failed sync, then power loss", _fail_syncs(kind)
    for fault in FAULTS:
        yield f"journal: {fault}", _fail_journal(fault)
    for kind in KINDS:
        yield f"{kind}: power loss", _lose_power(_tier_recorder(kind))
    yield "journal: power loss", _lose_power(lambda folder, _: record_journal(folder))
    yield "product: power loss", _lose_power(record_product)


@contextmanager
def _subject(kind: str, folder: Path) -> Iterator[Subject]:
    with mounted(folder / "disk") as lab, ram(folder / "ram", SCRATCH_BYTES) as scratch:
        yield Subject(kind=KINDS[kind], lab=lab, disk=folder / "disk", scratch=scratch)


def _fail_tier(kind: str, fault: str) -> Run:
    def run(folder: Path, every: int) -> Judged:
        ops, make = FAULTS[fault]
        with _subject(kind, folder) as subject:
            count = failing.count_operations(subject, ops)
            return failing.fail_each(subject, map(make, range(0, count + 1, every)))

    return run


def _fail_syncs(kind: str) -> Run:
    def run(folder: Path, every: int) -> Judged:
        with _subject(kind, folder) as subject:
            places = range(0, failing.count_operations(subject, SYNCING), every)
            faults = [Fault(ops=SYNCING, at=at, error=5) for at in places]
            return failing.fail_each(subject, faults, lose_power_every=1)

    return run


def _fail_journal(fault: str) -> Run:
    def run(folder: Path, every: int) -> Judged:
        ops, make = FAULTS[fault]
        with short_limits(), mounted(folder / "disk") as lab:
            pictures = asyncio.run(failing_journal.undisturbed(folder / "undisturbed"))
            count = failing_journal.count_operations(lab, folder / "disk", ops)
            places = map(make, range(0, count + 1, every))
            return failing_journal.fail_each(lab, folder / "disk", places, pictures)

    return run


def _tier_recorder(kind: str) -> Callable[[Path, Path], Recording]:
    return lambda folder, _: record_tier(kind, folder)


def _lose_power(record: Callable[[Path, Path], Recording]) -> Run:
    def run(folder: Path, every: int) -> Judged:
        with short_limits(), ram(folder / "ram", SCRATCH_BYTES) as scratch:
            recording = record(folder / "disk", scratch)
            images = scratch / "images"
            images.mkdir()
            return lose_power(
                recording.log, recording.judge, images, random_each=RANDOM_EACH, every=every
            )

    return run


if __name__ == "__main__":
    sys.exit(main())
