"""Opening and verifying replicas.  Layer: adapters, shared; blocking.

Invariants: what is open here is not dropped from here; a replica that has another size or was
stored with another digest is never handed out; verifying reads what the medium holds, not what a
cache remembers, and a verified replica is on the medium, whoever wrote it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weightctl.adapters.shared.files import FILE_FLAGS, read_at
from weightctl.adapters.shared.folders import group_folder
from weightctl.adapters.shared.layout import encode_text
from weightctl.adapters.shared.observing import choose
from weightctl.adapters.shared.translate import outcome_from_error
from weightctl.controller.errors import (
    BusyError,
    IntegrityError,
    ReconcileError,
    TransientError,
)
from weightctl.controller.ports import Conflict, Corrupt, Done, Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weightctl.adapters.shared.layout import StoredName
    from weightctl.adapters.shared.root import Root
    from weightctl.adapters.shared.streaming import Copy
    from weightctl.controller.core.observation import Member


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenReplica:
    """An open replica; `close_replica` lets it go."""

    member: Member
    instance_id: str
    fd: int
    size_bytes: int
    path: str
    """Where it lay when it was opened."""

    def read_into(self, view: memoryview, offset: int) -> None:
        """Fill the view.  Raises TransientError when the file is too short, OSError."""
        if read_at(self.fd, view, offset) != len(view):
            what = f"replica {self.instance_id} of {self.member.key!r}"
            raise TransientError(what, f"it ends before byte {offset + len(view)}", "verify it")


def open_replica(root: Root, member: Member) -> OpenReplica:
    """Open the complete replica of a member.

    Raises TransientError when there is none, BusyError while it is written, IntegrityError when it
    has another size or digest than the member, MediumError, OSError.
    """
    replica = _open(root, member)
    if replica is None:
        if encode_text(member.key) in root.claimed(encode_text(member.group_id)):
            raise BusyError(None, f"{member.key!r} is being written", "not complete", "try later")
        raise TransientError(f"{member.key!r} is not there", "no replica", "observe again")
    recorded, found = replica
    if recorded != member.sha256 or found.size_bytes != member.size_bytes:
        close_replica(root, found)
        raise IntegrityError(
            f"replica {found.instance_id} of {member.key!r} is not what was stored",
            f"{found.size_bytes} bytes, recorded digest {recorded.hex()}",
            "verify it; it is quarantined and repaired from another tier",
        )
    return found


def close_replica(root: Root, replica: OpenReplica) -> None:
    """Close it and allow dropping it.  Raises OSError; it is let go all the same."""
    try:
        os.close(replica.fd)
    finally:
        root.end_reading(encode_text(replica.member.group_id), replica.instance_id)


def _open(root: Root, member: Member) -> tuple[bytes, OpenReplica] | None:
    """Recorded digest and open replica; a stale hint costs one fresh listing."""
    group, text = encode_text(member.group_id), encode_text(member.key)
    with root.medium.opened() as root_fd:
        try:
            with group_folder(root_fd, group) as group_fd:
                names = root.likely_names(group, group_fd, text)
                found = _open_named(root, member, group_fd, names)
                if found is None:
                    names = root.fresh_names(group, group_fd, text)
                    found = _open_named(root, member, group_fd, names)
                return found
        except FileNotFoundError:
            return None


def _open_named(
    root: Root, member: Member, group_fd: int, names: Sequence[StoredName]
) -> tuple[bytes, OpenReplica] | None:
    group = encode_text(member.group_id)
    written = root.claimed(group).get(encode_text(member.key))
    settled = [name for name in names if not name.suffix and name.instance_id != written]
    if not settled:
        return None
    name = choose(settled, member.sha256)
    root.begin_reading(group, name.instance_id)  # before it is open: a drop must see it
    fd = -1
    try:
        fd = os.open(str(name), FILE_FLAGS, dir_fd=group_fd)
        size_bytes = os.fstat(fd).st_size
    except BaseException as error:
        root.end_reading(group, name.instance_id)
        if fd >= 0:
            os.close(fd)
        elif isinstance(error, FileNotFoundError):
            return None
        raise
    replica = OpenReplica(
        member=member,
        instance_id=name.instance_id,
        fd=fd,
        size_bytes=size_bytes,
        path=str(root.medium.root / "groups" / group / str(name)),
    )
    return bytes.fromhex(name.sha256_hex), replica


def verify(root: Root, member: Member, copy: Copy) -> Outcome:
    """Read a member's replica back from the medium and digest it."""
    try:
        replica = open_to_verify(root, member)
        if not isinstance(replica, OpenReplica):
            return replica
        try:
            got = copy(replica.read_into, _nowhere, replica.size_bytes)
        finally:
            close_replica(root, replica)
    except (ReconcileError, OSError) as error:
        return outcome_from_error(error, expected_sha256=member.sha256)
    if got != member.sha256 or replica.size_bytes != member.size_bytes:
        return Corrupt(expected=member.sha256, got=got, instance_id=replica.instance_id)
    return Done(instance_id=replica.instance_id, moved_bytes=replica.size_bytes)


def open_to_verify(root: Root, member: Member) -> OpenReplica | Conflict:
    """Open a member's replica, whatever it holds, so that reads come from the medium.

    Raises MediumError, OSError.  `close_replica` lets it go.
    """
    opened = _open(root, member)
    if opened is None:
        return Conflict(detail="no complete replica is there")
    _, replica = opened
    try:
        if root.durable:
            _reach_the_medium(root, replica)
    except BaseException:
        close_replica(root, replica)
        raise
    return replica


def _reach_the_medium(root: Root, replica: OpenReplica) -> None:
    """Write back what is not there yet, then forget the cached pages, so that reading is proof."""
    os.fsync(replica.fd)
    group = encode_text(replica.member.group_id)
    with root.medium.opened() as root_fd, group_folder(root_fd, group) as group_fd:
        os.fsync(group_fd)  # in every case: who published it need not be of this process
        root.settle(group, group_fd)
    os.posix_fadvise(replica.fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.posix_fadvise(replica.fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)


def _nowhere(view: memoryview, offset: int) -> None:
    """Verifying keeps nothing."""
