"""Opening the device, for its writer or for a dry run.  Layer: nof tier; in the index worker.

Owns the open `NofDevice`, which it replaces after a failure.  Invariant: nothing is answered while
the device has no live path, is not the one that was used first (over restarts, too), or is not ours
to write; a device is created or formatted only before any was used.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from weightctl.adapters.nof.device import NofDevice, Ticket, instance_id
from weightctl.adapters.nof.header import BlankDeviceError, format_medium, read_superblock
from weightctl.adapters.nof.layout import Geometry, Holder, Superblock
from weightctl.adapters.nof.medium import FileMedium, is_blank, new_file, open_medium
from weightctl.adapters.nof.opening import (
    adopt_device,
    open_device,
    refuse_another,
    refuse_other_store,
)
from weightctl.adapters.nof.paths import path_problem
from weightctl.adapters.nof.writer import read_catalog
from weightctl.adapters.shared.remembering import (
    read_remembered,
    settle_remembered,
    write_remembered,
)
from weightctl.adapters.shared.translate import error_from_os
from weightctl.controller.errors import BusyError, ConfigError, TerminalError, TransientError
from weightctl.controller.ports import NOT_SET_UP, SET_UP_BY_USE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weightctl.adapters.nof.records import Catalog


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOptions:
    """How the device is opened.  Sizes in bytes."""

    path: str
    uuid: bytes
    """What a device that is created or formatted is called."""
    remembered: str = ""
    """File of the state directory that keeps which device was used; empty for none."""
    size_bytes: int | None = None
    """Create a plain file of that size where there is none."""
    format: bool = False
    capacity_bytes: int | None = None
    takeover: str = ""
    owner: str = ""
    """The store that acts; empty for none, to which every device is open."""
    since_ms: int = 0
    read_only: bool = False
    sysfs: str = "/sys"
    dev: str = "/dev"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceView:
    """What can be seen of the device, by its writer or in a dry run."""

    superblock: Superblock
    catalog: Catalog
    tickets: Sequence[Ticket] = ()

    def writing(self, group_id: str) -> dict[str, Ticket]:
        """The stores of a group that are under way."""
        return {t.member.key: t for t in self.tickets if t.member.group_id == group_id}

    def name(self, serial: int) -> str:
        """The instance id of a replica."""
        return instance_id(self.superblock.uuid, serial)


class DeviceAccess:
    """The device of one tier.  `expected` is the uuid that the tier saw first, empty before.

    Raises ConfigError, once a device was used TerminalError, for what a person must mend; BusyError
    where another process has the device; TransientError for the rest.
    """

    def __init__(self, options: DeviceOptions) -> None:
        self.options = options
        self._device: NofDevice | None = None

    @contextmanager
    def opened(self, expected: bytes) -> Iterator[NofDevice]:
        """The device, claimed and checked, for one request."""
        if self.options.read_only:
            raise TerminalError("the nof device was opened for a dry run", "nothing may be changed")
        wanted = expected or self._remembered()
        with self._translated(wanted):
            if self._device is None or self._device.failed:
                self.close()
                self._device = self._open(wanted)
            self._device.check()
            yield self._device

    @contextmanager
    def viewed(self, expected: bytes) -> Iterator[DeviceView]:
        """What can be seen of the device; in a dry run it is not claimed but read anew."""
        if self.options.read_only:
            yield self._read(expected or self._remembered())
            return
        with self.opened(expected) as device:
            yield DeviceView(
                superblock=device.superblock, catalog=device.catalog, tickets=device.tickets
            )

    def adopt(self) -> str:
        """Make the device this store's; whose it was, empty when it was not another's."""
        options, wanted = self.options, self._remembered()
        with self._translated(wanted):
            medium = self._locked_medium()
            try:
                return adopt_device(
                    medium,
                    _holder(options.since_ms),
                    options.owner,
                    expected=wanted,
                    takeover=options.takeover,
                )
            finally:
                medium.close()

    def close(self) -> None:
        """Close the device in order.  Never fails."""
        device, self._device = self._device, None
        if device is not None:
            device.close()

    def _read(self, wanted: bytes) -> DeviceView:
        with self._translated(wanted):
            medium = open_medium(self.options.path, writable=False)
            try:
                superblock, catalog = read_catalog(medium)
            finally:
                medium.close()
            refuse_another(superblock, wanted)
            refuse_other_store(superblock, self.options.owner)
            return DeviceView(superblock=superblock, catalog=catalog)

    def _open(self, wanted: bytes) -> NofDevice:
        options, holder = self.options, _holder(self.options.since_ms)
        if options.size_bytes is not None and not wanted and not Path(options.path).exists():
            with new_file(options.path, options.size_bytes) as medium:
                format_medium(medium, options.uuid, holder, options.owner)
        medium = self._writable_medium()
        try:
            if options.format and not wanted and is_blank(medium):
                format_medium(medium, options.uuid, holder, options.owner)
            device = open_device(
                medium,
                holder,
                expected=wanted,
                takeover=options.takeover,
                owner=options.owner,
                capacity_bytes=options.capacity_bytes,
            )
            if options.remembered and not wanted:
                write_remembered(Path(options.remembered), device.uuid)
            elif options.remembered:
                settle_remembered(Path(options.remembered))
            return device
        except BaseException:
            medium.close()
            raise

    def _writable_medium(self) -> FileMedium:
        """The medium, locked.  That it is another store's is said before that it is in use."""
        try:
            return self._locked_medium()
        except BusyError:
            medium = open_medium(self.options.path, writable=False)
            try:
                refuse_other_store(read_superblock(medium), self.options.owner)
            finally:
                medium.close()
            raise

    def _locked_medium(self) -> FileMedium:
        return open_medium(self.options.path, writable=True, exclusive=True)

    def _remembered(self) -> bytes:
        """The uuid of the device that was used before this process, empty where none was."""
        path = self.options.remembered
        try:
            return bytes.fromhex(read_remembered(Path(path))) if path else b""
        except (OSError, ValueError) as error:
            raise TransientError(
                f"{path} cannot be read", str(error), "mend it; it says which device is used"
            ) from error

    @contextmanager
    def _translated(self, wanted: bytes) -> Iterator[None]:
        options = self.options
        problem = path_problem(options.path, sysfs=options.sysfs, dev=options.dev)
        if problem:
            raise TransientError("the nof device cannot be asked", problem, "mend the connection")
        try:
            yield
        except (FileNotFoundError, BlankDeviceError) as error:
            if options.read_only and not wanted:
                raise self._not_set_up(blank=isinstance(error, BlankDeviceError)) from error
            if isinstance(error, BlankDeviceError) and not wanted:
                raise
            raise self._away(wanted) from error
        except OSError as error:
            raise error_from_os(error, f"nof device {options.path!r}") from error
        except ConfigError as error:
            if not wanted:
                raise
            raise TerminalError(error.what, error.why, error.todo) from error

    def _not_set_up(self, *, blank: bool) -> TransientError:
        """Of a dry run: what the first use would do, or what a person has to do before."""
        options = self.options
        why, todo = "there is no such device or file", SET_UP_BY_USE
        if blank:
            why = "it is blank"
            if not options.format:
                todo = "set `format = true` on this tier, and the first import formats it"
        elif options.size_bytes is None:
            todo = (
                "attach the device, or set `size_bytes` on this tier, and the first import creates "
                "a plain file"
            )
        else:
            todo = _file_problem(Path(options.path), options.size_bytes) or todo
        return TransientError(f"{NOT_SET_UP}: {options.path}", why, todo)

    def _away(self, wanted: bytes) -> TransientError:
        todo = "attach it; to create a plain file, make its folder and set `size_bytes`"
        if wanted:
            todo = f"attach device {wanted.hex()}"
            if self.options.remembered:
                todo += (
                    "; to begin with another one, stop the controller and remove "
                    f"{self.options.remembered}"
                )
        return TransientError(
            f"nof device {self.options.path!r} is away",
            "it is not attached, its folder is not mounted, or it was wiped",
            todo,
        )


def _file_problem(path: Path, size_bytes: int) -> str:
    """What to do before a plain file of that size can be created; empty for nothing."""
    try:
        Geometry.of_size(size_bytes)
    except ConfigError as error:
        return f"{error.why}: {error.todo}"
    if not path.parent.is_dir():
        return f"make the folder {path.parent}"
    if not os.access(path.parent, os.W_OK | os.X_OK):
        return f"let this user write to {path.parent}"
    room = os.statvfs(path.parent)
    free_bytes = room.f_bavail * room.f_frsize
    if size_bytes > free_bytes:
        return f"make room: `size_bytes` is {size_bytes}, and {free_bytes} bytes are free there"
    return ""


def _holder(since_ms: int) -> Holder:
    """The process that this worker serves."""
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return Holder(host=os.uname().nodename, boot_id=boot_id, pid=os.getppid(), since_ms=since_ms)
