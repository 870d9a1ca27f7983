"""One root folder with replicas, as this process uses it: the file engine's state.

Layer: adapters, shared; blocking.  The engine is this class and the functions over it, in
observing, reading, writing and removing; none knows an event loop, so the same engine runs in
worker threads and, where a medium may hang, in worker processes.  All raise ReconcileError or
OSError (translate.py); batches answer by Outcome.  Invariants: nothing under a root is touched
unless its marker is right; a key is claimed from the begin of its writing until its replica is
durable, and is PARTIAL for that long; what is read here is not dropped from here.
"""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

from weightctl.adapters.shared import fencing
from weightctl.adapters.shared.layout import INSTANCE_BYTES
from weightctl.adapters.shared.listing import Hints, list_group
from weightctl.adapters.shared.settled import GROUPS_FOLDER, ROOT_FOLDER, Settled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weightctl.adapters.shared.layout import StoredName
    from weightctl.adapters.shared.listing import GroupListing
    from weightctl.adapters.shared.markers import Medium
    from weightctl.adapters.shared.room import Room
    from weightctl.controller.core.tiers import TierCapacity
    from weightctl.controller.ports import Fence


class Root:
    """State of one root in this process; every method and engine function is thread-safe.

    durable: whether files and folders are synchronised to the medium before they count;
    token: fresh hexadecimal text of so many random bytes (`Entropy.token`);
    foreign: whether a partial file's writer is one that no lock here can tell of, and has to be
    taken for a living one.
    """

    def __init__(
        self,
        medium: Medium,
        room: Room,
        *,
        durable: bool,
        token: Callable[[int], str],
        foreign: Callable[[StoredName], bool] = lambda _: False,
    ) -> None:
        self.medium = medium
        self.durable = durable
        self.foreign = foreign
        self._token = token
        self.shaping = threading.Lock()
        """Held while folders are made for a file or removed because they are empty."""
        self._lock = threading.Lock()
        self._room = room
        self._hints = Hints()
        self._settled = Settled()
        self._claims: dict[tuple[str, str], str] = {}
        self._readers: Counter[tuple[str, str]] = Counter()

    def enter(self, *, read_only: bool = False) -> None:
        """Find the medium, or mark a new one unless `read_only`.  Raises ConfigError."""
        self.medium.enter(self._token, read_only=read_only)

    def adopt(self) -> str:
        """Make the root ours; whose it was, empty when it was ours.  MediumError, OSError."""
        return self.medium.adopt()

    def admit(self, fence: Fence) -> None:
        """Refuse a term that is older than one served here.  Raises FencedError, OSError."""
        with self.medium.opened() as root_fd:
            self.admit_at(root_fd, fence)

    def admit_at(self, root_fd: int, fence: Fence) -> None:
        """As `admit`, where the root is open already."""
        if self.durable:
            self._settled.settle_root(root_fd)  # a term may show that no sync has seen
        try:
            fencing.admit(root_fd, fence, durable=self.durable, writer=self.medium.writer)
        except OSError:
            self._settled.change(ROOT_FOLDER)
            raise

    def capacity(self) -> TierCapacity:
        """Bytes used, free and in all.  Raises MediumError, OSError."""
        with self.medium.opened() as root_fd, self._lock:
            return self._room.capacity(root_fd)

    def fresh_instance(self) -> str:
        """An instance id that no other replica has or will have."""
        return self._token(INSTANCE_BYTES)

    @contextmanager
    def accounts(self) -> Iterator[Room]:
        """The room, locked."""
        with self._lock:
            yield self._room

    # --- names: what shows and is on the medium ---

    def changing(self, group: str) -> None:
        """Note that a name in a group's folder is about to change."""
        self._settled.change(group)

    def making(self, group: str) -> None:
        """Note that a name in a group's folder, or in one that leads to it, is about to be made."""
        self._settled.change(ROOT_FOLDER, GROUPS_FOLDER, group)

    def removed(self, group: str) -> None:
        """Note that a group's folder is gone."""
        self._settled.forget(group)

    def settle(self, group: str, group_fd: int) -> None:
        """Bring what a group's folder shows to the medium before it is reported.  Raises OSError.

        Nothing in a dry run, which reports to nobody who acts on it.
        """
        if self.durable and not self.medium.read_only:
            self._settled.settle(group, group_fd)

    # --- claims: keys that are being written here ---

    def claim(self, group: str, text: str, instance_id: str) -> bool:
        """Claim a key for writing that instance; False when it is claimed already."""
        with self._lock:
            return self._claims.setdefault((group, text), instance_id) == instance_id

    def unclaim(self, group: str, text: str) -> None:
        """End a claim."""
        with self._lock:
            self._claims.pop((group, text), None)

    def claimed(self, group: str) -> dict[str, str]:
        """Instances of a group that are being written here, by encoded key."""
        with self._lock:
            return {text: one for (owner, text), one in self._claims.items() if owner == group}

    # --- readers: replicas that are open here ---

    def begin_reading(self, group: str, instance_id: str) -> None:
        """Hold a replica against dropping from here until `end_reading`."""
        with self._lock:
            self._readers[group, instance_id] += 1

    def end_reading(self, group: str, instance_id: str) -> None:
        """Let it go."""
        with self._lock:
            self._readers[group, instance_id] -= 1
            if not self._readers[group, instance_id]:
                del self._readers[group, instance_id]

    def is_read(self, group: str, instance_id: str) -> bool:
        """Whether a replica is open here."""
        with self._lock:
            return (group, instance_id) in self._readers

    # --- hints: where to look first ---

    def names(self, group: str, group_fd: int, text: str) -> list[StoredName]:
        """Files of one key by a listing that shows the folder's last change."""
        with self._lock:
            return self._hints.get(group, group_fd).names(text)

    def likely_names(self, group: str, group_fd: int, text: str) -> list[StoredName]:
        """Files of one key by the last listing and our own changes since; costs no system call."""
        with self._lock:
            listing = self._hints.peek(group) or self._hints.get(group, group_fd)
            return listing.names(text)

    def fresh_names(self, group: str, group_fd: int, text: str) -> list[StoredName]:
        """Files of one key by a new listing: the only proof that there is none."""
        listing = list_group(group_fd)
        self.relist(group, listing)
        return listing.names(text)

    def forget_listings(self) -> None:
        """Forget what was listed: other hosts change it, and times of change are coarse."""
        with self._lock:
            self._hints = Hints()

    def relist(self, group: str, listing: GroupListing) -> None:
        """Remember a fresh listing."""
        with self._lock:
            self._hints.put(group, listing)

    def moved(
        self,
        group: str,
        group_fd: int,
        *,
        gone: StoredName | None = None,
        come: StoredName | None = None,
        grown_bytes: int = 0,
    ) -> None:
        """Account for a file that we removed, renamed or published."""
        with self._lock:
            self._hints.change(group, group_fd, gone, come)
            self._room.adjust(group, grown_bytes)
