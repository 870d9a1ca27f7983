"""A replica that is being written, and how others see whether its writer lives.

Layer: adapters, shared; blocking.  A writer holds an exclusive flock on its `.partial` file for as
long as the file has that name, so a killed writer's leftover is known by its free lock, at once and
from any process.  Invariant: a leftover is removed only while its lock is held, and a writer that
lost that race notices, because its file has no name any more.  Where a medium has no locks nothing
is known of a writer here, and `Root.foreign` decides before these functions are asked.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weightctl.adapters.shared.files import FILE_FLAGS, open_drawn, write_at
from weightctl.adapters.shared.layout import PARTIAL
from weightctl.controller.errors import TransientError
from weightctl.controller.ports import PIECE_BYTES

if TYPE_CHECKING:
    from weightctl.adapters.shared.layout import StoredName
    from weightctl.adapters.shared.room import Reservation
    from weightctl.controller.core.observation import Member

NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})


@dataclass(slots=True, kw_only=True)
class Draft:
    """An open `.partial` file.  Its owner publishes or discards it, which closes it."""

    member: Member
    group: str
    """Encoded group id."""
    name: StoredName
    """Name that it will have when complete."""
    group_fd: int
    fd: int
    reservation: Reservation

    @property
    def partial_name(self) -> str:
        """Name that it has now."""
        return str(self.name.with_suffix(PARTIAL))

    def write(self, view: memoryview, offset: int) -> None:
        """Write all of `view` at byte `offset`.  Raises OSError."""
        write_at(self.fd, view, offset)
        self.reservation.written_bytes = max(self.reservation.written_bytes, offset + len(view))

    def write_through(self, view: memoryview, offset: int) -> None:
        """As `write`, and let the medium begin with each piece, so that sealing has little left.

        The advice that the pages are not needed starts their writing back without waiting for it.
        """
        self.write(view, offset)
        end = offset + len(view)
        if end % PIECE_BYTES == 0:
            os.posix_fadvise(self.fd, end - PIECE_BYTES, PIECE_BYTES, os.POSIX_FADV_DONTNEED)

    def check_still_there(self) -> None:
        """Raises TransientError when somebody removed the file."""
        if os.fstat(self.fd).st_nlink == 0:
            raise TransientError(
                f"the replica of {self.member.key!r} that was being written is gone",
                "somebody removed its file",
                "it is written again",
            )

    def close(self) -> None:
        """Close both descriptors; frees the lock.  Never raises.

        A distributed file system may tell of a lack of room only when a file is closed.  What is
        published was synchronised before, and what is discarded need not be written.
        """
        for fd in (self.fd, self.group_fd):
            with suppress(OSError):  # Linux has let the descriptor go even then
                os.close(fd)


def create_partial(group_fd: int, name: str) -> int:
    """A new, locked partial file.  Raises OSError; TransientError when a sweep took it away."""
    fd = open_drawn(group_fd, name)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
        if os.fstat(fd).st_nlink == 0:
            raise TransientError(f"{name!r} was removed as a leftover", "a race", "try again")
    except BaseException:
        os.close(fd)
        with suppress(OSError):
            os.unlink(name, dir_fd=group_fd)
        raise
    return fd


def is_live(group_fd: int, name: str) -> bool:
    """Whether a living writer holds the partial file; True when that cannot be known."""
    try:
        fd = os.open(name, FILE_FLAGS, dir_fd=group_fd)
    except FileNotFoundError:
        return True  # published or removed since it was listed: somebody is at work
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in NO_LOCKS  # without locks the caller has other means to know
    else:
        return False
    finally:
        os.close(fd)


def remove_leftover(group_fd: int, name: str) -> int | None:
    """Remove a partial file whose writer is dead; its size, or None where the writer lives."""
    try:
        fd = os.open(name, FILE_FLAGS | os.O_RDWR, dir_fd=group_fd)  # NFS locks need write access
    except FileNotFoundError:
        return 0
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
        os.unlink(name, dir_fd=group_fd)  # instance names are never reused, so it is this file
        return os.fstat(fd).st_size
    except FileNotFoundError:
        return 0
    except BlockingIOError:
        return None
    finally:
        os.close(fd)
