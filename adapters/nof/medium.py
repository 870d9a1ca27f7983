"""Raw, block-wise access to a device or file of fixed size.  Layer: nof tier.

Owns the descriptor, byte-range locks, direct I/O and flushing; every byte the engine moves passes
here, so that tests can put a recording or failing medium in its place.  Invariant: a read sees the
medium and never an older page of the cache: direct I/O where it works, dropped pages elsewhere.

Locks belong to an open descriptor: the kernel lets one go when the last call that uses the
descriptor has ended and never before.  A lock that can be taken is therefore proof that its former
holder, killed while it hung inside a write, will write no more.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
import struct
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from weightctl.adapters.nof.layout import (
    BLOCK_BYTES,
    HEADER_BYTES,
    SLOT_OFFSETS,
    aligned_buffer,
    slot_version,
)
from weightctl.controller.errors import BusyError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_BUFFERED_DIRTY_BYTES_MAX = 64 * 1024 * 1024
"""Flush after this much without direct I/O, so that no single flush outlasts a deadline."""
_BLKGETSIZE64 = 0x80081272
_OFD_GETLK, _OFD_SETLK = 36, 37
"""F_OFD_GETLK and F_OFD_SETLK of Linux, which the fcntl module does not name on every version."""
_FLOCK = struct.Struct("@hhqqi0q")
"""struct flock: kind, whence, offset, size, pid (which is 0 for locks of a descriptor)."""


class Medium(Protocol):
    """Fixed-size storage; offsets and lengths are multiples of `BLOCK_BYTES`.  Raises OSError."""

    @property
    def size_bytes(self) -> int:
        """Size now; smaller than the superblock says when it was truncated."""

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill the buffer from the medium itself."""

    def write(self, offset: int, buffer: memoryview) -> None:
        """Write the buffer; durable only after the next `sync`."""

    def sync(self) -> None:
        """Make every write so far durable."""

    def lock(self, offset: int, size_bytes: int) -> bool:
        """Take the exclusive lock of these bytes; False while another descriptor has part of it."""

    def unlock(self, offset: int, size_bytes: int) -> None:
        """Let these bytes go."""

    def locked(self, offset: int, size_bytes: int) -> tuple[int, int] | None:
        """(offset, size) of one lock that another descriptor has on these bytes, or None."""

    def replaced(self) -> str:
        """Why this is no longer what the path names, or an empty text."""

    def close(self) -> None:
        """Release it, without a flush."""


def is_aligned(buffer: memoryview) -> bool:
    """Whether direct I/O may use the buffer as it stands."""
    if buffer.readonly or len(buffer) % BLOCK_BYTES:
        return False
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer)) % BLOCK_BYTES == 0


