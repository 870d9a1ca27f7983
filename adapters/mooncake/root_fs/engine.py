"""The files of DISK replicas, in a worker process.  Layer: a tier; blocking.

A Mooncake client writes the file in place and never syncs it; the Master forgets it when it is
restarted, and leaves it when its object is removed.  So a file is named by its stamp: size, inode
and time of its last change.  While an object is put anew its right file waits beside, under a name
that Mooncake never uses, with the same stamp.  A sign in the folder of the cluster names the store.
Invariants: a file that is not found is called absent only where the sign shows that the medium is
mounted; in another store's folder nothing is touched.
"""

from __future__ import annotations

import errno
import hashlib
import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from weightctl.adapters.shared.files import FILE_FLAGS, make_path, read_at, sync_folder, write_at
from weightctl.adapters.shared.ownership import is_foreign, refuse_foreign
from weightctl.adapters.shared.translate import error_from_os
from weightctl.controller.errors import TransientError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Mooncake puts no colon into the name of a file.
KEPT = ":kept"
_DRAFT = ":draft"
_BAD = ":bad"
SIGN = "weightctl-was-here"
_MODE = 0o644


class FileEngine:
    """Calls on files by the paths that the Master tells; it holds one draft at a time."""

    def __init__(self, buffer: memoryview, *, holder: str) -> None:
        self._buffer = buffer
        self._holder = holder
        self._draft_fd = -1

    def look(self, paths: list[str]) -> list[tuple[str, str]]:
        """(stamp of the file, stamp of the one kept beside) for each path; empty for none.

        Raises TransientError when one is missing and the medium may be what is missing,
        ForeignMediumError when the folder is another store's.
        """
        signs: dict[Path, bool] = {}
        found = []
        with _told("the files below root_fs_dir"):
            for path in paths:
                sign = _sign_of(path)
                if sign not in signs:
                    signs[sign] = self._is_signed(sign)
                main, kept = _stamp(path), _stamp(path + KEPT)
                if not main and not kept and not signs[sign]:
                    raise _may_be_away(path)
                found.append((main, kept))
        return found

    def claim(self, path: str) -> None:
        """Make the folder this store's, unless it is another's.  Raises ForeignMediumError."""
        with _told(path):
            sign = _sign_of(path)
            if not self._is_signed(sign):
                self._sign(sign, over=False)
                self._is_signed(sign)  # another store may have been quicker

    def adopt(self, path: str) -> str:
        """Make the folder this store's; whose it was, empty when it was not another's."""
        with _told(path):
            sign = _sign_of(path)
            owner = _owner_of(sign) or ""
            if owner != self._holder:
                self._sign(sign, over=True)
            return owner if is_foreign(owner, self._holder) else ""

    def _is_signed(self, sign: Path) -> bool:
        owner = _owner_of(sign)
        refuse_foreign(
            f"the folder {sign.parent}",
            owner or "",
            self._holder,
            instead="give each Master a `--cluster_id` or a `--root_fs_dir` of its own",
            section="in [mooncake] for one start",
        )
        return owner is not None

    def _sign(self, sign: Path, *, over: bool) -> None:
        """Put the holder into the sign, as a whole; over one that is there only where told to."""
        draft = sign.with_name(f"{SIGN}.{self._holder}.{os.getpid()}")
        draft.write_text(self._holder, encoding="utf-8")
        with _opened(str(draft)) as fd:
            os.fsync(fd)
        if over or not _linked(draft, sign):
            draft.rename(sign)
        sync_folder(sign.parent)

    def seal(self, path: str) -> tuple[str, bytes]:
        """Bring a file and its name to the medium, and read it back; (stamp, SHA-256).

        Raises TransientError when it is not there or changed meanwhile.
        """
        self.claim(path)
        with _told(path), _opened(path) as fd:
            os.fsync(fd)
            make_path(Path(path).parent, durable=True)
            before = _stamp_of(os.fstat(fd))
            digest = self._digest(fd)
            if _stamp_of(os.fstat(fd)) != before or before not in (_stamp(path), ""):
                raise TransientError(path, "it changed while it was read", "it is read again")
            return before, digest

    def digest(self, path: str, stamp: str) -> bytes:
        """SHA-256 of the file with that stamp, in its place or kept beside."""
        with _told(path), _with_stamp(path, stamp) as fd:
            os.fsync(fd)
            return self._digest(fd)

    def read(self, path: str, stamp: str, offset: int, size_bytes: int) -> None:
        """Fill the buffer from the file with that stamp."""
        with _told(path), _with_stamp(path, stamp) as fd:
            if read_at(fd, self._buffer[:size_bytes], offset) != size_bytes:
                raise TransientError(path, f"it ends before byte {offset + size_bytes}")

    # --- changing ---

    def keep(self, path: str, stamp: str) -> None:
        """Move the file with that stamp out of Mooncake's way, which would write into it.

        Raises TransientError when there is none.
        """
        with _told(path):
            if _stamp(path) == stamp:
                Path(path).rename(path + KEPT)
                sync_folder(Path(path).parent)
            elif _stamp(path + KEPT) != stamp:
                raise TransientError(path, "it is not the file that was read", "verify it")

    def let_go(self, path: str) -> None:
        """Remove what was kept beside a file that is right now."""
        with _told(path), suppress(FileNotFoundError):
            Path(path + KEPT).unlink()

    def set_aside(self, path: str, stamp: str) -> None:
        """Take a file out of everybody's sight, until its object is removed."""
        with _told(path):
            for name in (path, path + KEPT):
                if _stamp(name) == stamp:
                    Path(name).rename(path + _BAD)
                    sync_folder(Path(path).parent)
                    return
        raise TransientError(path, "it is not the file that was seen", "it is looked again")

    def asides(self, paths: list[str]) -> list[str]:
        """Stamp of what was set aside at each path; empty for nothing."""
        with _told("the files below root_fs_dir"):
            return [_stamp(path + _BAD) for path in paths]

    def remove_aside(self, path: str) -> None:
        """Remove what was set aside."""
        with _told(path), suppress(FileNotFoundError):
            Path(path + _BAD).unlink()
            sync_folder(Path(path).parent)

    def remove(self, path: str) -> None:
        """Remove everything under that name.

        Raises TransientError where the medium may be away, ForeignMediumError.
        """
        with _told(path):
            if not self._is_signed(_sign_of(path)):
                raise _may_be_away(path)
            gone = 0
            for name in (path, path + KEPT, path + _DRAFT, path + _BAD):
                with suppress(FileNotFoundError):
                    Path(name).unlink()
                    gone += 1
            if gone:
                sync_folder(Path(path).parent)

    def begin(self, path: str) -> None:
        """Begin a file beside its place."""
        self.end()
        with _told(path):
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            self._draft_fd = os.open(path + _DRAFT, flags, _MODE)

    def write(self, path: str, offset: int, size_bytes: int) -> None:
        """Write the first bytes of the buffer into it."""
        with _told(path):
            write_at(self._draft_fd, self._buffer[:size_bytes], offset)

    def publish(self, path: str) -> None:
        """Put it in its place."""
        with _told(path):
            os.fsync(self._draft_fd)
            Path(path + _DRAFT).rename(path)
        self.end()

    def end(self) -> None:
        """Forget what was begun."""
        fd, self._draft_fd = self._draft_fd, -1
        if fd >= 0:
            os.close(fd)

    def _digest(self, fd: int) -> bytes:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)  # so that reading is proof
        digest, offset = hashlib.sha256(), 0
        while got := read_at(fd, self._buffer, offset):
            digest.update(self._buffer[:got])
            offset += got
        return digest.digest()


