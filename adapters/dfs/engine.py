"""The dfs tier's file calls, each small enough for one deadline.  Layer: a tier; runs in a worker.

Built on the file engine that all file tiers share (adapters/shared/root.py).  What takes long is
cut into steps: a replica is written in pieces and brought to the medium on the way, so that no
single call has much left to flush.  Invariants: a call that hangs and happens hours later can do no
harm, because it names one instance; publication is reported only after a fresh open has seen it;
nothing of another host's writer is touched unless the caller says that it has been still for long.
"""

from __future__ import annotations

import os
import pickle
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from weightctl.adapters.dfs.series import Verifying, Writing
from weightctl.adapters.dfs.writers import Stranger, Writers
from weightctl.adapters.shared import observing, reading, removing, writing
from weightctl.adapters.shared.drafts import Draft
from weightctl.adapters.shared.files import FILE_FLAGS, folder, read_at, remove_unwritten
from weightctl.adapters.shared.folders import every_group, group_folder, group_id_of
from weightctl.adapters.shared.layout import (
    GROUPS,
    PARTIAL,
    parse_stored,
)
from weightctl.adapters.shared.markers import Medium
from weightctl.adapters.shared.room import Room, medium_free_bytes
from weightctl.adapters.shared.root import Root
from weightctl.adapters.shared.translate import PERMANENT_ERRNOS, error_from_os
from weightctl.controller.core.observation import Members, TierObservation
from weightctl.controller.errors import (
    ConfigError,
    TerminalError,
    TransientError,
    require,
)
from weightctl.controller.ports import Corrupt, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weightctl.controller.core.observation import Member
    from weightctl.controller.ports import DropItem, Fence, InventoryItem


