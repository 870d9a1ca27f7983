"""From observation to availability and residency.  Layer: core (pure).

Every member counts, the manifest too.  The states of all tiers are folded into one byte of flags
per member by big-integer OR, so that the cost does not depend on Python-level work per member.  A
result is only certain when the unanswered states could not change it; otherwise it is None.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from weightctl.controller.core.identity import U64_MAX, payload_keys_digest
from weightctl.controller.core.observation import MemberState
from weightctl.controller.core.records import Availability, DataType, Residency

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from weightctl.controller.core.observation import Members
    from weightctl.controller.core.plan import TierView
    from weightctl.controller.core.records import ManifestReference

HOT = 1
"""A readable memory replica."""
COLD = 2
"""A readable replica in a cold tier."""
HOT_VERIFIED = 4
COLD_VERIFIED = 8
HOT_PENDING = 16
"""Some hot tier is still writing it or gave no answer."""
COLD_PENDING = 32
CORRUPT = 64
UNANSWERED = 128
"""Some tier gave no answer."""

_COMPLETE = (MemberState.COMPLETE, MemberState.VERIFIED)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """What a group's directory says, independent of where replicas lie; computed once a group."""

    member_count: int
    payload_count: int
    logical_bytes: int
    payload_keys_sha256: str
    manifest_index: int | None
    """Index of the only METADATA member, None when there is none or more than one."""
    types_known: bool

    def count_right(self, reference: ManifestReference) -> bool:
        """Whether there are as many members as the record promises; all that residency asks."""
        return self.member_count == reference.payload_count + 1

    def match(self, reference: ManifestReference, members: Members) -> bool:
        """Whether the directory is exactly what the record promises."""
        return (
            self.types_known
            and self.manifest_index is not None
            and members.keys[self.manifest_index] == reference.manifest_key
            and self.payload_count == reference.payload_count
            and self.count_right(reference)
            and self.logical_bytes == reference.logical_bytes <= U64_MAX
            and self.payload_keys_sha256 == reference.payload_keys_sha256
        )


def examine(members: Members) -> GroupFacts:
    """Facts of a group.  Cost: one sort and one hash over all keys, so keep the result."""
    types = members.data_types
    manifest = types.find(DataType.METADATA)
    single = manifest >= 0 and types.count(DataType.METADATA) == 1
    payload_count = types.count(DataType.WEIGHT)
    weights = [index for index, kind in enumerate(types) if kind == DataType.WEIGHT]
    return GroupFacts(
        member_count=len(members),
        payload_count=payload_count,
        logical_bytes=sum(map(members.sizes_bytes.__getitem__, weights)),
        payload_keys_sha256=payload_keys_digest(members.keys[index] for index in weights),
        manifest_index=manifest if single else None,
        types_known=payload_count + single == len(members),
    )


def _flags(state: int, hot: bool) -> int:  # noqa: FBT001 - a column of the table below
    good, verified, pending = (
        (HOT, HOT_VERIFIED, HOT_PENDING) if hot else (COLD, COLD_VERIFIED, COLD_PENDING)
    )
    match state:
        case MemberState.ABSENT:
            return 0
        case MemberState.PARTIAL:
            return pending
        case MemberState.COMPLETE:
            return good
        case MemberState.VERIFIED:
            return good | verified
        case MemberState.CORRUPT:
            return CORRUPT
        case _:
            return pending | UNANSWERED


_TABLES = {hot: bytes(_flags(state, hot) for state in range(256)) for hot in (False, True)}


def fold(views: Iterable[TierView], count: int) -> bytes:
    """One byte of the flags above per member, over all tiers."""
    folded = 0
    for view in views:
        folded |= int.from_bytes(view.states.translate(_TABLES[view.profile.hot]), "little")
    return folded.to_bytes(count, "little")


@lru_cache(maxsize=64)
def table(classify: Callable[[int], int]) -> bytes:
    """`classify` over all flag bytes, for `bytes.translate`; pass a module-level function."""
    return bytes(map(classify, range(256)))


@lru_cache(maxsize=64)
def _state_table(wanted: tuple[MemberState, ...]) -> bytes:
    return bytes(state in wanted for state in range(256))


def has_state(states: bytes, *wanted: MemberState) -> bytes:
    """Mask (0 or 1 a member) of the members in one of the wanted states."""
    return states.translate(_state_table(wanted))


def readable_mask(states: bytes) -> bytes:
    """Mask of the members with a readable replica in one tier."""
    return has_state(states, *_COMPLETE)


def _hot(flags: int) -> int:
    return flags & HOT


def _cold(flags: int) -> int:
    return flags & COLD


def _perhaps_hot(flags: int) -> int:
    return HOT if flags & HOT or (flags & UNANSWERED and flags & HOT_PENDING) else 0


def _perhaps_cold(flags: int) -> int:
    return COLD if flags & COLD or (flags & UNANSWERED and flags & COLD_PENDING) else 0


def _least(flags: int) -> int:
    """As if whoever did not answer held nothing."""
    return _hot(flags) | _cold(flags)


def _most(flags: int) -> int:
    """As if whoever did not answer held everything."""
    return _perhaps_hot(flags) | _perhaps_cold(flags)


def _coldest(flags: int) -> int:
    """As if only the silent cold tiers held everything."""
    return _hot(flags) | _perhaps_cold(flags)


def _is_unanswered(flags: int) -> int:
    return flags // UNANSWERED


def _judge(
    seen: bytes, *, complete_group: bool, count_right: bool
) -> tuple[Availability, Residency]:
    total = len(seen)
    nothing, hot_only, cold_only = seen.count(0), seen.count(HOT), seen.count(COLD)
    both = total - nothing - hot_only - cold_only
    complete = complete_group and total > 0 and nothing == 0
    if nothing == total:
        residency = Residency.ABSENT
    elif count_right and hot_only + both == total:
        residency = Residency.HOT
    elif count_right and cold_only == total:
        residency = Residency.COLD
    else:
        residency = Residency.MIXED
    return (Availability.READY if complete else Availability.DEGRADED), residency


def aggregate(
    folded: bytes, *, complete_group: bool, count_right: bool
) -> tuple[Availability | None, Residency | None]:
    """(availability, residency) of a published group; each None while it is not certain.

    folded: from `fold`; complete_group: from `GroupFacts.match`; count_right: from
    `GroupFacts.count_right`.  A group that is not as promised is DEGRADED, and still HOT or COLD
    where all of its members are.
    """

    def judged(seen: Callable[[int], int]) -> tuple[Availability, Residency]:
        flags = folded.translate(table(seen))
        return _judge(flags, complete_group=complete_group, count_right=count_right)

    least = judged(_least)
    if 1 not in folded.translate(table(_is_unanswered)):
        return least
    # Whatever the silent tiers hold lies between the least and the most.  Only COLD can be there
    # in between and at neither end, and then it is what the coldest answer gives.
    most, coldest = judged(_most), judged(_coldest)
    availability = least[0] if least[0] == most[0] else None
    certain = availability is not None and least[1] == most[1] == coldest[1]
    return availability, least[1] if certain else None
