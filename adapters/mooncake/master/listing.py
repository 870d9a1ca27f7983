"""The list of all keys as it comes, a key a line.  Layer: a tier; pure.

A cluster holds a cache of millions of keys, of which few concern weightctl: what does not is thrown
away as soon as it is here.  Invariant: memory is bounded, whatever the Master sends.
"""

from __future__ import annotations

KEPT_BYTES_MAX = 256 * 1024 * 1024
"""Of the keys that are kept."""
LINE_BYTES_MAX = 16 * 1024 * 1024
"""Of one key."""


class Listing:
    """The keys that begin with one of `begins`."""

    def __init__(self, begins: tuple[str, ...]) -> None:
        self._begins = tuple(begin.encode() for begin in begins)
        self._kept: list[bytes] = []
        self._kept_bytes = 0
        self._rest: bytes = b""
        self.come_bytes = 0
        """How much has come."""

    def feed(self, piece: bytes) -> None:
        """Take the next bytes of the answer.  Raises ValueError when there is too much to keep."""
        self.come_bytes += len(piece)
        # A key may hold what ends a line elsewhere.
        *lines, self._rest = (self._rest + piece).split(b"\n")
        self._keep(lines)
        if len(self._rest) > LINE_BYTES_MAX or self._kept_bytes > KEPT_BYTES_MAX:
            raise ValueError("more than can be kept")

    def _keep(self, lines: list[bytes]) -> None:
        begins = self._begins
        kept = [line for line in lines if line and line.startswith(begins) and b"," not in line]
        self._kept += kept
        self._kept_bytes += sum(map(len, kept))

    def keys(self) -> list[str]:
        """Those that can be asked for, once all has come: one with a comma cannot."""
        self._keep([self._rest])
        self._rest = b""
        return [line.decode("utf-8", "replace") for line in self._kept]
