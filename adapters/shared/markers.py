"""The marker of a tier's root: which medium this is.  Layer: adapters, shared; blocking.

Owns `weightctl-tier.json` (format version, uuid, kind, owner).  Invariant: nothing under a
root is read or changed unless that root, held open by descriptor, carries the expected marker; an
unmounted folder, a swapped medium or a removed root is therefore `MediumError` (UNKNOWN) and never
"empty", and that of another store is `ForeignMediumError`.  A root is given a marker only when it
is empty and nothing else is remembered for the tier.
"""

from __future__ import annotations

import json
import os
import re
import stat
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from weightctl.adapters.shared.files import (
    FOLDER_FLAGS,
    locked,
    make_path,
    read_small,
    write_new,
    write_small,
)
from weightctl.adapters.shared.ownership import is_foreign, refuse_foreign
from weightctl.adapters.shared.remembering import (
    UUID,
    read_remembered,
    refuse_second_name,
    settle_remembered,
    write_remembered,
)
from weightctl.controller.errors import ConfigError, TransientError
from weightctl.controller.ports import NOT_SET_UP, SET_UP_BY_USE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MARKER_FILE = "weightctl-tier.json"
FORMAT = 1

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NOT_CONTENT = re.compile(re.escape(MARKER_FILE) + r"\..+|lost\+found")
"""Left by somebody who was killed while beginning the root; part of a new file system."""
_ROOT_FLAGS = FOLDER_FLAGS & ~os.O_NOFOLLOW  # the root itself may be reached by a link


class MediumError(TransientError):
    """The expected medium is not under the root now; nothing was read or changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """What a marker file says."""

    uuid: str
    kind: str
    owner: str = ""
    """Holder of the store that it belongs to; empty while nobody has claimed it."""

    def encode(self) -> bytes:
        """The file's content."""
        content = {"format": FORMAT, "kind": self.kind, "uuid": self.uuid, "owner": self.owner}
        return json.dumps(content).encode()


