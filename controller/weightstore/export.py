"""Safetensors files as a destination.  Layer: weightstore.

Owns the written files from their temporary names to their final ones.  Space is reserved and
headers are written before the first tensor; a name appears only when its file is whole and flushed;
what is given up is removed.  A file of somebody else is never touched: where a name is taken by
other content, the load is refused unless its caller has asked to replace it.  All calls block; they
run in worker threads.
"""

from __future__ import annotations

import errno
import filecmp
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from weightctl.controller.errors import TargetError, TargetExistsError
from weightctl.controller.store.drafts import draft_of, open_draft, sweep_drafts
from weightctl.controller.weightstore.layout import SCALAR
from weightctl.controller.weightstore.safetensors import ITEM_BYTES, TensorEntry, encode_header
from weightctl.controller.weightstore.source import INDEX_SUFFIX, SUFFIX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weightctl.controller.core.ranges import Target
    from weightctl.controller.weightstore.targets import IntoFolder

STEM = "model"
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})
"""What a file system without hard links answers."""


@dataclass(slots=True, kw_only=True)
class _File:
    name: str
    entries: list[TensorEntry]
    descriptor: int = -1

    @property
    def nbytes(self) -> int:
        return self.entries[-1].stop if self.entries else 0


class SafetensorsFiles:
    """One or more safetensors files being written; a `Destination` of one space a file."""

    def __init__(self, into: IntoFolder, targets: Sequence[Target], token: str) -> None:
        place = Path(into.path)
        single = place.name.endswith(SUFFIX)
        self._folder = place.parent if single else place
        self._alone = not single
        self._replace = into.replace
        self._token = token
        self._metadata: Mapping[str, str] = into.metadata
        self._index = -1
        """Descriptor of the index, whose lock is held until it has its name."""
        self._files, self._places = _spread(targets, None if single else into.file_bytes)
        if single:
            self._files[0].name = place.name

    def open(self) -> None:
        """Create the files under temporary names, reserve their space, write the headers."""
        with _translated(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            self._refuse_mixture()
            bases = []
            for file in self._files:
                header = encode_header(file.entries, self._metadata)
                self._refuse_other(file.name, len(header) + file.nbytes)
                sweep_drafts(self._folder / file.name)
                file.descriptor = open_draft(self._temporary(file.name))
                os.posix_fallocate(file.descriptor, 0, len(header) + file.nbytes)
                _write_fully(file.descriptor, memoryview(header), 0)
                bases.append(len(header))
        self._places = [(space, bases[space] + start) for space, start in self._places]

    def locate(self, target: int) -> tuple[int, int]:
        """(file number, byte in the file) of a target."""
        return self._places[target]

    def window(self, *_: int) -> memoryview | None:
        """None: a file is written to, not mapped."""
        return None

    def write(self, space: int, position: int, data: memoryview) -> None:
        """Write into file number `space`.  Raises TargetError."""
        with _translated(self._folder):
            _write_fully(self._files[space].descriptor, data, position)

    def publish(self) -> tuple[str, ...]:
        """Flush everything, then give the files their names; returns their paths.

        Raises TargetExistsError, before any name is given, where one is taken by other content.
        """
        names = [file.name for file in self._files]
        with _translated(self._folder):
            if len(self._files) > 1:
                names.append(self._write_index())
            for file in self._files:
                os.fsync(file.descriptor)
            wanted = [name for name in names if not self._is_there(name)]
            for name in wanted:
                self._give_name(name)
            _sync_folder(self._folder)
        self.close()
        return tuple(str(self._folder / name) for name in names)

    def close(self) -> None:
        """Close the descriptors and remove whatever still has a temporary name."""
        for file in self._files:
            if file.descriptor >= 0:
                os.close(file.descriptor)
                file.descriptor = -1
            with suppress(OSError, ValueError):  # ValueError: no file can have that name
                self._temporary(file.name).unlink(missing_ok=True)
        if self._index >= 0:
            os.close(self._index)
            self._index = -1
        with suppress(OSError, ValueError):
            self._temporary(STEM + INDEX_SUFFIX).unlink(missing_ok=True)

    def _temporary(self, name: str) -> Path:
        return draft_of(self._folder / name, self._token)

    def _refuse_mixture(self) -> None:
        """Files of another model beside ours would be loaded as parts of it."""
        ours = {file.name for file in self._files}
        for name in sorted(ours | {STEM + INDEX_SUFFIX} if self._alone else ours):
            if (self._folder / name).is_dir():  # or else publishing would end half-way
                raise _bad(self._folder, f"{name!r} is a folder")
        ours |= {STEM + INDEX_SUFFIX} if len(ours) > 1 else set()
        for entry in sorted(self._folder.iterdir()) if self._alone else ():
            if entry.name.endswith((SUFFIX, INDEX_SUFFIX)) and entry.name not in ours:
                raise _bad(self._folder, f"it holds {entry.name!r} of another model")

    def _refuse_other(self, name: str, size_bytes: int) -> None:
        """A file of another size cannot be what will be written: say so before anything moves."""
        path = self._folder / name
        if self._replace or not os.path.lexists(path):
            return
        if not path.is_file() or path.stat().st_size != size_bytes:
            raise _taken(self._folder, name)

    def _is_there(self, name: str) -> bool:
        """Whether the name holds just what was written.  Raises TargetExistsError for others."""
        path = self._folder / name
        if self._replace or not os.path.lexists(path):
            return False
        if path.is_file() and filecmp.cmp(self._temporary(name), path, shallow=False):
            return True
        raise _taken(self._folder, name)

    def _give_name(self, name: str) -> None:
        """A link never replaces what came in between; `close` takes the temporary name away."""
        draft, path = self._temporary(name), self._folder / name
        if self._replace:
            draft.replace(path)
            return
        try:
            path.hardlink_to(draft)
        except FileExistsError:
            raise _taken(self._folder, name) from None
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            draft.rename(path)

    def _write_index(self) -> str:
        weight_map = {entry.name: file.name for file in self._files for entry in file.entries}
        total = sum(file.nbytes for file in self._files)
        document = {"metadata": {"total_size": total}, "weight_map": weight_map}
        sweep_drafts(self._folder / (STEM + INDEX_SUFFIX))
        self._index = open_draft(self._temporary(STEM + INDEX_SUFFIX))
        _write_fully(self._index, memoryview(json.dumps(document, indent=2).encode()), 0)
        os.fsync(self._index)
        return STEM + INDEX_SUFFIX


def _spread(
    targets: Sequence[Target], file_bytes: int | None
) -> tuple[list[_File], list[tuple[int, int]]]:
    """Files of about `file_bytes` each, and (file, byte in its data section) of each target."""
    files = [_File(name="", entries=[])]
    places: list[tuple[int, int]] = []
    for target in targets:
        start = files[-1].nbytes
        if file_bytes is not None and start and start + target.nbytes > file_bytes:
            files.append(_File(name="", entries=[]))
            start = 0
        files[-1].entries.append(_entry(target, start))
        places.append((len(files) - 1, start))
    for number, file in enumerate(files, 1):
        part = "" if len(files) == 1 else f"-{number:05d}-of-{len(files):05d}"
        file.name = f"{STEM}{part}{SUFFIX}"
    return files, places


def _entry(target: Target, start: int) -> TensorEntry:
    tensor = target.tensor
    if ITEM_BYTES.get(tensor.dtype) != tensor.itemsize:
        raise TargetError(
            f"tensor {tensor.tensor_id!r} cannot be written as safetensors",
            f"the format has no {tensor.itemsize}-byte type {tensor.dtype!r}",
            "load it into buffers or arrays",
        )
    shape = () if tensor.layout_fingerprint == SCALAR else target.shape
    return TensorEntry(
        name=tensor.tensor_id,
        dtype=tensor.dtype,
        shape=shape,
        start=start,
        stop=start + target.nbytes,
    )


def _write_fully(descriptor: int, data: memoryview, position: int) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(descriptor, data[done:], position + done)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _translated(folder: Path) -> Iterator[None]:
    try:
        yield
    except ValueError as error:  # a path with a NUL, a name that is no UTF-8
        raise _bad(folder, str(error)) from error
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        raise _bad(folder, "it is full" if full else error.strerror or str(error)) from error


def _taken(folder: Path, name: str) -> TargetExistsError:
    return TargetExistsError(
        f"{folder / name} is not replaced",
        f"{TargetExistsError.reason}: it is there already and holds something else",
        "choose another folder or FILE.safetensors; --force (`replace` in Python) replaces it",
    )


def _bad(folder: Path, why: str) -> TargetError:
    return TargetError(
        f"cannot write safetensors into {folder}",
        why,
        "choose an empty folder with enough room that you may write to; nothing was left there",
    )
