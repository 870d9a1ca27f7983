"""Failing the n-th operation of a life, for every n, until a life passes that meets no fault.

The way of SQLite's own tests.  After each life: what was said is so, the process that met the fault
brings everything to what is wanted once the fault has ended, and so does a fresh one; nothing half
done stays.  Where asked, the power also goes after the fault, at every later place.
"""

import asyncio
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from anyio import to_thread

from tests.faults.disks import replicas
from tests.faults.disks.power import lose_power
from tests.faults.disks.recording import Note, note_to
from tests.support.fuse.disk import Change
from tests.support.fuse.faults import Fault
from tests.support.fuse.mounted import Lab

NEVER = 10**9
LEFTOVERS = (".partial", "device.new")


@dataclass(slots=True)
class Failures:
    """What was tried, and the first place of each kind of failure."""

    lives: int = 0
    met: dict[str, int] = field(default_factory=dict)
    images: int = 0
    found: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.lives} lives, {self.images} images, met {self.met}"

    def check(self) -> None:
        """Raise with everything that was found."""
        assert self.lives
        found = "\n".join(f"{where}: {what}" for what, where in self.found.items())
        assert not found, f"{self}\n{found}"


class Trouble(Protocol):
    """Something that goes wrong with a disk, from `begin` until `end`; blocking."""

    def begin(self) -> None:
        """From now on."""

    def met(self) -> list[str]:
        """What it has met, empty for nothing."""

    def end(self) -> None:
        """No longer."""


@dataclass(frozen=True, slots=True)
class Failing:
    """A fault of a mounted disk."""

    lab: Lab
    fault: Fault

    def begin(self) -> None:
        self.lab.arm(self.fault)

    def met(self) -> list[str]:
        return self.lab.met()

    def end(self) -> None:
        self.lab.arm(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A tier on a mounted disk, and where images of it are judged."""

    kind: replicas.Kind
    lab: Lab
    disk: Path
    scratch: Path


def count_operations(subject: Subject, ops: frozenset[int]) -> int:
    """How many operations of those kinds a life without a fault has."""
    with fresh_folder(subject.lab, subject.disk, "clean") as folder:
        subject.lab.arm(Fault(ops=ops, at=NEVER))
        life = replicas.Life(subject.kind, folder, note_to(subject.lab))
        asyncio.run(life.run())
        assert not life.problems, life.problems
        return subject.lab.arm(None)


def fail_each(
    subject: Subject, faults: Iterable[Fault], *, lose_power_every: int = 0, stop: bool = False
) -> Failures:
    """One life for each fault.

    lose_power_every: judge also what a power loss leaves at every so many places after the fault;
    stop: at the first life that meets no fault.
    """
    failures = Failures()
    for fault in faults:
        with fresh_folder(subject.lab, subject.disk, f"run{failures.lives}") as folder:
            try:
                trouble = Failing(subject.lab, fault)
                met = asyncio.run(live_through(subject.kind, folder, trouble, note_to(subject.lab)))
                if lose_power_every:
                    _lose_power(subject, folder, failures, lose_power_every)
            except Exception as error:  # noqa: BLE001 - whatever leaves a tier is a failure
                met = subject.lab.met() or ["?"]
                problem = f"{type(error).__name__}: {error}".replace("\n", "; ")
                failures.found.setdefault(problem, f"{fault}, {met}")
            finally:
                subject.lab.arm(None)
        failures.lives += 1
        for name in met[:1]:
            failures.met[name] = failures.met.get(name, 0) + 1
        if stop and not met:
            break
    return failures


async def _to_nobody(_: object) -> None:
    return


async def live_through(
    kind: replicas.Kind, folder: Path, trouble: Trouble, note: Note = _to_nobody
) -> list[str]:
    """One life of a tier with that trouble, and all that has to be true after it; what it met."""
    met: list[str] = []

    async def lift() -> bool:
        if met:
            return False
        met.extend(await to_thread.run_sync(trouble.met))
        if met:
            await to_thread.run_sync(trouble.end)
        return bool(met)

    life = replicas.Life(kind, folder, note, lift=lift)
    await to_thread.run_sync(trouble.begin)
    await life.run()
    await lift()
    await to_thread.run_sync(trouble.end)
    await to_thread.run_sync(replicas.judge, kind, folder, list(life.facts))
    await life.converge()
    await to_thread.run_sync(replicas.judge, kind, folder, list(life.facts))
    left = await to_thread.run_sync(lambda: list(_leftovers(folder)))
    assert not left, f"left behind: {left}; {life.problems}"
    return met


def _leftovers(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        if path.name.endswith(LEFTOVERS):
            yield str(path.relative_to(folder))


def _lose_power(subject: Subject, folder: Path, failures: Failures, every: int) -> None:
    def judge(image: Path, facts: Sequence[object]) -> None:
        replicas.judge(subject.kind, image / folder.name, facts)

    log: list[Change] = subject.lab.log()
    verdicts = lose_power(log, judge, subject.scratch, random_each=0, every=every, start=_made(log))
    failures.images += verdicts.images
    verdicts.check()


def _made(log: Sequence[Change]) -> int:
    """The place from which on the life's folder is on the medium."""
    return min(2, len(log))


@contextmanager
def fresh_folder(lab: Lab, disk: Path, name: str) -> Iterator[Path]:
    """A folder that is there after a power loss, too; the log begins with it."""
    folder = disk / name
    lab.begin()
    folder.mkdir()
    fd = os.open(disk, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(fd)
    os.close(fd)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
