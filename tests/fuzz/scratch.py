"""A folder of this process for parsers that read a file; it goes when the process ends."""

import os
import tempfile
from functools import cache
from pathlib import Path


@cache
def _held() -> tempfile.TemporaryDirectory[str]:
    memory = Path("/dev/shm")
    return tempfile.TemporaryDirectory(
        prefix="weightctl-fuzz-", dir=memory if os.access(memory, os.W_OK) else None
    )


def folder() -> Path:
    return Path(_held().name)


def written(name: str, raw: bytes) -> Path:
    """The path of a file of that name with that content."""
    path = folder() / name
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(descriptor, raw)
    finally:
        os.close(descriptor)
    return path


@cache
def descriptor() -> int:
    """The folder, open."""
    return os.open(folder(), os.O_RDONLY | os.O_DIRECTORY)
