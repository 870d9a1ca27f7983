"""The faults of a disk that every place of a life is tried with."""

import errno
from collections.abc import Callable

from tests.support.fuse.faults import CHANGING, READING, Fault, How
from tests.support.fuse.wire import Op

SYNCING = frozenset({Op.FSYNC, Op.FSYNCDIR})
WRITING = frozenset({Op.WRITE})

Make = Callable[[int], Fault]
"""The fault at a place."""


def _once(ops: frozenset[int], how: How = How.REFUSED, error: int = errno.EIO) -> Make:
    return lambda at: Fault(ops=ops, at=at, how=how, error=error)


def _from_then_on(ops: frozenset[int], error: int) -> Make:
    return lambda at: Fault(ops=ops, at=at, error=error, lasting=True)


FAULTS: dict[str, tuple[frozenset[int], Make]] = {
    "an error": (CHANGING, _once(CHANGING)),
    "done, and yet an error": (CHANGING, _once(CHANGING, How.LATE)),
    "no room from then on": (CHANGING, _from_then_on(CHANGING, errno.ENOSPC)),
    "read-only from then on": (
        CHANGING - SYNCING,
        _from_then_on(CHANGING - SYNCING, errno.EROFS),
    ),
    "a short write": (WRITING, _once(WRITING, How.SHORT)),
    "a torn write": (WRITING, _once(WRITING, How.TORN)),
    "a sync that lost what it was to save": (SYNCING, _once(SYNCING, How.LOST)),
    "an unreadable medium": (READING, _once(READING)),
    "a dead medium from then on": (
        READING | CHANGING,
        _from_then_on(READING | CHANGING, errno.EIO),
    ),
}
"""By name: the operations that count, and the fault at the n-th of them."""
