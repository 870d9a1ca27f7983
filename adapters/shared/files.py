"""Small file primitives relative to an open folder.  Layer: adapters, shared; blocking.

Invariant: everything is addressed by the descriptor of its folder and symbolic links are never
followed below a root, so what is read belongs to the medium whose marker was checked.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from weightctl.controller.errors import UnknownOutcomeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
NEW_FILE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOST_ANSWER = frozenset({errno.EIO, errno.ETIMEDOUT, errno.ESTALE})
_NO_LINKS = frozenset({errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK})
SMALL_BYTES_MAX = 1024 * 1024


@contextmanager
def folder(parent_fd: int, name: str) -> Iterator[int]:
    """Descriptor of a folder under `parent_fd`.  Raises FileNotFoundError, OSError."""
    fd = os.open(name, FOLDER_FLAGS, dir_fd=parent_fd)
    try:
        yield fd
    finally:
        os.close(fd)


def open_or_make_folder(parent_fd: int, name: str, making: Callable[[], None]) -> int:
    """Descriptor of a folder; `making` is called before it is made where it is not there.

    Raises OSError.
    """
    try:
        return os.open(name, FOLDER_FLAGS, dir_fd=parent_fd)
    except FileNotFoundError:
        making()
        with suppress(FileExistsError):
            os.mkdir(name, 0o755, dir_fd=parent_fd)
        return os.open(name, FOLDER_FLAGS, dir_fd=parent_fd)


def make_path(path: Path, *, durable: bool) -> None:
    """Make a folder and those that lead to it.  Raises OSError.

    durable: their names are on the medium then, whoever made them: a folder that another process
    made and did not live to synchronise would be lost with all that is synchronised in it.
    """
    path.mkdir(mode=0o755, parents=True, exist_ok=True)
    path = path.absolute()
    while durable and path.stat().st_dev == path.parent.stat().st_dev and path != path.parent:
        path = path.parent
        with suppress(PermissionError):  # one that we may pass and not read is not of our making
            sync_folder(path)


def sync_folder(path: Path) -> None:
    """Bring the names in a folder to the medium.  Raises OSError."""
    fd = os.open(path, FOLDER_FLAGS & ~os.O_NOFOLLOW)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def locked(folder_fd: int) -> Iterator[None]:
    """Keep others who lock that folder out, as far as its medium has locks."""
    lock_fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder_fd)
    try:
        with suppress(OSError):  # not every shared medium has them
            fcntl.flock(lock_fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock_fd)


def read_small(folder_fd: int, name: str) -> bytes | None:
    """Whole content of a small file; None when it is not there.  Raises OSError."""
    try:
        fd = os.open(name, FILE_FLAGS, dir_fd=folder_fd)
    except FileNotFoundError:
        return None
    try:
        return os.read(fd, SMALL_BYTES_MAX)
    finally:
        os.close(fd)


def write_small(
    folder_fd: int, name: str, content: bytes, *, durable: bool, writer: str = "new"
) -> None:
    """Write or replace a small file as a whole.

    writer: makes the name that it has while it is written; who is not kept out by `locked` needs
    one of its own, or it shows what another has only begun.
    Raises OSError; it may have been replaced then, and only the next sync of the folder tells.
    """
    fresh = f"{name}.{writer}"
    with suppress(FileNotFoundError):
        os.unlink(fresh, dir_fd=folder_fd)
    try:
        fd = os.open(fresh, NEW_FILE_FLAGS, 0o644, dir_fd=folder_fd)
        try:
            write_at(fd, memoryview(content), 0)
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(fresh, name, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
    except FileExistsError:
        raise  # another process's draft
    except OSError:
        with suppress(OSError):
            os.unlink(fresh, dir_fd=folder_fd)
        raise
    if durable:
        os.fsync(folder_fd)


def remove_unwritten(folder_fd: int, writers: str, living: str) -> None:
    """Remove what `write_small` had begun for writers so named, unless they live; best effort.

    writers, living: what the names of all and of the living ones begin with; each writer had a
    name of its own, so nobody else would ever take what a killed one has left.
    """
    for name in os.listdir(folder_fd):
        _, found, rest = name.partition(f".{writers}")
        if found and not (writers + rest).startswith(living):
            with suppress(OSError):
                os.unlink(name, dir_fd=folder_fd)


def rename_in(folder_fd: int, name: str, new_name: str) -> None:
    """Rename within a folder.  UnknownOutcomeError for a lost answer, OSError for a refusal."""
    try:
        os.rename(name, new_name, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
    except OSError as error:
        if error.errno not in _LOST_ANSWER:
            raise
        raise UnknownOutcomeError(
            f"renaming {name!r}", f"{error.strerror}: it may have happened", "observe again"
        ) from error


def open_drawn(folder_fd: int, name: str) -> int:
    """A new file whose name was drawn by chance, so that nobody else has it.  Raises OSError."""
    try:
        return os.open(name, NEW_FILE_FLAGS, 0o644, dir_fd=folder_fd)
    except FileExistsError:  # a file system that was cut off has sent our own request twice
        return os.open(name, NEW_FILE_FLAGS & ~os.O_EXCL, 0o644, dir_fd=folder_fd)


def write_new(folder_fd: int, name: str, content: bytes, *, fresh: str, durable: bool) -> bool:
    """Write a small file as a whole unless the name is taken, by whomever; whether it was written.

    fresh: makes the name that it has while it is written.  Raises OSError.
    """
    draft = f"{name}.{fresh}"
    fd = open_drawn(folder_fd, draft)
    try:
        write_at(fd, memoryview(content), 0)
        if durable:
            os.fsync(fd)
        try:
            os.link(draft, name, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            rename_in(folder_fd, draft, name)  # without links two can write it; the last one stays
    except FileExistsError:
        return False
    finally:
        os.close(fd)
        with suppress(OSError):  # what stays of it is in nobody's way
            os.unlink(draft, dir_fd=folder_fd)
    if durable:
        os.fsync(folder_fd)
    return True


def read_at(fd: int, view: memoryview, offset: int) -> int:
    """Fill `view` from byte `offset` as far as the file goes; the number of bytes read."""
    done = 0
    while done < len(view):
        count = os.preadv(fd, [view[done:]], offset + done)
        if count == 0:
            break
        done += count
    return done


def write_at(fd: int, view: memoryview, offset: int) -> None:
    """Write all of `view` at byte `offset`.  Raises OSError."""
    done = 0
    while done < len(view):
        done += os.pwrite(fd, view[done:], offset + done)
