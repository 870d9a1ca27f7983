"""Reading the Master's answers: one state for one kind of replica.  Layer: a tier; pure.

Invariant: a key without an answer is UNKNOWN; a replica of another size than the member's is
another content and never COMPLETE.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weightctl.controller.core.observation import MemberState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weightctl.adapters.mooncake.admin import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaKind:
    """One kind of replica: where the answer lists it, and what can be done with one."""

    kind: str
    """Entry-point name of its tier."""
    hot: bool
    field: str
    size_field: str
    place_fields: tuple[str, ...]
    """What tells one stored copy from another."""
    made_by: str
    """What makes such a replica, for people."""


MEMORY = ReplicaKind(
    kind="mooncake-memory",
    hot=True,
    field="values",
    size_field="size_",
    place_fields=("transport_endpoint_", "buffer_address_"),
    made_by="a put, or a promotion: start the Master with --promotion_on_hit=true",
)
LOCAL_DISK = ReplicaKind(
    kind="mooncake-local-disk",
    hot=False,
    field="local_disk_values",
    size_field="object_size",
    place_fields=("client_id",),
    made_by="its host, soon after the put: start the Master with --enable_offload=true and the"
    " hosts with enable_ssd_offload",
)
DISK = ReplicaKind(
    kind="mooncake-disk",
    hot=False,
    field="disk_values",
    size_field="object_size",
    place_fields=("file_path",),
    made_by="the put itself: start the Master with --root_fs_dir",
)
NOF = ReplicaKind(
    kind="mooncake-nof",
    hot=False,
    field="nof_values",
    size_field="size_",
    place_fields=("transport_endpoint_", "buffer_address_"),
    made_by="a Mooncake that was built with NoF, which the released wheel was not",
)
_FIELDS = tuple(kind.field for kind in (MEMORY, LOCAL_DISK, DISK, NOF))
_NESTED = frozenset({dict, list})
KINDS = {kind.kind: kind for kind in (MEMORY, LOCAL_DISK, DISK, NOF)}
COLD_KINDS = (LOCAL_DISK, DISK, NOF)


def is_entry(answer: object) -> bool:
    """Whether the answer for one key has the form that the functions below read.

    Plain loops: it is asked for every key of every answer, and costs half as much like this.
    """
    if type(answer) is not dict:
        return False
    for field in _FIELDS:
        found = answer.get(field)
        if found is not None and not _are_replicas(found):
            return False
    return True


def _are_replicas(found: object) -> bool:
    if type(found) is not list:
        return False
    for one in found:
        if type(one) is not dict:
            return False
        for value in one.values():
            if type(value) in _NESTED:
                return False
    return True


def replicas_of(entry: Entry, kind: ReplicaKind) -> Sequence[Mapping[str, Any]]:
    """The replicas of one kind in the answer for one key."""
    return entry.get(kind.field) or ()


def state_of(entry: Entry | None, kind: ReplicaKind, size_bytes: int) -> MemberState:
    """The state of a member in the tier of one kind."""
    if entry is None:
        return MemberState.UNKNOWN
    if entry.get("ok") is not True:
        match entry.get("error"):
            case "OBJECT_NOT_FOUND":
                return MemberState.ABSENT
            case "REPLICA_IS_NOT_READY":
                return MemberState.PARTIAL
            case _:
                return MemberState.UNKNOWN
    found = entry.get(kind.field)
    if not found:
        return MemberState.ABSENT
    if found[0].get(kind.size_field) == size_bytes:
        return MemberState.COMPLETE
    return MemberState.ABSENT


def is_there(entry: Entry | None) -> bool:
    """Whether the object exists in any kind."""
    return entry is not None and entry.get("ok") is True


def is_absent(entry: Entry | None) -> bool:
    """Whether the Master says that there is no such object."""
    return entry is not None and entry.get("error") == "OBJECT_NOT_FOUND"


def size_of(entry: Entry) -> int | None:
    """Size of the object, from whatever replica it has."""
    for kind in KINDS.values():
        for replica in replicas_of(entry, kind):
            size = replica.get(kind.size_field)
            if isinstance(size, int):
                return size
    return None


def has_cold(entry: Entry, size_bytes: int) -> bool:
    """Whether Mooncake itself holds a complete replica outside memory."""
    return any(state_of(entry, kind, size_bytes) is MemberState.COMPLETE for kind in COLD_KINDS)


def place_of(entry: Entry, kind: ReplicaKind) -> str:
    """A short digest of where the replicas of a kind lie."""
    places = sorted(
        "|".join(str(replica.get(name)) for name in kind.place_fields)
        for replica in replicas_of(entry, kind)
    )
    raw = "\n".join(places).encode("utf-8", "surrogatepass")  # as JSON escapes may spell it
    return hashlib.blake2s(raw, digest_size=6).hexdigest()
