"""The last acknowledged sequence, kept beside the database.  Layer: store; blocking calls.

SQLite's recovery stops silently at the first damaged frame of its write-ahead log, and what
followed is gone. So each commit, once it is on the medium, also writes its sequence here, without a
sync: at every moment the log on the medium reaches at least as far. A log that ends earlier has
lost acknowledged entries, or is an older copy.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import TYPE_CHECKING

import xxhash

from weightctl.controller.errors import StateDirectoryError

if TYPE_CHECKING:
    from pathlib import Path

NAME = "acknowledged"
_LINE = re.compile(rb"([0-9a-f]+) (\d{20}) ([0-9a-f]{8})\n")
_BYTES_MAX = 256


class Watermark:
    """Writer of one `acknowledged` file; the directory's lock guards it."""

    def __init__(self, folder: Path, store_id: str) -> None:
        self._fd = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._owner = store_id.encode()

    def advance(self, sequence: int) -> None:
        """Note that entries up to `sequence` are durable; a failure only weakens the check."""
        head = b"%b %020d " % (self._owner, sequence)
        line = b"%b%08x\n" % (head, xxhash.xxh32_intdigest(head))
        with contextlib.suppress(OSError):
            os.pwrite(self._fd, line, 0)

    def close(self) -> None:
        """Release the file."""
        os.close(self._fd)


def acknowledged(folder: Path, store_id: str) -> int:
    """The noted sequence of that store; 0 when nothing readable was noted."""
    try:
        text = (folder / NAME).read_bytes()[:_BYTES_MAX]
    except OSError:
        return 0
    match = _LINE.match(text)
    if match is None or match[1] != store_id.encode():
        return 0
    if xxhash.xxh32_intdigest(text[: match.start(3)]) != int(match[3], 16):
        return 0
    return int(match[2])


def check(folder: Path, store_id: str, last_sequence: int) -> None:
    """Refuse a log that ends before what was acknowledged."""
    noted = acknowledged(folder, store_id)
    if noted > last_sequence:
        raise StateDirectoryError(
            f"the journal in {folder} has lost entries: it ends at sequence {last_sequence}",
            f"LostEntries: sequence {noted} was acknowledged; the write-ahead log is damaged or"
            " missing, or the files are an older copy",
            "put the missing files back or restore a snapshot into a fresh state directory; to go"
            f" on from sequence {last_sequence} all the same, remove {folder / NAME}",
        )
