"""Whose a partial file is: a writer's of this host, or another's.  Layer: a tier; runs in a worker.

Whether a writer of this host lives its lock tells.  Of another host's there is no such sign, nor of
any where the file system has no locks: it is dead when its file has been still for long, which the
caller judges.  Invariant: nothing of another's writer is touched unless the caller says so.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weightctl.adapters.shared.drafts import NO_LOCKS
from weightctl.adapters.shared.files import FILE_FLAGS
from weightctl.adapters.shared.folders import group_folder
from weightctl.adapters.shared.layout import PARTIAL, StoredName, encode_text
from weightctl.adapters.shared.markers import MARKER_FILE
from weightctl.controller.core.observation import Members, MemberState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weightctl.adapters.shared.root import Root


@dataclass(frozen=True, slots=True, kw_only=True)
class Stranger:
    """A partial file of another host, as it was seen; it is dead when it stays so."""

    index: int
    """Of the member in the asked ones."""
    instance_id: str
    size_bytes: int
    changed_ns: int


class Writers:
    """What one worker knows of the writers on a medium; host: what ids of this host begin with."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._lockless = False
        self.still: frozenset[str] = frozenset()
        """Instances of others' partial files that may be removed."""

    def look_for_locks(self, root_fd: int) -> None:
        """Learn whether the file system has locks."""
        fd = os.open(MARKER_FILE, FILE_FLAGS, dir_fd=root_fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            self._lockless = error.errno in NO_LOCKS
        else:
            self._lockless = False
        finally:
            os.close(fd)

    def is_own(self, name: StoredName) -> bool:
        """Whether a writer of this host has begun it."""
        return name.instance_id.startswith(self._host)

    def is_strange(self, name: StoredName) -> bool:
        """Whether no lock here can tell if the writer of a partial file lives."""
        locked = self.is_own(name) and not self._lockless
        return not locked and name.instance_id not in self.still

    def strangers(self, root: Root, members: Members, states: bytes) -> Iterator[Stranger]:
        """The strange files that make members PARTIAL; from now on none counts as still."""
        self.still = frozenset()
        index = states.find(MemberState.PARTIAL)
        while index >= 0:
            yield from self._strange_files(root, members, index)
            index = states.find(MemberState.PARTIAL, index + 1)

    def _strange_files(self, root: Root, members: Members, index: int) -> Iterator[Stranger]:
        group, text = encode_text(members.group_id), encode_text(members.keys[index])
        try:
            with (
                root.medium.opened() as root_fd,
                group_folder(root_fd, group) as group_fd,
            ):
                names = root.names(group, group_fd, text)
                partial = [name for name in names if name.suffix == PARTIAL]
                if not all(map(self.is_strange, partial)):
                    return
                for name in partial:
                    found = os.stat(str(name), dir_fd=group_fd, follow_symlinks=False)
                    yield Stranger(
                        index=index,
                        instance_id=name.instance_id,
                        size_bytes=found.st_size,
                        changed_ns=found.st_mtime_ns,
                    )
        except FileNotFoundError:
            return
