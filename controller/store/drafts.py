"""Files that are written under another name first, and what killed writers left.  Layer: store.

A writer holds a lock on its draft for as long as the file has that name, so the draft of a dead
writer is known by its free lock; whoever writes the same file next removes it.  Where a file system
has no locks nothing is known of a writer, and its draft is left alone.  All calls block.
"""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import suppress
from pathlib import Path

TOKEN_BYTES = 8


def draft_of(path: Path, token: str) -> Path:
    """The draft name of a file; `token` is TOKEN_BYTES in hexadecimal, of this writer alone."""
    return path.with_name(f".{path.name}.{token}.partial")


def open_draft(draft: Path) -> int:
    """A descriptor of the new, locked draft; closing it frees the lock.  Raises OSError."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(draft, flags, 0o666)
    try:
        with suppress(OSError):  # no locks there
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_nlink == 0:
            raise FileNotFoundError(f"{draft} was taken for a leftover")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def sweep_drafts(path: Path) -> None:
    """Remove the drafts of this file whose writers are dead.  Raises OSError for the folder."""
    name = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{{2 * TOKEN_BYTES}}}\.partial")
    for entry in os.listdir(path.parent):  # noqa: PTH208 - names alone
        if name.fullmatch(entry):
            with suppress(OSError):  # alive, without locks, gone, or not ours to remove
                _remove_dead(path.with_name(entry))


def _remove_dead(draft: Path) -> None:
    descriptor = os.open(draft, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        draft.unlink()
    finally:
        os.close(descriptor)
