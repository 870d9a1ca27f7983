"""Replicas that were read back with a wrong digest.  Layer: core (pure).

A verdict holds for one stored instance in one epoch of its tier, for as long as that instance is
there.  It is never applied to another copy, and it is refuted only by something that was observed:
another instance or another epoch in its place.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weightctl.controller.core.identity import text_bytes
from weightctl.controller.core.observation import MemberState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weightctl.controller.core.observation import Members, TierObservation


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedReplica:
    """One replica of a group's member that does not have the recorded digest."""

    member_key: str
    tier: str
    instance_id: str
    epoch: str
    """Of the tier when it was read back."""
    found_sha256: bytes
    """What was read instead, raw; empty when the tier did not say."""
    at_ms: int
    """Wall clock, when it was read back."""


Suspects = dict[int, DamagedReplica]
"""Damaged replicas of one group in one tier, by member index."""


def suspects(damage: Iterable[DamagedReplica], members: Members) -> dict[str, Suspects]:
    """By tier, which members are to be looked at in detail; others' rows are left out."""
    found: dict[str, Suspects] = {}
    for row in damage:
        index = _index_of(row.member_key, members.keys)
        if index is not None:
            found.setdefault(row.tier, {})[index] = row
    return found


def mark_damaged(
    states: bytes, observation: TierObservation, suspected: Mapping[int, DamagedReplica]
) -> tuple[bytes, list[DamagedReplica]]:
    """(`states` with CORRUPT where the damaged instance lies, verdicts that are refuted).

    states: one byte a member, evidence merged in; observation: the tier's own answer, with details
    of the suspected members.  A finished replica whose instance the tier does not name is UNKNOWN:
    it may be the damaged one.  Where there is none, the verdict stays: nothing speaks against it.
    """
    if not suspected or not observation.epoch:
        return states, []
    marked = bytearray(states)
    refuted = []
    for index, row in suspected.items():
        if row.epoch != observation.epoch:
            refuted.append(row)
        elif observation.states[index] == MemberState.COMPLETE:
            detail = observation.details.get(index)
            if detail is None:
                marked[index] = MemberState.UNKNOWN
            elif detail.instance_id == row.instance_id:
                marked[index] = MemberState.CORRUPT
            else:
                refuted.append(row)
    return bytes(marked), refuted


def _index_of(key: str, keys: Sequence[str]) -> int | None:
    """Where a key stands in keys that are in the order of their bytes."""
    index = bisect_left(keys, text_bytes(key), key=text_bytes)
    return index if index < len(keys) and keys[index] == key else None
