"""What a power loss leaves of a disk, decided from the log of what was done to it.

The model of ALICE and CrashMonkey, on the side of the medium that promises least:

- of a file, what was written before its last completed sync is there; of what was written later any
  part may be, in any order, down to single sectors; a hole reads as zeros;
- of a folder, the names as they were at its last completed sync are there; of the later changes any
  may be missing, but two changes of one name keep their order and a rename is one change;
- a sync of a file says nothing of its name, and that of a folder nothing of its own name;
- what a failed sync has lost never comes back.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from random import Random

from tests.support.fuse.disk import ROOT, Change, Kind

SECTOR_BYTES = 512


class Keep(Enum):
    """How much of what was not synchronised is there."""

    NOTHING = "nothing"
    ALL = "all"
    SOME = "some"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """One way to lose power; `seed` decides where SOME is kept."""

    names: Keep
    data: Keep
    seed: int = 0

    def __str__(self) -> str:
        return f"names {self.names.value}, data {self.data.value}, seed {self.seed}"


PLAIN = (
    Loss(names=Keep.NOTHING, data=Keep.NOTHING),
    Loss(names=Keep.ALL, data=Keep.NOTHING),
    Loss(names=Keep.NOTHING, data=Keep.ALL),
    Loss(names=Keep.ALL, data=Keep.ALL),
)
"""The corners; the last one is a killed machine whose caches reached the medium."""


def random_losses(count: int, seed: int) -> list[Loss]:
    """Losses that keep some of the names, the data or both."""
    some = (
        Loss(names=Keep.SOME, data=Keep.SOME),
        Loss(names=Keep.ALL, data=Keep.SOME),
        Loss(names=Keep.SOME, data=Keep.ALL),
    )
    chosen = [some[index % len(some)] for index in range(count)]
    return [Loss(names=one.names, data=one.data, seed=seed + i) for i, one in enumerate(chosen)]


@dataclass(slots=True)
class _File:
    durable: bytearray = field(default_factory=bytearray)
    pending: list[Change] = field(default_factory=list)


@dataclass(slots=True)
class _Folder:
    durable: dict[str, int] = field(default_factory=dict)
    pending: list[Change] = field(default_factory=list)


class Cut:
    """The medium at one place of the log; `advance` moves it on."""

    def __init__(self, log: Sequence[Change]) -> None:
        self._log = log
        self._files: dict[int, _File] = {}
        self._folders: dict[int, _Folder] = {ROOT: _Folder()}
        self.position = 0
        self.facts: list[object] = []
        """What was known by then."""

    def advance(self, position: int) -> None:
        """Go on to just before that entry of the log."""
        for change in self._log[self.position : position]:
            self._take(change)
        self.position = position

    def _take(self, change: Change) -> None:
        kind, node, *rest = change
        match kind:
            case Kind.MARK:
                self.facts.append(node)
            case Kind.ADD:
                _, number, is_folder = rest
                if is_folder:
                    self._folders.setdefault(number, _Folder())
                else:
                    self._files.setdefault(number, _File())
                self._folders[node].pending.append(change)
            case Kind.REMOVE | Kind.MOVE:
                self._folders[node].pending.append(change)
            case Kind.WRITE | Kind.SIZE:
                self._files[node].pending.append(change)
            case Kind.LOST if node in self._files:
                file = self._files[node]
                file.pending = [one for one in file.pending if one[0] is not Kind.WRITE]
            case Kind.SYNC if node in self._files:
                _write(self._files[node].durable, self._files[node].pending)
                self._files[node].pending = []
            case Kind.SYNC:
                folder = self._folders[node]
                _rename(folder.durable, folder.pending)
                folder.pending = []

    def lay(self, loss: Loss, target: Path) -> None:
        """Put what survives into an empty folder."""
        random = Random(f"{self.position} {loss.seed}")
        laid: dict[int, Path] = {}
        for number, path in self._survivors(loss, random, ROOT, target):
            if number in self._folders:
                path.mkdir(exist_ok=True)
            elif number in laid:
                os.link(laid[number], path)
            else:
                laid[number] = path
                path.write_bytes(self._content(number, loss, random))

    def _survivors(
        self, loss: Loss, random: Random, number: int, path: Path
    ) -> Iterator[tuple[int, Path]]:
        yield number, path
        if number not in self._folders:
            return
        folder = self._folders[number]
        entries = dict(folder.durable)
        _rename(entries, list(_kept_names(folder.pending, loss.names, random)))
        for name, child in sorted(entries.items()):
            yield from self._survivors(loss, random, child, path / name)

    def _content(self, number: int, loss: Loss, random: Random) -> bytearray:
        file = self._files[number]
        if not file.pending or loss.data is Keep.NOTHING:
            return file.durable
        content = bytearray(file.durable)
        _write(content, _kept_data(file.pending, loss.data, random))
        return content


def _write(content: bytearray, changes: Sequence[Change]) -> None:
    for kind, _, *rest in changes:
        size = rest[0] if kind is Kind.SIZE else rest[0] + len(rest[1])
        if size > len(content):
            content += bytes(size - len(content))
        if kind is Kind.SIZE:
            del content[size:]
        else:
            content[rest[0] : size] = rest[1]


def _rename(entries: dict[str, int], changes: Sequence[Change]) -> None:
    for kind, folder, name, *rest in changes:
        match kind:
            case Kind.ADD:
                entries[name] = rest[0]
            case Kind.REMOVE:
                del entries[name]
            case Kind.MOVE:
                assert rest[0] == folder, "a rename between two folders is not in the model"
                entries[rest[1]] = entries.pop(name)


def _kept_names(pending: Sequence[Change], keep: Keep, random: Random) -> Iterator[Change]:
    """Changes that reach the medium; one that depends on a missing one is missing, too."""
    missing: set[str] = set()
    share = random.choice((0.2, 0.5, 0.8))
    for change in pending:
        names = {change[2], change[4]} if change[0] is Kind.MOVE else {change[2]}
        chance = keep is Keep.ALL or (keep is Keep.SOME and random.random() < share)
        if chance and not names & missing:
            yield change
        else:
            missing |= names


def _kept_data(pending: Sequence[Change], keep: Keep, random: Random) -> list[Change]:
    if keep is Keep.ALL:
        return list(pending)
    kept: list[Change] = []
    share = random.choice((0.0, 0.3, 0.7, 1.0))
    for change in pending:
        if random.random() < share:
            kept.append(change)
        elif change[0] is Kind.WRITE and random.random() < 1 / 2:
            kept += _torn(change, random)
    return kept


def _torn(change: Change, random: Random) -> Iterator[Change]:
    """Some sectors of a write: a beginning, or any of them where there are few."""
    kind, node, offset, content = change
    sectors = range(0, len(content), SECTOR_BYTES)
    end = random.randrange(len(sectors) + 1)
    for index, start in enumerate(sectors):
        if index < end or (len(sectors) <= 64 and random.random() < 1 / 2):
            yield (kind, node, offset + start, content[start : start + SECTOR_BYTES])
