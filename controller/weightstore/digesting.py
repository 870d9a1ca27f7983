"""SHA-256 of an object while it is moved, in a thread of its own.  Layer: weightstore.

Moving and hashing in turn costs their sum; side by side it costs the slower of the two.  A small
object is hashed where it is, because starting a thread would cost more than it saves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Self

OVERLAP_BYTES = 4 * 1024 * 1024

Wait = Callable[[], None]
"""Blocks until the buffer that was handed in may be overwritten."""


class ObjectDigest:
    """Takes buffers in order; a context manager that ends its thread."""

    def __init__(self, size_bytes: int) -> None:
        self._sha256 = hashlib.sha256()
        self._thread = ThreadPoolExecutor(1) if size_bytes >= OVERLAP_BYTES else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=False)

    def add(self, buffer: memoryview) -> Wait:
        """Digest the buffer; it must not change before the returned wait has ended."""
        if self._thread is None:
            self._sha256.update(buffer)
            return nothing
        return self._thread.submit(self._sha256.update, buffer).result

    def digest(self) -> bytes:
        """Raw SHA-256 of all that was added, once every wait has ended."""
        return self._sha256.digest()


def nothing() -> None:
    """The wait for what is done."""