def size_of_stamp(stamp: str) -> int:
    """Size in bytes of the file that has it."""
    return int(stamp.partition(".")[0])


def _stamp_of(found: os.stat_result) -> str:
    return f"{found.st_size}.{found.st_ino}.{found.st_mtime_ns}"


def _stamp(path: str) -> str:
    try:
        return _stamp_of(os.lstat(path))
    except (FileNotFoundError, NotADirectoryError):
        return ""


def _sign_of(path: str) -> Path:
    """In the cluster's folder: two levels above the folder of any file."""
    return Path(path).parents[2] / SIGN


def _linked(draft: Path, sign: Path) -> bool:
    """Give a file that name unless it is taken; False where the file system has no links."""
    try:
        os.link(draft, sign)
    except FileExistsError:
        pass
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        return False
    draft.unlink()
    return True


def _owner_of(sign: Path) -> str | None:
    """The store that the sign names; None where there is no sign."""
    try:
        return sign.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None


def _may_be_away(path: str) -> TransientError:
    folder = _sign_of(path).parent
    return TransientError(
        f"the folder {folder}",
        f"neither {path} nor {SIGN} is in it: what Mooncake keeps below root_fs_dir may not be"
        " mounted on this host",
        "mount it here under the same path as on the Mooncake hosts",
    )


@contextmanager
def _opened(path: str) -> Iterator[int]:
    fd = os.open(path, FILE_FLAGS)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _with_stamp(path: str, stamp: str) -> Iterator[int]:
    """The file with that stamp, in its place or kept beside, open."""
    for name in (path, path + KEPT):
        if _stamp(name) == stamp:
            with _opened(name) as fd:
                if _stamp_of(os.fstat(fd)) == stamp:
                    yield fd
                    return
    raise TransientError(path, "the file that was seen is not there any more", "it is looked again")


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Raise the loop's errors for those of system calls."""
    try:
        yield
    except OSError as error:
        raise error_from_os(error, what) from error
