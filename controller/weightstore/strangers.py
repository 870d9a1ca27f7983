"""What lies under the keys of an import before it has put anything.  Layer: weightstore.

Shared by the import and its preview.  A tier may tell the content of what it shows, or that nobody
knows it; then it has to be read, which the preview does not.  The manifest names the moment at
which its revision is recorded: what lies under its key before that is another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weightctl.controller.core.observation import MemberState
from weightctl.controller.ports import Busy, Conflict, Corrupt, Outcome, Retry, Unknown
from weightctl.controller.weightstore.candidate import UNKNOWN_DIGEST
from weightctl.controller.weightstore.primitives import (
    Hands,
    Tries,
    batches,
    complete_mask,
    observe,
    refusal,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weightctl.controller.core.observation import Member, Members, TierObservation
    from weightctl.controller.errors import WeightctlError
    from weightctl.controller.ports import Tier

_OTHER_BYTES = Conflict(detail="an object with other bytes lies under its key")
_OTHER_MANIFEST = Conflict(detail="a manifest of an earlier revision of this name lies there")


def is_shown(seen: TierObservation) -> bool:
    """Whether something lies under a key."""
    return MemberState.COMPLETE in seen.states or bool(seen.details)


def conflicts(
    tier: Tier, seen: TierObservation, members: Members
) -> list[tuple[Member, WeightctlError]]:
    """What is known to be another content, payloads first, with what an import is refused with.

    members: with the digests of all payloads where anything is shown; `seen` has every detail.
    """
    found = []
    for index in sorted(_shown(seen), key=lambda one: (members.data_types[one], one)):
        member = members.member(index)
        other = _other(member, seen, index)
        if other is not None:
            found.append((member, refusal(tier, member, other)))
    return found


def unread(seen: TierObservation, members: Members) -> list[Member]:
    """Members of whose very size something is there, of which nobody knows the content."""
    return [
        members.member(index)
        for index, complete in enumerate(complete_mask(seen.states))
        if complete and _digest(seen, index) is None
    ]


async def refuse(tier: Tier, members: Members, hands: Hands) -> None:
    """Raise what an import into this tier would be refused with for what lies there.

    What nobody knows is read, as the import would, with its patience.
    """
    everything = range(len(members))
    seen = await observe(tier, members, hands.options.observe_deadline_s, detail=everything)
    for _, error in conflicts(tier, seen, members):
        raise error
    for batch in batches(unread(seen, members), hands.options):
        await _read(tier, batch, hands)


async def _read(tier: Tier, batch: Sequence[Member], hands: Hands) -> None:
    left, tries = list(batch), Tries(tier, hands)
    while left:
        outcomes = await tier.verify(left, limit=hands.limit(tier))
        again: list[tuple[Member, Outcome]] = []
        for index, member in enumerate(left):
            outcome = outcomes[index] if index < len(outcomes) else Unknown(detail="no answer")
            if isinstance(outcome, Corrupt):
                raise refusal(tier, member, _OTHER_BYTES)
            if isinstance(outcome, Busy | Retry | Unknown):
                again.append((member, outcome))
        if again:
            await tries.again(again)
        left = [member for member, _ in again]


def _shown(seen: TierObservation) -> Iterator[int]:
    complete = complete_mask(seen.states)
    return (index for index in range(len(complete)) if complete[index] or index in seen.details)


def _digest(seen: TierObservation, index: int) -> bytes | None:
    detail = seen.details.get(index)
    return None if detail is None else detail.sha256


def _other(member: Member, seen: TierObservation, index: int) -> Conflict | None:
    """Why what lies there is another content; None when it is not known to be."""
    detail = seen.details.get(index)
    if detail is not None and detail.size_bytes != member.size_bytes:
        there = f"an object of {detail.size_bytes} bytes lies under its key"
        return Conflict(detail=f"{there}, it has {member.size_bytes}")
    if member.sha256 == UNKNOWN_DIGEST:
        return _OTHER_MANIFEST
    known = _digest(seen, index)
    return None if known in (None, member.sha256) else _OTHER_BYTES
