"""The index in its worker: opens the device when first asked, answers batches.  Layer: nof tier.

Owns the open `NofDevice`, which it replaces after a failure.  Invariant: nothing is answered while
the device has no live path, is not the one that was expected, or is not ours to write; and a device
is created or formatted only before any was seen.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from weightctl.adapters.nof.device import NofDevice, Ticket, instance_id, open_device
from weightctl.adapters.nof.header import format_medium
from weightctl.adapters.nof.layout import BLOCK_BYTES, Holder, Superblock
from weightctl.adapters.nof.medium import is_blank, new_file, open_medium
from weightctl.adapters.nof.paths import path_problem
from weightctl.adapters.nof.writer import read_catalog
from weightctl.adapters.shared.translate import error_from_os
from weightctl.controller.core.observation import Member, MemberState, ReplicaDetail
from weightctl.controller.errors import ConfigError, TerminalError, TransientError
from weightctl.controller.ports import DropItem, Fence, InventoryItem, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weightctl.adapters.nof.records import Catalog, Replica

_ABSENT, _PARTIAL, _COMPLETE = MemberState.ABSENT, MemberState.PARTIAL, MemberState.COMPLETE


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexOptions:
    """How the device is opened.  Sizes in bytes."""

    path: str
    uuid: bytes
    """What a device that is created or formatted is called."""
    size_bytes: int | None = None
    """Create a plain file of that size where there is none."""
    format: bool = False
    capacity_bytes: int | None = None
    takeover: str = ""
    since_ms: int = 0
    read_only: bool = False
    sysfs: str = "/sys"
    dev: str = "/dev"


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """What can be seen of the device, by its writer or in a dry run."""

    superblock: Superblock
    catalog: Catalog
    tickets: Sequence[Ticket] = ()

    def writing(self, group_id: str) -> dict[str, Ticket]:
        """The stores of a group that are under way."""
        return {t.member.key: t for t in self.tickets if t.member.group_id == group_id}

    def name(self, serial: int) -> str:
        return instance_id(self.superblock.uuid, serial)


class IndexEngine:
    """Every method takes the uuid of the device that is expected, empty at first.

    Raises ConfigError, once a device was seen TerminalError, for what a person must mend; BusyError
    where another process has the device; TransientError for the rest.
    """

    def __init__(self, options: IndexOptions) -> None:
        self._options = options
        self._device: NofDevice | None = None

    def info(self, expected: bytes) -> Superblock:
        """The superblock in force of the open device, which is made where the options say so."""
        with self._viewed(expected) as view:
            return view.superblock

    def observe(
        self, expected: bytes, group_id: str, keys: Sequence[str], detail: Sequence[int]
    ) -> tuple[bytes, dict[int, ReplicaDetail]]:
        """One state byte a key, and details of those asked for that are there."""
        with self._viewed(expected) as view:
            group = view.catalog.visible.get(group_id, {})
            states = bytearray(_COMPLETE if key in group else _ABSENT for key in keys)
            writing = view.writing(group_id)
            if writing:
                for index, key in enumerate(keys):
                    if key in writing:
                        states[index] = _PARTIAL
            details = {
                index: ReplicaDetail(
                    instance_id=view.name(replica.serial),
                    size_bytes=replica.size_bytes,
                    sha256=replica.sha256,
                )
                for index in detail
                if (replica := group.get(keys[index])) is not None
            }
            return bytes(states), details

    def locate(self, expected: bytes, names: Sequence[tuple[str, str]]) -> list[Replica | None]:
        """The visible replica of each (group id, key)."""
        with self._viewed(expected) as view:
            visible = view.catalog.visible
            return [visible.get(group_id, {}).get(key) for group_id, key in names]

    def alive(self, expected: bytes, serials: Sequence[int]) -> list[bool]:
        """Whether each replica is there still: its extents held nothing else until now."""
        with self._viewed(expected) as view:
            return [serial in view.catalog.replicas for serial in serials]

    def inventory(self, expected: bytes, group_id: str | None) -> dict[str, list[InventoryItem]]:
        """Everything on the device, by group, in the order of keys."""
        found: dict[str, list[InventoryItem]] = {}
        with self._viewed(expected) as view:
            for replica in view.catalog.replicas.values():
                if group_id in {None, replica.group_id}:
                    state = "quarantined" if replica.quarantined else "complete"
                    item = _item(replica.key, view.name(replica.serial), replica.size_bytes, state)
                    found.setdefault(replica.group_id, []).append(item)
            for ticket in view.tickets:
                member = ticket.member
                if group_id in {None, member.group_id}:
                    item = _item(member.key, view.name(ticket.serial), member.size_bytes, "partial")
                    found.setdefault(member.group_id, []).append(item)
        for items in found.values():
            items.sort(key=lambda item: (item.key, item.instance_id))
        return found

    def capacity(self, expected: bytes) -> tuple[int, int, int]:
        """(used, free, total) bytes."""
        if not self._options.read_only:
            with self._opened(expected) as device:
                return device.capacity()
        with self._viewed(expected) as view:
            extents = [run for item in view.catalog.replicas.values() for run in item.extents]
            used = sum(count for _, count in extents) * BLOCK_BYTES
            total = view.superblock.geometry.data_blocks * BLOCK_BYTES
            total = min(total, self._options.capacity_bytes or total)
            return used, max(0, total - used), total

    def reserve(
        self, expected: bytes, members: Sequence[Member], fence: Fence, given_up: Sequence[int]
    ) -> list[Ticket | Outcome]:
        """See `NofDevice.reserve`; `given_up` are serials of stores to abort first."""
        with self._opened(expected) as device:
            device.abort(given_up)
            return device.reserve(members, fence)

    def commit(self, expected: bytes, serials: Sequence[int], fence: Fence) -> list[Outcome]:
        """See `NofDevice.commit`."""
        with self._opened(expected) as device:
            return device.commit(serials, fence)

    def abort(self, expected: bytes, serials: Sequence[int]) -> None:
        """See `NofDevice.abort`."""
        with self._opened(expected) as device:
            device.abort(serials)

    def drop(self, expected: bytes, items: Sequence[DropItem], fence: Fence) -> list[Outcome]:
        """See `NofDevice.drop`."""
        with self._opened(expected) as device:
            return device.drop(items, fence)

    def quarantine(self, expected: bytes, items: Sequence[DropItem], fence: Fence) -> list[Outcome]:
        """See `NofDevice.quarantine`."""
        with self._opened(expected) as device:
            return device.quarantine(items, fence)

    def close(self) -> None:
        """Close the device in order.  Never fails."""
        device, self._device = self._device, None
        if device is not None:
            device.close()

    @contextmanager
    def _viewed(self, expected: bytes) -> Iterator[_View]:
        if not self._options.read_only:
            with self._opened(expected) as device:
                yield _View(
                    superblock=device.superblock, catalog=device.catalog, tickets=device.tickets
                )
            return
        with self._translated(expected):
            medium = open_medium(self._options.path, writable=False)
            try:
                superblock, catalog = read_catalog(medium)
            finally:
                medium.close()
            yield _View(superblock=superblock, catalog=catalog)

    @contextmanager
    def _opened(self, expected: bytes) -> Iterator[NofDevice]:
        if self._options.read_only:
            raise TerminalError("the nof device was opened for a dry run", "nothing may be changed")
        with self._translated(expected):
            if self._device is None or self._device.failed:
                self.close()
                self._device = self._open(expected)
            self._device.check()
            yield self._device

    def _open(self, expected: bytes) -> NofDevice:
        options, holder = self._options, _holder(self._options.since_ms)
        if options.size_bytes is not None and not expected and not Path(options.path).exists():
            with new_file(options.path, options.size_bytes) as medium:
                format_medium(medium, options.uuid, holder)
        medium = open_medium(options.path, writable=True, exclusive=True)
        try:
            if options.format and not expected and is_blank(medium):
                format_medium(medium, options.uuid, holder)
            return open_device(
                medium,
                holder,
                expected=expected,
                takeover=options.takeover,
                capacity_bytes=options.capacity_bytes,
            )
        except BaseException:
            medium.close()
            raise

    @contextmanager
    def _translated(self, expected: bytes) -> Iterator[None]:
        options = self._options
        problem = path_problem(options.path, sysfs=options.sysfs, dev=options.dev)
        if problem:
            raise TransientError("the nof device cannot be asked", problem, "mend the connection")
        try:
            yield
        except FileNotFoundError as error:
            raise TransientError(
                f"there is no nof device {error.filename!r}",
                "it is not attached, or its folder is not mounted",
                "attach it; to create a plain file, make its folder and set `size_bytes`",
            ) from error
        except OSError as error:
            raise error_from_os(error, f"nof device {options.path!r}") from error
        except ConfigError as error:
            if not expected:
                raise
            raise TerminalError(error.what, error.why, error.todo) from error


def _item(key: str, name: str, size_bytes: int, state: str) -> InventoryItem:
    return InventoryItem(key=key, instance_id=name, size_bytes=size_bytes, state=state)


def _holder(since_ms: int) -> Holder:
    """The process that this worker serves."""
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return Holder(host=os.uname().nodename, boot_id=boot_id, pid=os.getppid(), since_ms=since_ms)


def make(buffer: memoryview, *, options: IndexOptions) -> IndexEngine:  # noqa: ARG001
    """Engine factory for the worker pool; touches nothing.  The buffer is not needed."""
    return IndexEngine(options)
