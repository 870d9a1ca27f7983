"""Failpoints at the calls that change a file system.  Layer: failpoints.

Python tells an audit hook of each such call before it is made, in whatever thread, so no module has
to know of it.  What SQLite and the worker processes of a tier do is not told.  A hook stays for the
life of the process.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING

from weightctl.controller.failpoints.points import FILE_CALLS

if TYPE_CHECKING:
    from weightctl.controller.failpoints.points import Failpoints

_EVENTS = {("open" if call == "open" else f"os.{call}"): f"file.{call}" for call in FILE_CALLS}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def watch_files(points: Failpoints) -> None:
    """Reach `file.CALL` before each call from now on; an error leaves the call as an OSError."""

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        name = _EVENTS.get(event)
        if name is None or (event == "open" and not _is_writing(arguments)):
            return
        failure = points.reach(name)
        if failure:
            number = getattr(errno, failure)
            raise OSError(number, os.strerror(number), "failpoint")

    sys.addaudithook(hook)


def _is_writing(arguments: tuple[object, ...]) -> bool:
    _, _, flags = arguments
    return isinstance(flags, int) and bool(flags & _WRITING)
