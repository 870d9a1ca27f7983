"""Small file systems of a test's own: mounted, filled, made read-only, and always unmounted.

Mounting needs root.  Where it is refused a test is skipped with the reason, but never in CI, where
the reason is a failure (`cannot`).
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

_READ_ONLY, _NO_SUID, _NO_DEV, _REMOUNT = 1, 2, 4, 32
_DETACH = 2


def mount(source: str, folder: Path, kind: str, options: str = "", flags: int = 0) -> None:
    """Mount as the system call does.  Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    given = [os.fsencode(text) for text in (source, folder, kind)]
    if libc.mount(*given, flags | _NO_SUID | _NO_DEV, options.encode()):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(folder))


def unmount(folder: Path) -> None:
    """Take whatever is mounted over `folder` away at once; nothing happens where nothing is."""
    ctypes.CDLL(None, use_errno=True).umount2(os.fsencode(folder), _DETACH)


@contextmanager
def ram(folder: Path, size_bytes: int) -> Iterator[Path]:
    """A tmpfs of that size over `folder`, which is made."""
    require_mounts()
    folder.mkdir(parents=True, exist_ok=True)
    mount("weightctl-ram", folder, "tmpfs", f"size={size_bytes},mode=755")
    try:
        yield folder
    finally:
        unmount(folder)


def remount(folder: Path, *, read_only: bool) -> None:
    """Change what may be done with a mounted tmpfs.  Raises OSError while a file is being written.

    A size is kept, as options that are not named are.
    """
    mount("weightctl-ram", folder, "tmpfs", flags=_REMOUNT | (_READ_ONLY if read_only else 0))


def require_mounts() -> None:
    """Skip, or fail in CI, where file systems cannot be mounted."""
    if reason := _refusal():
        cannot(reason)


def cannot(reason: str) -> NoReturn:
    """Skip a test for what this machine does not let it do; fail it where CI is set."""
    if os.environ.get("CI", "") not in {"", "0", "false"}:
        pytest.fail(reason)
    pytest.skip(reason)


def _refusal() -> str:
    if os.geteuid() != 0:
        return "file systems cannot be mounted here: that needs root"
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as error:
        return f"file systems cannot be mounted here: /dev/fuse: {error.strerror}"
    return ""
