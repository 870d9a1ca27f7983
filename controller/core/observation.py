"""What was seen of a payload group, as arrays.  Layer: core (pure).

Owns the member table of a group and one byte per member and tier.  Whatever was not answered is
UNKNOWN, and UNKNOWN never turns into ABSENT.  There is no object per member: a million members are
a few flat buffers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

from weightctl.controller.core.records import DataType
from weightctl.controller.errors import InvariantViolationError

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterator, Mapping, Sequence

SHA256_BYTES = 32


class MemberState(IntEnum):
    """State of one member's replica in one tier; the value is its byte in the arrays."""

    UNKNOWN = 0
    ABSENT = 1
    PARTIAL = 2
    COMPLETE = 3
    VERIFIED = 4
    """COMPLETE, and read back with the right digest recently enough in this epoch (evidence)."""
    CORRUPT = 5
    """There, but read back with a wrong digest; never counts as readable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One object of a payload group, for batches of bounded size."""

    group_id: str
    key: str
    size_bytes: int
    sha256: bytes
    """Raw digest, 32 bytes."""
    data_type: DataType = DataType.WEIGHT


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """Every member of one group, in key order (unsigned UTF-8 bytes).

    keys: n texts; sizes_bytes: n unsigned 64-bit; sha256: 32 * n bytes; data_types: n bytes of
    `DataType`; hard_pin: n bytes, 0 or 1.
    """

    group_id: str
    keys: Sequence[str]
    sizes_bytes: array[int]
    sha256: bytes
    data_types: bytes
    hard_pin: bytes = b""

    def __post_init__(self) -> None:
        count = len(self.keys)
        lengths = (len(self.sizes_bytes), len(self.sha256), len(self.data_types))
        if lengths != (count, SHA256_BYTES * count, count):
            what = f"group {self.group_id}"
            raise InvariantViolationError(what, f"{lengths} do not match {count} keys")

    def __len__(self) -> int:
        return len(self.keys)

    def digest(self, index: int) -> bytes:
        """Raw SHA-256 of member `index`."""
        return self.sha256[SHA256_BYTES * index : SHA256_BYTES * (index + 1)]

    def member(self, index: int) -> Member:
        """Member `index` as a value, for a batch."""
        return Member(
            group_id=self.group_id,
            key=self.keys[index],
            size_bytes=self.sizes_bytes[index],
            sha256=self.digest(index),
            data_type=DataType(self.data_types[index]),
        )

    def select(self, indexes: Sequence[int]) -> Iterator[Member]:
        """The members at `indexes`, in that order."""
        return map(self.member, indexes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDetail:
    """What a tier knows of one stored replica beyond its state byte."""

    instance_id: str
    """Names this stored copy, never reused for another one of the same key."""
    size_bytes: int
    sha256: bytes | None = None
    """Digest recorded when it was stored, if the tier keeps one; not proof of what lies there."""
    busy_until_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TierObservation:
    """One tier's answer for the asked members.

    states: one `MemberState` byte per asked member (UNKNOWN, ABSENT, PARTIAL or COMPLETE only);
    epoch: changes when the tier may have forgotten what it held, empty when it could not be read;
    details: by index into the asked members, for those asked in detail and present; of an ABSENT
    one, where a tier gives it, what lies under its key and is something else.
    """

    states: bytes
    epoch: str
    details: Mapping[int, ReplicaDetail] = field(default_factory=dict)
    problem: str = ""
    """Why states are UNKNOWN, for people; empty when the tier answered."""


def unknown_observation(count: int, problem: str) -> TierObservation:
    """The observation of a tier that gave no answer."""
    return TierObservation(states=bytes(count), epoch="", problem=problem)