class FileMedium:
    """A block device or plain file, opened by `open_medium`."""

    def __init__(self, path: str, descriptor: int, *, direct: bool) -> None:
        self._path = path
        self._fd = descriptor
        self._direct = direct
        self._dirty_bytes = 0
        self.node = os.fstat(descriptor)
        """What was opened."""

    @property
    def direct(self) -> bool:
        """Whether direct I/O is in use."""
        return self._direct

    @property
    def size_bytes(self) -> int:
        """Size now, as the kernel gives it."""
        if stat.S_ISBLK(self.node.st_mode):
            raw = fcntl.ioctl(self._fd, _BLKGETSIZE64, bytes(8))
            return int.from_bytes(raw, "little")
        return os.fstat(self._fd).st_size

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill the buffer from the medium itself."""
        if not self._direct:
            os.posix_fadvise(self._fd, offset, len(buffer), os.POSIX_FADV_DONTNEED)
        filled = 0
        while filled < len(buffer):
            count = os.preadv(self._fd, [buffer[filled:]], offset + filled)
            if count == 0:
                raise OSError(errno.EIO, f"{self._path} ends at byte {offset + filled}")
            filled += count

    def write(self, offset: int, buffer: memoryview) -> None:
        """Write the buffer; durable only after the next `sync`."""
        written = 0
        while written < len(buffer):
            written += os.pwrite(self._fd, buffer[written:], offset + written)
        self._dirty_bytes += written
        if not self._direct and self._dirty_bytes >= _BUFFERED_DIRTY_BYTES_MAX:
            self.sync()

    def sync(self) -> None:
        """Make every write so far durable."""
        os.fdatasync(self._fd)
        self._dirty_bytes = 0

    def lock(self, offset: int, size_bytes: int) -> bool:
        """Take the exclusive lock of these bytes; False while another descriptor has part of it."""
        try:
            fcntl.fcntl(self._fd, _OFD_SETLK, _range(fcntl.F_WRLCK, offset, size_bytes))
        except OSError as error:
            if error.errno in {errno.EAGAIN, errno.EACCES}:
                return False
            raise
        return True

    def unlock(self, offset: int, size_bytes: int) -> None:
        """Let these bytes go."""
        fcntl.fcntl(self._fd, _OFD_SETLK, _range(fcntl.F_UNLCK, offset, size_bytes))

    def locked(self, offset: int, size_bytes: int) -> tuple[int, int] | None:
        """(offset, size) of one lock that another descriptor has on these bytes, or None."""
        raw = fcntl.fcntl(self._fd, _OFD_GETLK, _range(fcntl.F_WRLCK, offset, size_bytes))
        kind, _, start, size, _ = _FLOCK.unpack(raw)
        if kind == fcntl.F_UNLCK:
            return None
        return start, size or sys.maxsize - start

    def replaced(self) -> str:
        """Why this is no longer what the path names, or an empty text."""
        try:
            node = Path(self._path).stat()
        except FileNotFoundError:
            return f"{self._path} is gone"
        mine = (self.node.st_dev, self.node.st_ino, self.node.st_rdev)
        if (node.st_dev, node.st_ino, node.st_rdev) != mine:
            return f"{self._path} names another device or file than the one that was opened"
        return ""

    def close(self) -> None:
        """Release it, without a flush."""
        descriptor, self._fd = self._fd, -1
        if descriptor >= 0:
            os.close(descriptor)


def open_medium(path: str, *, writable: bool, exclusive: bool = False) -> FileMedium:
    """Open what `path` names; `exclusive` is for the one writer of the index.

    An exclusive block device is one that the kernel refuses to mount or put into an array, and
    that is not mounted now.  Raises OSError as open does, BusyError when another has it,
    ConfigError for what is neither device nor plain file.
    """
    mode = Path(path).stat().st_mode
    if not stat.S_ISBLK(mode) and not stat.S_ISREG(mode):
        raise ConfigError(
            f"{path} cannot be a nof device",
            "it is neither a block device nor a plain file",
            "name an NVMe namespace such as /dev/nvme1n1, or a file of fixed size",
        )
    flags = os.O_CLOEXEC | (os.O_RDWR if writable else os.O_RDONLY)
    if exclusive and stat.S_ISBLK(mode):
        flags |= os.O_EXCL
    descriptor, direct = _open_direct(path, flags)
    medium = FileMedium(path, descriptor, direct=direct)
    if exclusive and not medium.lock(0, HEADER_BYTES):
        medium.close()
        raise _held(path, "another process writes to it")
    return medium


def _open_direct(path: str, flags: int) -> tuple[int, bool]:
    try:
        descriptor = os.open(path, flags | os.O_DIRECT)
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise _held(path, "it is mounted, or opened exclusively by another process") from error
        if error.errno != errno.EINVAL:
            raise
        return os.open(path, flags), False
    try:
        os.preadv(descriptor, [aligned_buffer(BLOCK_BYTES)], 0)
    except OSError as error:
        os.close(descriptor)
        if error.errno != errno.EINVAL:
            raise
        return os.open(path, flags), False
    return descriptor, True


def _held(path: str, why: str) -> BusyError:
    return BusyError(None, f"{path} cannot be opened for writing", why, "stop the other user of it")


def _range(kind: int, offset: int, size_bytes: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, offset, size_bytes, 0)


@contextmanager
def new_file(path: str, size_bytes: int) -> Iterator[FileMedium]:
    """A zeroed plain file of that size, at `path` only once the caller has filled it.

    Until then it has another name, so that a crash leaves nothing that looks like a device, and
    what it leaves is used up by the next attempt.  Raises OSError, BusyError for two at a time,
    ConfigError where that name is taken by something else.
    """
    draft = f"{path}.new"
    with suppress(FileNotFoundError):
        _clear_the_way(draft, size_bytes)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(draft, flags, 0o600)
    medium = FileMedium(draft, descriptor, direct=False)
    try:
        if not medium.lock(0, HEADER_BYTES):
            raise _held(draft, "another process creates it")
        os.ftruncate(descriptor, 0)
        os.posix_fallocate(descriptor, 0, size_bytes)
        os.fsync(descriptor)  # whatever is torn from here on lies in a draft of this size
        yield medium
        os.fsync(descriptor)
        os.link(draft, path)
        Path(draft).unlink()
        _sync_folder(path)
    finally:
        medium.close()


def _clear_the_way(draft: str, size_bytes: int) -> None:
    """Leave what an earlier attempt left, and nothing else, under the name.  Raises ConfigError."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    leftover = FileMedium(draft, os.open(draft, flags), direct=False)
    try:
        node = leftover.node
        if not stat.S_ISREG(node.st_mode) or not _is_leftover(leftover, size_bytes):
            raise ConfigError(
                f"{draft} is in the way of a new nof device",
                "it was not left by an earlier attempt to make one",
                "move it away, or choose another path for the device",
            )
        if node.st_nlink > 1:
            Path(draft).unlink()  # killed after the link: the device itself, by its second name
    finally:
        leftover.close()


def _is_leftover(medium: FileMedium, size_bytes: int) -> bool:
    """Whether it is what an attempt leaves: empty, zero, with our superblock, or a torn one.

    A power loss may leave any sectors of a superblock; then nothing but its two blocks is not zero,
    in a file of the very size that is wanted.
    """
    if medium.size_bytes < BLOCK_BYTES:
        return medium.size_bytes == 0
    first = aligned_buffer(BLOCK_BYTES)
    medium.read_into(0, first)
    if slot_version(bytes(first)) is not None:
        return True
    return is_blank(medium, SLOT_OFFSETS if medium.size_bytes == size_bytes else ())


def _sync_folder(path: str) -> None:
    folder = os.open(Path(path).absolute().parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def is_blank(medium: Medium, but: Sequence[int] = ()) -> bool:
    """Whether the first and the last MiB are zero: nothing known keeps its mark elsewhere.

    but: offsets of blocks in the first MiB that may hold anything.  Raises OSError.
    """
    buffer = aligned_buffer(min(HEADER_BYTES, medium.size_bytes // BLOCK_BYTES * BLOCK_BYTES))
    last = (medium.size_bytes - len(buffer)) // BLOCK_BYTES * BLOCK_BYTES
    for offset in (0, last):
        medium.read_into(offset, buffer)
        for start in but if offset == 0 else ():
            buffer[start : start + BLOCK_BYTES] = bytes(BLOCK_BYTES)
        if any(buffer.cast("Q")):
            return False
    return True