class Medium:
    """One root folder and the medium that is expected there.

    holder: the store that acts, whose the root becomes; empty for none, to which all is open;
    remembered: file in the state directory that keeps the uuid of a persistent medium over
    restarts; None for one that may forget (memory), which is begun anew when it has gone;
    trusted: a folder of the one who may own the root, where others could have made it before;
    writer: as in `write_small`, for a medium on which no lock may reach every writer;
    misfit: why the file system of an open folder is not enough for what is asked of the tier.
    """

    def __init__(
        self,
        root: Path,
        kind: str,
        *,
        remembered: Path | None,
        durable: bool,
        holder: str = "",
        trusted: Path | None = None,
        writer: str = "new",
        misfit: Callable[[int], str] = lambda _: "",
    ) -> None:
        self.root = root
        self.writer = writer
        self._holder = holder
        self._read_only = False
        self._trusted = trusted
        self._misfit = misfit
        self._kind = kind
        self._remembered = remembered
        self._durable = durable
        self._uuid = ""

    def enter(self, token: Callable[[int], str], *, read_only: bool = False) -> None:
        """Learn which medium belongs here; mark a new, empty root.  Raises ConfigError.

        A remembered medium that is away is no error: until it is back, `opened` raises, as it does
        while the root belongs to another store.  With `read_only` nothing is made; a root that was
        never marked is then away, too.
        """
        self._read_only = read_only
        try:
            self._uuid = read_remembered(self._remembered)
            if self._uuid:
                if self._remembered is not None and not read_only:
                    settle_remembered(self._remembered)
                self._refuse_unusable()
                return
            if read_only:
                self._uuid = self._refuse_unusable()
                if self._uuid and self._remembered is not None:
                    refuse_second_name(self._remembered, self._uuid)
                return
            marker = self._read_or_make(token)
            self._uuid = marker.uuid
            if not is_foreign(marker.owner, self._holder):
                self._remember()
        except OSError as error:
            raise ConfigError(
                f"the root {str(self.root)!r} of a {self._kind} tier cannot be used",
                f"{error.strerror}: {error.filename}",
                "correct the path or its permissions",
            ) from error
        except ValueError as error:
            raise ConfigError(
                f"which medium belongs to the {self._kind} tier of {str(self.root)!r} is not known",
                f"{self._remembered} is damaged: {error}",
                f"write the uuid of the tier's {MARKER_FILE} into it",
            ) from error

    @property
    def read_only(self) -> bool:
        """Whether this is a dry run."""
        return self._read_only

    def epoch(self) -> str:
        """Changes when this tier may have forgotten what it held."""
        return self._uuid if self._remembered is not None else f"{boot_id()}:{self._uuid}"

    @contextmanager
    def opened(self) -> Iterator[int]:
        """Descriptor of the root, checked to be the expected medium and ours.

        A root that nobody has claimed becomes ours, unless this is a dry run.  Raises MediumError
        when it is not there, ForeignMediumError when it belongs to another store, OSError.
        """
        with self._marked() as (root_fd, marker):
            unclaimed = self._holder and not marker.owner and not self._read_only
            self._refuse_other_store(self._own(root_fd, over="") if unclaimed else marker)
            yield root_fd

    def adopt(self) -> str:
        """Make the root ours, whosever it is, durably.

        Whose it was; empty, and nothing is changed, when not another's.  MediumError, OSError.
        """
        with self._marked() as (root_fd, marker):
            if not is_foreign(marker.owner, self._holder):
                return ""
            self._refuse_other_store(self._own(root_fd, over=marker.owner))
            self._remember()
            return marker.owner

    def _own(self, root_fd: int, *, over: str) -> Marker:
        """Write our name over `over`, if that is still there; the marker that is then."""
        with locked(root_fd):
            marker = self._expected(root_fd)
            if marker.owner != over:
                return marker  # another store was quicker
            marker = replace(marker, owner=self._holder)
            raw = marker.encode()
            write_small(root_fd, MARKER_FILE, raw, durable=self._durable, writer=self.writer)
        return self._expected(root_fd)  # without locks two can write it; the last one stays

    def _refuse_other_store(self, marker: Marker) -> None:
        refuse_foreign(f"the folder {str(self.root)!r}", marker.owner, self._holder)

    @contextmanager
    def _marked(self) -> Iterator[tuple[int, Marker]]:
        """Descriptor of the root and its marker, checked to be the expected medium."""
        if not self._uuid:
            raise self._not_set_up()
        try:
            root_fd = os.open(self.root, _ROOT_FLAGS)
        except FileNotFoundError:
            raise self._away("the folder is not there") from None
        try:
            yield root_fd, self._expected(root_fd)
        finally:
            os.close(root_fd)

    def _expected(self, root_fd: int) -> Marker:
        try:
            self._refuse_untrusted(root_fd)
            marker = _read_marker(root_fd, self.root)
        except ConfigError as error:
            raise MediumError(error.what, error.why, error.todo) from None
        if marker is None:
            raise self._away(f"{MARKER_FILE} is missing, so it may not be mounted")
        if marker.uuid != self._uuid:
            raise self._away(f"it is medium {marker.uuid}, expected {self._uuid}")
        return marker

    def _not_set_up(self) -> MediumError:
        """Of a dry run: what the first use would do, or what is in its way."""
        why = self._in_the_way()
        return MediumError(
            f"{NOT_SET_UP}: {self.root}",
            why or "it was never used",
            "mend that first" if why else SET_UP_BY_USE,
        )

    def _in_the_way(self) -> str:
        folder = self.root
        while not folder.exists():
            folder = folder.parent
        folder_fd = os.open(folder, _ROOT_FLAGS)
        try:
            if folder == self.root:
                marker = _read_marker(folder_fd, folder)
                if marker is not None:
                    self._refuse_other_store(marker)
                elif foreign := _content(folder_fd):
                    return f"it is not empty and has no {MARKER_FILE} (it holds {foreign[0]!r})"
            if not os.access(folder, os.W_OK | os.X_OK):
                return f"{folder} cannot be written to"
            return self._misfit(folder_fd)
        finally:
            os.close(folder_fd)

    def _away(self, why: str) -> MediumError:
        todo = "mount the medium again"
        if self._remembered is not None:
            todo += (
                f"; to begin with another one, stop the controller and remove {self._remembered}"
            )
        return MediumError(f"the medium under {str(self.root)!r} is away", why, todo)

    def _remember(self) -> None:
        if self._remembered is not None:
            write_remembered(self._remembered, self._uuid, alone=True)

    def _refuse_unusable(self) -> str:
        """A medium that is there must be one that can be used; its uuid, or empty when away."""
        try:
            root_fd = os.open(self.root, _ROOT_FLAGS)
        except FileNotFoundError:
            return ""
        try:
            self._refuse_untrusted(root_fd)
            marker = _read_marker(root_fd, self.root)
            if marker is None:
                return ""
            self._check_kind(marker)
            return marker.uuid
        finally:
            os.close(root_fd)

    def _read_or_make(self, token: Callable[[int], str]) -> Marker:
        make_path(self.root, durable=self._durable)
        root_fd = os.open(self.root, _ROOT_FLAGS)
        try:
            self._refuse_untrusted(root_fd)
            marker = _read_marker(root_fd, self.root)
            if marker is not None:
                self._check_kind(marker)
                if self._durable:
                    os.fsync(root_fd)  # who made it need not have lived to do so
                return marker
            if foreign := _content(root_fd):
                raise ConfigError(
                    f"the root {str(self.root)!r} cannot be begun as a {self._kind} tier",
                    f"it has no {MARKER_FILE} and is not empty (it holds {foreign[0]!r})",
                    "give an empty folder, or mount the medium that belongs there",
                )
            fresh = Marker(uuid=token(16), kind=self._kind, owner=self._holder)
            raw = fresh.encode()
            if not write_new(root_fd, MARKER_FILE, raw, fresh=fresh.uuid, durable=self._durable):
                return self._read_or_make(token)  # another host of a shared medium was quicker
            return fresh
        finally:
            os.close(root_fd)

    def _refuse_untrusted(self, root_fd: int) -> None:
        """Who owns the root can put other bytes under any replica's name, unseen by `observe`."""
        if self._trusted is None:
            return
        root = os.fstat(root_fd)
        owners = {0, os.geteuid()}
        with suppress(FileNotFoundError):
            owners.add(self._trusted.stat().st_uid)
        open_to_all = root.st_mode & stat.S_IWOTH and not root.st_mode & stat.S_ISVTX
        if root.st_uid not in owners or open_to_all:
            raise ConfigError(
                f"the root {str(self.root)!r} of a {self._kind} tier is not trusted",
                f"it belongs to user {root.st_uid} with mode {stat.S_IMODE(root.st_mode):o}, so "
                "another user could put other bytes in place of a replica",
                "remove it, or name a folder that only the controller's user can write to",
            )

    def _check_kind(self, marker: Marker) -> None:
        if marker.kind != self._kind:
            raise ConfigError(
                f"the root {str(self.root)!r} cannot be used as a {self._kind} tier",
                f"its marker says that it belongs to a {marker.kind} tier",
                "give each tier a root of its own",
            )


