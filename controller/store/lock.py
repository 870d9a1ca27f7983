"""One writer per state directory: a POSIX record lock on `lock`.  Layer: store; blocking calls.

The kernel owns the truth: it drops the lock when the holding process ends, however it ends, and a
forked worker that outlives its parent does not inherit it.  So a recycled pid or a stale file never
matters; the file's text (pid, host, start time) only helps a person.  The kernel does not keep two
owners inside one process apart, and any close of the file there drops the lock, so a table of the
directories that this process holds comes first.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import struct
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from weightctl.controller.core.refusals import instant
from weightctl.controller.errors import StateDirectoryError, StateDirectoryHeldError

if TYPE_CHECKING:
    from typing import Self

LOCK_NAME = "lock"
_TEXT_BYTES_MAX = 4096
_NOT_READABLE = (ValueError, KeyError, TypeError, OverflowError, RecursionError)
"""What a text that no holder wrote makes of reading it as JSON with the known fields."""
# struct flock on 64-bit Linux: type, whence, start, length, pid.
_FLOCK = struct.Struct("hhqqi4x")

_held: dict[tuple[int, int], Path] = {}
_held_guard = threading.Lock()


class DirectoryLock:
    """Exclusive right to write in `folder`, from `acquire` until `release`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._fd = -1
        self._key = (0, 0)

    def acquire(self, started_ms: int) -> Self:
        """Take the lock and write who holds it; `started_ms` is wall time, for people.

        Raises StateDirectoryHeldError with the holder's pid, StateDirectoryError when the directory
        cannot be used.
        """
        try:
            self._claim_in_process()
            self._claim_in_kernel()
            self._describe(started_ms)
        except OSError as error:
            self.release()
            raise _unusable(self._folder, error) from error
        except BaseException:
            self.release()
            raise
        return self

    def release(self) -> None:
        """Give the directory back; harmless when it is not held."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
        with _held_guard:
            if _held.get(self._key) is self._folder:
                del _held[self._key]

    def _claim_in_process(self) -> None:
        _make_durable(self._folder)
        status = self._folder.stat()
        with _held_guard:
            key = (status.st_dev, status.st_ino)
            if key in _held:
                raise _held_by(os.getpid(), self._folder, "")
            _held[key] = self._folder
            self._key = key

    def _claim_in_kernel(self) -> None:
        path = self._folder / LOCK_NAME
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._fd = fd
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in {errno.EACCES, errno.EAGAIN}:
                    raise
                pid, text = _holder(fd)
                if pid:
                    raise _held_by(pid, self._folder, text) from None
                os.close(fd)  # it ended between the two calls
                self._fd = -1
                continue
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(fd), path.stat()):
                    return
            os.close(fd)  # the file was replaced: a lock on an unlinked file keeps nobody out
            self._fd = -1

    def _describe(self, started_ms: int) -> None:
        who = {"pid": os.getpid(), "host": socket.gethostname(), "startedMs": started_ms}
        text = json.dumps(who).encode() + b"\n"
        os.pwrite(self._fd, text, 0)
        os.ftruncate(self._fd, len(text))


def _make_durable(folder: Path) -> None:
    """Make the folder; its name and those that lead to it are on the medium then.

    Without that a power loss could take the whole directory, with every entry that was synchronised
    in it.  Who made it before need not have lived to see to that.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = folder.absolute()
    while folder.stat().st_dev == folder.parent.stat().st_dev and folder != folder.parent:
        folder = folder.parent
        with contextlib.suppress(PermissionError):  # one that we may only pass is not of our making
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)


def holder_of(folder: Path) -> int:
    """The pid of the process that holds the directory now, 0 when none does; changes nothing."""
    try:
        status = folder.stat()
        with _held_guard:
            if (status.st_dev, status.st_ino) in _held:  # our own close below would drop the lock
                return os.getpid()
        fd = os.open(folder / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        return _holder(fd)[0]
    finally:
        os.close(fd)


def _holder(fd: int) -> tuple[int, str]:
    """The pid that the kernel names (0: nobody now) and what the holder wrote about itself."""
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    text = os.pread(fd, _TEXT_BYTES_MAX, 0).decode("utf-8", "replace").strip()
    if kind == fcntl.F_UNLCK:
        return 0, text
    if pid <= 0:  # held from another host, where only the text can name the pid
        pid = _named_pid(text)
    return pid or -1, text


def _named_pid(text: str) -> int:
    """The pid that the holder wrote down, -1 where that is not readable."""
    try:
        return int(json.loads(text)["pid"])
    except _NOT_READABLE:
        return -1


def _held_by(pid: int, folder: Path, detail: str) -> StateDirectoryHeldError:
    return StateDirectoryHeldError(
        pid,
        f"state directory {folder} is in use",
        f"StateDirectoryHeld: process {pid} holds it{_told(detail)}",
        f"stop process {pid}, or give another directory; commands that only ask work beside it",
    )


def _told(text: str) -> str:
    """What the holder wrote about itself, in words; nothing where it is not readable."""
    try:
        who = json.loads(text)
        return f" on {who['host']} since {instant(int(who['startedMs']))}"
    except _NOT_READABLE:
        return ""


def _unusable(folder: Path, error: OSError) -> StateDirectoryError:
    return StateDirectoryError(
        f"state directory {folder} cannot be used",
        f"StateDirectory: {error.strerror} ({errno.errorcode.get(error.errno or 0, '?')})",
        "give a directory that this user may write to, with free space",
    )
