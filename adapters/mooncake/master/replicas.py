"""Reading the Master's answers: one state for one kind of replica.  Layer: a tier; pure.

An answer is read right into the few fields that are used, by a parser that holds it to their types:
measured, that takes half the time of reading it into dictionaries, which had to be looked through.
Invariant: a key without an answer is UNKNOWN; an answer of another form than is known is an error,
whole; a replica of another size than the member's is another content and never COMPLETE.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec import MsgspecError, Struct, field
from msgspec.json import Decoder

from weightctl.controller.core.observation import MemberState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


# Nothing of these can lie in a cycle: the collector need not look at them.
class InMemory(Struct, frozen=True, gc=False):
    """A replica in the memory of a host, or behind NVMe-oF."""

    size_bytes: int = field(name="size_")
    endpoint: str = field(name="transport_endpoint_")
    address: int = field(name="buffer_address_")

    @property
    def place(self) -> str:
        """What tells one stored copy from another."""
        return f"{self.endpoint}|{self.address}"


class OnLocalDisk(Struct, frozen=True, gc=False):
    """A replica on the disk of a host."""

    size_bytes: int = field(name="object_size")
    place: str = field(name="client_id")
    """The client that its host is; another one after each start of the host."""
    endpoint: str = field(name="transport_endpoint", default="")
    """Where its host gives it to readers, host:port."""


class OnDisk(Struct, frozen=True, gc=False):
    """A replica below the Master's `root_fs_dir`."""

    size_bytes: int = field(name="object_size")
    place: str = field(name="file_path")


Replica = InMemory | OnLocalDisk | OnDisk


class Entry(Struct, frozen=True, gc=False):
    """What the Master says of one key."""

    ok: bool
    error: str | None = None
    memory: list[InMemory] | None = field(name="values", default=None)
    disk: list[OnDisk] | None = field(name="disk_values", default=None)
    local_disk: list[OnLocalDisk] | None = field(name="local_disk_values", default=None)
    nof: list[InMemory] | None = field(name="nof_values", default=None)


NEVER_THERE = Entry(ok=False, error="OBJECT_NOT_FOUND")
"""Of a key that weightctl can never have put: no object of a member is there, whoever asks."""


class _Told(Entry, frozen=True, gc=False, kw_only=True):
    """An entry as the Master sends it: with every list, null for none.

    One that is missing, as when a release names it otherwise, must not be taken for "none".
    """

    memory: list[InMemory] | None = field(name="values")
    disk: list[OnDisk] | None = field(name="disk_values")
    local_disk: list[OnLocalDisk] | None = field(name="local_disk_values")
    nof: list[InMemory] | None = field(name="nof_values")


class _Answer(Struct, gc=False):
    success: bool
    data: dict[str, _Told]


_ANSWER = Decoder(_Answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaKind:
    """One kind of replica: where the answer lists it, and what can be done with one."""

    kind: str
    """Entry-point name of its tier."""
    hot: bool
    listed: Callable[[Entry], Sequence[Replica] | None]
    made_by: str
    """What makes such a replica, for people."""
    observe_only: bool = False
    """Nothing that weightctl may call makes one."""


MEMORY = ReplicaKind(
    kind="mooncake-memory",
    hot=True,
    listed=attrgetter("memory"),
    made_by="a put, or a promotion: start the Master with --promotion_on_hit=true",
)
LOCAL_DISK = ReplicaKind(
    kind="mooncake-local-disk",
    hot=False,
    listed=attrgetter("local_disk"),
    made_by="its host, soon after the put: start the Master with --enable_offload=true and the"
    " hosts with enable_ssd_offload",
)
DISK = ReplicaKind(
    kind="mooncake-disk",
    hot=False,
    listed=attrgetter("disk"),
    made_by="the put of its object: start the Master with --root_fs_dir, and mount that folder here"
    " and on its hosts",
)
NOF = ReplicaKind(
    kind="mooncake-nof",
    hot=False,
    listed=attrgetter("nof"),
    made_by="a Mooncake that was built with NoF, which the released wheel was not",
    observe_only=True,
)
KINDS = {kind.kind: kind for kind in (MEMORY, LOCAL_DISK, DISK, NOF)}
COLD_KINDS = (LOCAL_DISK, DISK, NOF)


def entries_of(body: bytes) -> Mapping[str, Entry]:
    """The answer for each key.  Raises ValueError when it has another form."""
    try:
        answer = _ANSWER.decode(body)
    except (MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from error
    if not answer.success:
        raise ValueError("it tells no success")
    return answer.data


def replicas_of(entry: Entry | None, kind: ReplicaKind) -> Sequence[Replica]:
    """The replicas of one kind in the answer for one key."""
    return () if entry is None else kind.listed(entry) or ()


def in_memory(entry: Entry | None) -> Sequence[InMemory]:
    """The replicas in memory in the answer for one key."""
    return () if entry is None else entry.memory or ()


def state_of(entry: Entry | None, kind: ReplicaKind, size_bytes: int) -> MemberState:
    """The state of a member in the tier of one kind."""
    if entry is None:
        return MemberState.UNKNOWN
    if not entry.ok:
        match entry.error:
            case "OBJECT_NOT_FOUND":
                return MemberState.ABSENT
            case "REPLICA_IS_NOT_READY":
                return MemberState.PARTIAL
            case _:
                return MemberState.UNKNOWN
    found = kind.listed(entry)
    if found and found[0].size_bytes == size_bytes:
        return MemberState.COMPLETE
    return MemberState.ABSENT


def states_of(
    entries: Mapping[str, Entry],
    keys: Sequence[str],
    kind: ReplicaKind,
    sizes_bytes: Sequence[int],
) -> bytes:
    """The states of members, one byte each, as `state_of`."""
    return bytes(map(state_of, map(entries.get, keys), repeat(kind), sizes_bytes))


def is_there(entry: Entry | None) -> bool:
    """Whether the object exists in any kind."""
    return entry is not None and entry.ok


def is_absent(entry: Entry | None) -> bool:
    """Whether the Master says that there is no such object."""
    return entry is not None and not entry.ok and entry.error == "OBJECT_NOT_FOUND"


def size_of(entry: Entry | None) -> int | None:
    """Size of the object, from whatever replica it has."""
    for kind in KINDS.values():
        for replica in replicas_of(entry, kind):
            return replica.size_bytes
    return None


def has_cold(entry: Entry, size_bytes: int) -> bool:
    """Whether Mooncake itself holds a complete replica outside memory."""
    return any(state_of(entry, kind, size_bytes) is MemberState.COMPLETE for kind in COLD_KINDS)


def place_of(entry: Entry, kind: ReplicaKind) -> str:
    """A short digest of where the replicas of a kind lie."""
    raw = "\n".join(sorted(replica.place for replica in replicas_of(entry, kind)))
    return hashlib.blake2s(raw.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
