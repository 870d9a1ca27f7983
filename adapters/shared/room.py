"""How many bytes a root holds and may still take.  Layer: adapters, shared; blocking.

Owns what is used, counted once a group and kept up to date by the root's own changes, and what is
reserved for drafts that are being written.  Invariant: used and reserved together never pass the
limit, however many writers reserve at once.  Not thread-safe: its owner locks.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weightctl.adapters.shared.folders import every_group
from weightctl.adapters.shared.layout import text_and_suffix
from weightctl.controller.core.tiers import TierCapacity
from weightctl.controller.errors import CapacityError

if TYPE_CHECKING:
    from collections.abc import Callable, Container

KEPT_FREE_SHARE = 50
"""One fiftieth of a medium stays free by default: other files on it must still be written."""
KEPT_FREE_BYTES_MAX = 1024**3


def medium_free_bytes(root_fd: int) -> int:
    """What the file system can still take, less a reserve.  Raises OSError."""
    stat = os.fstatvfs(root_fd)
    kept = min(stat.f_blocks * stat.f_frsize // KEPT_FREE_SHARE, KEPT_FREE_BYTES_MAX)
    return max(0, stat.f_bavail * stat.f_frsize - kept)


@dataclass(slots=True, kw_only=True, eq=False)
class Reservation:
    """Room for one partial file; the medium itself already counts `written_bytes` of it."""

    partial_name: str
    size_bytes: int
    written_bytes: int = 0


@dataclass(slots=True)
class _Usage:
    changed_ns: int
    size_bytes: int
    adjusted: bool = False


class Room:
    """Accounts of one root.

    limit_bytes: bound of what replicas may use, None for what the medium has;
    free_bytes: what the medium can still take, asked for each reservation.
    """

    def __init__(
        self,
        limit_bytes: int | None = None,
        free_bytes: Callable[[int], int] = medium_free_bytes,
    ) -> None:
        self._limit_bytes = limit_bytes
        self._free_bytes = free_bytes
        self._usage: dict[str, _Usage] | None = None
        self._reservations: set[Reservation] = set()

    def capacity(self, root_fd: int) -> TierCapacity:
        """Count again what has changed.  Raises OSError."""
        self._count(root_fd)
        used_bytes = self._used_bytes() + self._reserved_bytes()
        free_bytes = self._free(root_fd)
        total_bytes = self._limit_bytes or used_bytes + free_bytes
        return TierCapacity(used_bytes=used_bytes, free_bytes=free_bytes, total_bytes=total_bytes)

    def reserve(self, root_fd: int, partial_name: str, size_bytes: int) -> Reservation:
        """Room for a new partial file.  Raises CapacityError, OSError."""
        if self._usage is None and self._limit_bytes is not None:
            self._count(root_fd)
        free_bytes = self._free(root_fd)
        if size_bytes > free_bytes:
            raise CapacityError(
                size_bytes,
                free_bytes,
                f"{size_bytes} bytes do not fit",
                f"{free_bytes} bytes are free",
                "make room or raise capacity_bytes",
            )
        reservation = Reservation(partial_name=partial_name, size_bytes=size_bytes)
        self._reservations.add(reservation)
        return reservation

    def release(self, reservation: Reservation) -> None:
        """Give a reservation back."""
        self._reservations.discard(reservation)

    def adjust(self, group: str, delta_bytes: int) -> None:
        """Replicas of `group` grew or shrank by our own doing."""
        if self._usage is not None:
            usage = self._usage.setdefault(group, _Usage(-1, 0))
            usage.size_bytes = max(0, usage.size_bytes + delta_bytes)
            usage.adjusted = True

    def _used_bytes(self) -> int:
        return sum(usage.size_bytes for usage in (self._usage or {}).values())

    def _reserved_bytes(self) -> int:
        return sum(reservation.size_bytes for reservation in self._reservations)

    def _free(self, root_fd: int) -> int:
        unwritten = sum(one.size_bytes - one.written_bytes for one in self._reservations)
        free_bytes = self._free_bytes(root_fd) - unwritten
        if self._limit_bytes is not None:
            limit_bytes = self._limit_bytes - self._used_bytes() - self._reserved_bytes()
            free_bytes = min(free_bytes, limit_bytes)
        return max(0, free_bytes)

    def _count(self, root_fd: int) -> None:
        live = {reservation.partial_name for reservation in self._reservations}
        known = self._usage or {}
        counted: dict[str, _Usage] = {}
        for group, group_fd in every_group(root_fd):
            usage = known.get(group)
            changed_ns = os.fstat(group_fd).st_mtime_ns
            changed = usage is None or usage.adjusted or usage.changed_ns != changed_ns
            # While we write there, our own account is right and counting again would not end.
            if usage is None or (changed and not self._reservations):
                usage = _Usage(changed_ns, _size_of(group_fd, live))
            counted[group] = usage
        self._usage = counted


def _size_of(group_fd: int, live: Container[str]) -> int:
    size_bytes = 0
    with os.scandir(group_fd) as entries:
        for entry in entries:
            if text_and_suffix(entry.name) and entry.name not in live:
                try:
                    size_bytes += entry.stat(follow_symlinks=False).st_size
                except FileNotFoundError:
                    continue
    return size_bytes