S = TypeVar("S")


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A complete replica: what reads of it name."""

    instance_id: str
    size_bytes: int
    path: str


class Engine:
    """One worker's engine.  Errors of the taxonomy only; it holds one draft or replica at a time.

    path: root folder; remembered: file of the state directory that holds the medium's uuid;
    host: what instance ids of this host begin with; uuid: drawn for this use of the tier, and the
    name of a root that is begun anew;
    read_only: nothing is made; holder: the store that acts.
    """

    def __init__(
        self,
        buffer: memoryview,
        *,
        path: str,
        remembered: str,
        host: str,
        uuid: str,
        read_only: bool = False,
        holder: str = "",
    ) -> None:
        self._buffer = buffer
        self._host, self._uuid, self._fresh_id = host, uuid, ""
        self._writers = Writers(host)
        self._path = Path(path)
        medium = Medium(
            self._path,
            "dfs",
            remembered=Path(remembered),
            durable=True,
            holder=holder,
            writer=f"{host}-{uuid}-{os.getpid()}",
        )
        self._root = Root(
            medium,
            Room(free_bytes=_free_bytes),
            durable=True,
            token=self._token,
            foreign=self._writers.is_strange,
        )
        self._read_only = read_only
        self._entered = False
        self._series: Writing | Verifying | None = None

    def enter(self) -> None:
        """Find or mark the medium.  Raises ConfigError; TransientError when it may come back."""
        if self._entered:
            return
        self._find()
        with self._root.medium.opened() as root_fd:
            self._writers.look_for_locks(root_fd)
        self._entered = True

    def _find(self) -> None:
        try:
            self._root.enter(read_only=self._read_only)
        except ConfigError as error:
            cause = error.__cause__
            if isinstance(cause, OSError) and cause.errno not in PERMANENT_ERRNOS:
                raise TransientError(error.what, error.why, error.todo) from error
            raise

    def adopt(self) -> str:
        """Make the root this store's; whose it was, empty when it was not another's."""
        with self._at_work("adopting", enter=False):
            self._find()
            return self._root.adopt()

    def admit(self, fence: Fence) -> None:
        """Refuse who is older from now on.  Raises FencedError."""
        with self._at_work("recording who acts"):
            self._root.admit(fence)

    def sweep(self) -> None:
        """Remove what killed writers of this host left."""
        with self._at_work("cleaning up"):
            removing.sweep(self._root)
            writers, living = f"{self._host}-", f"{self._host}-{self._uuid}-"
            with self._root.medium.opened() as root_fd:
                remove_unwritten(root_fd, writers, living)
                with suppress(FileNotFoundError), folder(root_fd, GROUPS) as groups_fd:
                    remove_unwritten(groups_fd, writers, living)

    # --- seeing ---

    def observe(
        self, members: Members | bytes, detail: Sequence[int]
    ) -> tuple[TierObservation, list[Stranger]]:
        """States, and the partial files of other hosts that make members PARTIAL.

        `members` may come pickled, so that the caller can do that off its loop.
        """
        asked = members
        if isinstance(asked, bytes):
            asked = cast("Members", pickle.loads(asked))  # noqa: S301 - from the parent process
        with self._at_work("observing"):
            observation = observing.observe(self._root, asked, detail)
            strangers = self._writers.strangers(self._root, asked, observation.states)
            return observation, list(strangers)

    def inventory(self, group_id: str) -> dict[str, list[InventoryItem]]:
        """What lies in that group, by group id; empty when it has gone."""
        with self._at_work("taking inventory"):
            return observing.inventory(self._root, group_id)

    def group_ids(self) -> list[str]:
        """Every group of which something is there."""
        with self._at_work("listing groups"), self._root.medium.opened() as root_fd:
            return [group_id_of(root_fd, name) for name, _ in every_group(root_fd)]

    def groups(self) -> dict[str, int]:
        """When each group's folder changed, in nanoseconds of the medium's clock, by its name."""
        with self._at_work("listing groups"), self._root.medium.opened() as root_fd:
            return {name: os.fstat(fd).st_mtime_ns for name, fd in every_group(root_fd)}

    def group_size(self, group: str) -> int:
        """Bytes of a group's replicas; 0 when it has gone.

        Partial files of this host are left out: room for them is reserved by the caller.
        """
        with (
            self._at_work("measuring a group"),
            self._root.medium.opened() as root_fd,
            suppress(FileNotFoundError),
            group_folder(root_fd, group) as group_fd,
            os.scandir(group_fd) as entries,
        ):
            return sum(map(self._size_of, entries))
        return 0

    def _size_of(self, entry: os.DirEntry[str]) -> int:
        name = parse_stored(entry.name)
        if name is not None and not (name.suffix == PARTIAL and self._writers.is_own(name)):
            with suppress(FileNotFoundError):  # removed since the listing
                return entry.stat(follow_symlinks=False).st_size
        return 0

    def free_bytes(self) -> int:
        """What the file system can still take, less a reserve."""
        with self._at_work("reading the capacity"), self._root.medium.opened() as root_fd:
            return _free_bytes(root_fd)

    # --- writing ---

    def standing(
        self, members: Sequence[Member], fence: Fence, still: frozenset[str]
    ) -> list[Outcome | None]:
        """What already answers a store of each member, by a new listing; None to `begin`.

        `still` as in `begin`.  Raises FencedError.
        """
        self._writers.still = still
        with self._at_work("looking before storing"):
            self._root.admit(fence)
            self._root.forget_listings()
            return writing.standing(self._root, members)

    def begin(
        self, member: Member, fence: Fence, random: str, still: frozenset[str]
    ) -> Outcome | None:
        """Hold a draft of `member`, or say why there is nothing to write.  Raises FencedError.

        random: fresh text for the instance id; still: instances of other hosts' partial files that
        have not changed for so long that they may be removed.
        """
        self.let_go()
        self._fresh_id, self._writers.still = self._host + random, still
        with self._at_work("beginning a replica"):
            self._root.admit(fence)
            draft = writing.begin(self._root, member)
            if not isinstance(draft, Draft):
                return draft
        self._series = Writing(self._root, draft)
        return None

    def write(self, at: int, offset: int, size_bytes: int) -> None:
        """Write `size_bytes` of the buffer, from `at`, to byte `offset` of the draft."""
        with self._at_work("writing a replica"):
            self._held(Writing).write(self._buffer[at : at + size_bytes], offset)

    def seal(self) -> Corrupt | None:
        """Check the draft and bring it to the medium."""
        with self._at_work("sealing a replica"):
            return self._held(Writing).seal()

    def publish(self, fence: Fence) -> Outcome:
        """Give the sealed draft its name and see by a fresh open that it is there."""
        with self._at_work("publishing a replica"):
            return self._held(Writing).publish(fence)

    def let_go(self) -> None:
        """Close what a series of calls holds open; an unpublished draft is removed."""
        series, self._series = self._series, None
        if series is not None:
            with self._at_work("letting go"):
                series.close()

    # --- reading ---

    def open(self, member: Member) -> Opened:
        """The complete replica of a member, as `reading.open_replica`."""
        with self._at_work("opening a replica"):
            replica = reading.open_replica(self._root, member)
            reading.close_replica(self._root, replica)
        return Opened(
            instance_id=replica.instance_id, size_bytes=replica.size_bytes, path=replica.path
        )

    def read(self, path: str, at: int, offset: int, size_bytes: int) -> None:
        """Read bytes of an opened replica into the buffer from `at` on.

        It is opened anew, so nothing keeps a dropped replica's bytes on the medium, and its name is
        that of one instance, so the bytes are of the replica that was opened.
        """
        with self._at_work(f"reading {path!r}"):
            fd = os.open(path, FILE_FLAGS)
            try:
                count = read_at(fd, self._buffer[at : at + size_bytes], offset)
            finally:
                os.close(fd)
        if count != size_bytes:
            raise TransientError(f"{path!r}", f"it ends before byte {offset + size_bytes}")

    def begin_verify(self, member: Member) -> int | Outcome:
        """Hold the member's replica for `digest`: its size, or Conflict when there is none."""
        self.let_go()
        with self._at_work("opening a replica"):
            opened = reading.open_to_verify(self._root, member)
        if not isinstance(opened, reading.OpenReplica):
            return opened
        self._series = Verifying(self._root, opened, self._buffer)
        return opened.size_bytes

    def digest(self, size_bytes: int) -> None:
        """Read and digest the next bytes."""
        with self._at_work("reading a replica back"):
            self._held(Verifying).digest(size_bytes)

    def end_verify(self) -> Outcome:
        """What the bytes that were read say."""
        outcome = self._held(Verifying).verdict()
        self.let_go()
        return outcome

    # --- removing ---

    def drop(self, batch: Sequence[DropItem], fence: Fence, still: frozenset[str]) -> list[Outcome]:
        """Remove the named instances; `still` as in `begin`."""
        self._writers.still = still
        with self._at_work("dropping"):
            self._root.forget_listings()
            return removing.drop(self._root, batch, fence)

    def quarantine(self, batch: Sequence[DropItem], fence: Fence) -> list[Outcome]:
        """Hide the named instances."""
        with self._at_work("quarantining"):
            self._root.forget_listings()
            return removing.quarantine(self._root, batch, fence)

    # --- inside ---

    def _token(self, _size_bytes: int) -> str:
        """The text that the caller gave for the medium, or else for the next instance."""
        return self._fresh_id if self._entered else self._uuid

    def _held(self, kind: type[S]) -> S:
        require(isinstance(self._series, kind), "a step was called without the one before it")
        return cast("S", self._series)

    @contextmanager
    def _at_work(self, what: str, *, enter: bool = True) -> Iterator[None]:
        try:
            if enter:
                self.enter()
            yield
        except ConfigError as error:
            raise TerminalError(error.what, error.why, error.todo) from error
        except OSError as error:
            raise error_from_os(error, f"{what} under {str(self._path)!r}") from error


def _free_bytes(root_fd: int) -> int:
    """What the file system can still take; no room at all means that it is not known."""
    if os.fstatvfs(root_fd).f_blocks == 0:
        raise TransientError(
            "the room of the file system is not known",
            "it counts no storage at all, as while none of its servers is connected",
            "see that its servers run; it is asked again by itself",
        )
    return medium_free_bytes(root_fd)
