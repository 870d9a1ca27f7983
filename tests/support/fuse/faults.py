"""Which request of a `Disk` fails, and how.  Plain values, for both sides of the mount."""

from dataclasses import dataclass
from enum import Enum

from tests.support.fuse.wire import Op

READING = frozenset({Op.LOOKUP, Op.GETATTR, Op.OPEN, Op.READ, Op.OPENDIR, Op.READDIR, Op.STATFS})
CHANGING = frozenset(
    {Op.SETATTR, Op.MKNOD, Op.MKDIR, Op.UNLINK, Op.RMDIR, Op.RENAME, Op.RENAME2, Op.LINK}
    | {Op.WRITE, Op.FSYNC, Op.FSYNCDIR, Op.CREATE, Op.FALLOCATE}
)
ALLOCATING = frozenset({Op.MKNOD, Op.MKDIR, Op.LINK, Op.WRITE, Op.CREATE, Op.FALLOCATE})


class How(Enum):
    """What becomes of a request that a fault meets."""

    REFUSED = "refused"
    """Nothing is done; an error."""
    LATE = "late"
    """It is done; an error all the same."""
    SHORT = "short"
    """Half of a write is done, and that is said."""
    TORN = "torn"
    """Half of a write is done; an error."""
    LOST = "lost"
    """Of a sync: the bytes that it should have saved never will be; an error, once."""
    HUNG = "hung"
    """No answer until it is let go; then it is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Meets the `at`-th request, from 0, of those kinds; `lasting`: all later ones, too."""

    ops: frozenset[int]
    at: int
    how: How = How.REFUSED
    error: int = 0
    lasting: bool = False
