"""A medium that forgets with the boot, and may be begun anew.  Layer: adapters, shared; blocking.

Its replicas are never flushed, so what a former boot left cannot be trusted: in a tmpfs it is gone,
and on another file system (which works, if slower) any part of it may never have been written.  Its
uuid therefore names the boot.  Invariants: a root of a former boot is emptied before it is used and
is not there in a dry run; whenever something may have been lost, the uuid and with it the epoch are
new ones; a root that was removed is made anew only on the file system where it lay, since elsewhere
it may just not be mounted.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from weightctl.adapters.shared.fencing import FENCE_FILE
from weightctl.adapters.shared.files import read_small, write_small
from weightctl.adapters.shared.layout import GROUPS
from weightctl.adapters.shared.markers import MARKER_FILE, Medium, MediumError, boot_id
from weightctl.controller.errors import ConfigError, ReconcileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_RANDOM_BYTES = 8


class ForgettingMedium(Medium):
    """As `Medium`; made with `remembered=None`."""

    _device = -1
    """File system on which the root lay."""
    _epoch = ""

    def enter(self, token: Callable[[int], str], *, read_only: bool = False) -> None:
        """Learn which medium this is; mark a new root, empty one of a former boot.

        Raises ConfigError.
        """
        self._remaking = threading.Lock()
        self._token = token
        self._read_only = read_only
        self._begin()

    def epoch(self) -> str:
        """Changes when this tier may have forgotten what it held."""
        return self._epoch

    @contextmanager
    def opened(self) -> Iterator[int]:
        """As `Medium.opened`, of a new root where the one that was there is surely gone."""
        if not self._read_only and self._was_removed():
            with self._remaking:
                if self._was_removed():
                    self._make_anew()
        with super().opened() as root_fd:
            yield root_fd

    def adopt(self) -> str:
        """As `Medium.adopt`; what a former boot left is then forgotten."""
        owner = super().adopt()
        if owner:
            self._begin()
        return owner

    def _begin(self) -> None:
        super().enter(self._fresh_uuid, read_only=self._read_only)
        if not self._uuid.startswith(f"{boot_id()}-"):
            if self._read_only:
                self._uuid = ""  # nothing of this boot is there
            else:
                with suppress(ReconcileError):  # not ours: `opened` says so
                    self._forget()
        with suppress(FileNotFoundError):
            self._device = self.root.stat().st_dev
        self._epoch = super().epoch()

    def _fresh_uuid(self, _: int) -> str:
        return f"{boot_id()}-{self._token(_RANDOM_BYTES)}"

    def _forget(self) -> None:
        """Empty the root; until it is empty it stays one of the former boot."""
        uuid = self._fresh_uuid(_RANDOM_BYTES)
        try:
            with super().opened() as root_fd:
                with suppress(FileNotFoundError):
                    shutil.rmtree(GROUPS, dir_fd=root_fd)
                with suppress(FileNotFoundError):
                    os.unlink(FENCE_FILE, dir_fd=root_fd)
                marker = json.loads(read_small(root_fd, MARKER_FILE) or b"{}")
                raw = json.dumps({**marker, "uuid": uuid}).encode()
                write_small(root_fd, MARKER_FILE, raw, durable=True)
        except OSError as error:
            raise ConfigError(
                f"the root {str(self.root)!r} cannot be used",
                f"what a former boot left there cannot be removed: {error}",
                "remove the folder",
            ) from error
        self._uuid = uuid

    def _was_removed(self) -> bool:
        """Whether the root is gone from the file system on which it lay, which is still there."""
        if os.path.lexists(self.root):
            return False
        with suppress(FileNotFoundError, NotADirectoryError):
            return self.root.parent.stat().st_dev == self._device
        return False

    def _make_anew(self) -> None:
        try:
            self._begin()
        except ConfigError as error:
            raise MediumError(error.what, error.why, error.todo) from error

    def _away(self, why: str) -> MediumError:
        return MediumError(
            f"the medium under {str(self.root)!r} is away",
            why,
            "mount it again; if what it held is lost, remove the folder, and it is begun anew",
        )
