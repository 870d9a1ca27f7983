"""Which folders of a root are on the medium as they are seen.  Layer: adapters, shared; blocking.

A name that was changed shows at once, also when the folder could not be synchronised afterwards or
its writer was killed before; a power loss then brings the old names back.  So whoever reports by
what a folder shows, that a replica is there or that there is none, settles the folder first.
Invariant: a folder counts as settled only when it was synchronised here after the last change that
was noted here; nothing is taken for settled by a fresh process.
"""

from __future__ import annotations

import os
import threading
from collections import Counter

from weightctl.adapters.shared.files import folder
from weightctl.adapters.shared.layout import GROUPS

ROOT_FOLDER = "/"
GROUPS_FOLDER = f"/{GROUPS}"
"""Keys of the two upper folders; no encoded group id has a slash."""


class Settled:
    """What is known of the folders of one root; thread-safe.

    Changes that other processes make to a group are known by its folder's change time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changes: Counter[str] = Counter()
        self._synced: dict[str, tuple[int, int]] = {}

    def change(self, *names: str) -> None:
        """Note that a name in those folders is about to change, or may just have."""
        with self._lock:
            self._changes.update(names)

    def forget(self, name: str) -> None:
        """The folder is gone."""
        with self._lock:
            self._changes.pop(name, None)
            self._synced.pop(name, None)

    def settle(self, group: str, group_fd: int) -> None:
        """Bring the names in a group's folder, and those that lead to it, to the medium.

        Raises OSError; nothing that the folder shows may be reported then.
        """
        changed_ns = os.fstat(group_fd).st_mtime_ns
        if self._is_settled(group, changed_ns):
            return
        with self._lock:
            is_new = group not in self._synced
        self._sync(group, group_fd, changed_ns)
        with folder(group_fd, "..") as groups_fd:
            self._sync(GROUPS_FOLDER, groups_fd, again=is_new)
            with folder(groups_fd, "..") as root_fd:
                self._sync(ROOT_FOLDER, root_fd, again=is_new)

    def settle_root(self, root_fd: int) -> None:
        """As `settle` for the root's own files."""
        self._sync(ROOT_FOLDER, root_fd)

    def _is_settled(self, group: str, changed_ns: int) -> bool:
        with self._lock:
            return all(
                self._synced.get(name) == (self._changes[name], changed)
                for name, changed in ((group, changed_ns), (GROUPS_FOLDER, 0), (ROOT_FOLDER, 0))
            )

    def _sync(self, name: str, fd: int, changed_ns: int = 0, *, again: bool = False) -> None:
        with self._lock:
            state = self._changes[name], changed_ns
            if self._synced.get(name) == state and not again:
                return
        os.fsync(fd)
        with self._lock:
            self._synced[name] = state
