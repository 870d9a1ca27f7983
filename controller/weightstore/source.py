"""A model source on disk: one safetensors file, or a folder of them.  Layer: weightstore.

Owns discovery in a fixed order, the open descriptors, and the proof that nothing changed while it
was read: each file is named by device, inode, size and change times, taken before the header is
read and compared after the last byte.  All calls block; they run in worker threads.
"""

from __future__ import annotations

import json
import os
import re
import stat
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from weightctl.controller.errors import SourceError
from weightctl.controller.weightstore.safetensors import (
    LENGTH_BYTES,
    Header,
    header_bytes,
    parse_header,
)

if TYPE_CHECKING:
    from typing import Self

SUFFIX = ".safetensors"
INDEX_SUFFIX = ".safetensors.index.json"
INDEX_BYTES_MAX = 100_000_000
_SHARD = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.safetensors")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """One open file and its checked header; `mark` tells whether it was changed since."""

    path: str
    descriptor: int
    header: Header
    size_bytes: int
    mark: tuple[int, ...]


class ModelSource:
    """An open model source; a context manager that closes its descriptors."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        _require_path(self.path)
        self.files: tuple[SourceFile, ...] = ()
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Open and check every file.  Raises SourceError for whatever is not a whole model."""
        with ExitStack() as opened:
            names, index = _find(self.path)
            self.files = tuple(_open(str(name), opened) for name in names)
            _check_names(self.path, self.files, index)
            self._open = opened.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every descriptor."""
        self._open.close()

    def read_into(self, file: SourceFile, offset: int, buffer: memoryview) -> None:
        """Fill `buffer` from byte `offset` of the file.  Raises SourceError."""
        done = 0
        try:
            while done < len(buffer):
                count = os.preadv(file.descriptor, [buffer[done:]], offset + done)
                if count == 0:
                    _changed(file, f"it ends at byte {offset + done}")
                done += count
        except OSError as error:
            _refuse(file.path, f"reading byte {offset + done} failed: {error.strerror}")

    def check_unchanged(self) -> None:
        """Raise SourceError if a file was written to, or replaced under its name, since opening."""
        for file in self.files:
            try:
                same = (
                    _mark(os.fstat(file.descriptor)) == file.mark == _mark(Path(file.path).stat())
                )
            except OSError as error:
                _changed(file, f"it cannot be looked at any more: {error.strerror}")
            if not same:
                _changed(file, "its size, time or inode is not what it was at the start")


def _require_path(path: str) -> None:
    """The kernel names files by bytes without NUL; a text that has none is an error of its own."""
    try:
        usable = b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        usable = False
    if not usable:
        _refuse(repr(path), "no file can have that name")


def _find(path: str) -> tuple[list[Path], dict[str, str] | None]:
    """The files in their fixed order, and the index's map of tensor to file where there is one."""
    place = Path(path)
    try:
        if not place.is_dir():
            return [place], None
        names = sorted(entry.name for entry in place.iterdir())
    except OSError as error:
        _refuse(path, f"it cannot be listed: {error.strerror}")
    files = [name for name in names if name.endswith(SUFFIX)]
    if not files:
        _refuse(path, f"the folder holds no *{SUFFIX} file")
    indexes = [name for name in names if name.endswith(INDEX_SUFFIX)]
    # Several indexes describe variants of one model; then every file is taken.
    index = _weight_map(place / indexes[0]) if len(indexes) == 1 else None
    if index is not None:
        files = sorted(set(index.values()))
    _check_shards(path, files)
    return [place / name for name in files], index


def _check_shards(path: str, names: list[str]) -> None:
    """A set of `x-00001-of-0000N` files must be whole, also without an index."""
    shards: dict[tuple[str, int], set[int]] = {}
    for name in names:
        if match := _SHARD.fullmatch(name):
            key = (match["stem"], int(match["count"]))
            shards.setdefault(key, set()).add(int(match["number"]))
    for (stem, count), numbers in shards.items():
        missing = sorted(set(range(1, count + 1)) - numbers)
        if missing:
            _refuse(path, f"parts {missing[:10]} of {count} of {stem!r} are missing")


def _weight_map(index: Path) -> dict[str, str]:
    """The index's map of tensor name to file name, with plain names only."""
    with ExitStack() as opened:
        descriptor, state = _open_regular(str(index), opened)
        if state.st_size > INDEX_BYTES_MAX:
            _refuse(str(index), f"it has more than {INDEX_BYTES_MAX} bytes")
        raw = os.pread(descriptor, state.st_size, 0)
    try:
        document = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        _refuse(str(index), f"it is not JSON in UTF-8: {str(error)[:200]}")
    mapping = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(mapping, dict) or not mapping:
        _refuse(str(index), "it has no weight_map of tensor names to files")
    for name in mapping.values():
        if not isinstance(name, str) or name != Path(name).name or not name.endswith(SUFFIX):
            _refuse(str(index), f"its weight_map names {str(name)[:100]!r}, not a file beside it")
    return mapping


def _open_regular(path: str, opened: ExitStack) -> tuple[int, os.stat_result]:
    """Descriptor and state of a regular file; a pipe or device is refused, never read."""
    try:
        # O_NONBLOCK: opening a pipe by mistake must not wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        opened.callback(os.close, descriptor)
        state = os.fstat(descriptor)
    except OSError as error:
        _refuse(path, f"it cannot be opened: {error.strerror}")
    if not stat.S_ISREG(state.st_mode):
        _refuse(path, "it is not a regular file")
    return descriptor, state


def _open(path: str, opened: ExitStack) -> SourceFile:
    descriptor, state = _open_regular(path, opened)
    try:
        prefix = os.pread(descriptor, LENGTH_BYTES, 0)
        size = header_bytes(path, prefix, state.st_size)
        raw = os.pread(descriptor, size, LENGTH_BYTES)
    except OSError as error:
        _refuse(path, f"its header cannot be read: {error.strerror}")
    if len(raw) != size:
        _refuse(path, "its header ended early")
    return SourceFile(
        path=path,
        descriptor=descriptor,
        header=parse_header(path, raw, state.st_size),
        size_bytes=state.st_size,
        mark=_mark(state),
    )


def _check_names(path: str, files: tuple[SourceFile, ...], index: dict[str, str] | None) -> None:
    owners: dict[str, str] = {}
    for file in files:
        for entry in file.header.entries:
            other = owners.setdefault(entry.name, file.path)
            if other != file.path:
                _refuse(path, f"tensor {entry.name[:100]!r} is in {other} and in {file.path}")
    if not owners:
        _refuse(path, "it holds no tensor")
    if index is None:
        return
    indexed = {name: str(Path(path) / file) for name, file in index.items()}
    wrong = sorted({name for name, _ in indexed.items() ^ owners.items()})
    if wrong:
        _refuse(path, f"its index and its files disagree about {wrong[:5]}")


def _mark(state: os.stat_result) -> tuple[int, ...]:
    return (
        state.st_dev,
        state.st_ino,
        state.st_size,
        state.st_mtime_ns,
        state.st_ctime_ns,
    )


def _refuse(path: str, why: str) -> NoReturn:
    raise SourceError(
        f"model source {path} cannot be imported", why, "mend the source and import it again"
    )


def _changed(file: SourceFile, why: str) -> NoReturn:
    raise SourceError(
        f"model source {file.path} changed while it was read",
        f"{why}; nothing was published",
        "wait until its writer is done and import it again",
    )