def boot_id() -> str:
    """Identity of this boot of the machine.  Raises OSError where the kernel gives none."""
    return _BOOT_ID.read_text(encoding="ascii").strip()


def _content(root_fd: int) -> list[str]:
    with os.scandir(root_fd) as entries:
        return sorted(e.name for e in entries if not _NOT_CONTENT.fullmatch(e.name))


def _read_marker(root_fd: int, root: Path) -> Marker | None:
    raw = read_small(root_fd, MARKER_FILE)
    if raw is None:
        return None
    try:
        content = json.loads(raw)
        known = int(content["format"]) <= FORMAT
        marker = Marker(
            uuid=str(content["uuid"]),
            kind=str(content["kind"]),
            owner=str(content.get("owner", "")),
        )
        if not UUID.fullmatch(marker.uuid) or not UUID.fullmatch(marker.owner or "none"):
            raise ValueError(marker)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        raise ConfigError(
            f"the marker of {str(root)!r} cannot be read",
            f"{MARKER_FILE} is damaged",
            "restore it: format, kind and uuid as JSON",
        ) from None
    if not known:
        raise ConfigError(
            f"the root {str(root)!r} cannot be used",
            f"its format {content['format']} is newer than {FORMAT}",
            "use a newer weightctl",
        )
    return marker
