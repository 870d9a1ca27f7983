"""Tier calls with outcomes turned into results or errors.  Layer: weightstore.

Owns the reading of outcomes on the import path: a passing fault is tried again a bounded number of
times (stores look before they write), what somebody else holds for a bounded time, and everything
else raises with the member's key.  What a tier did not confirm is not done.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

from weightctl.controller.core.observation import (
    Member,
    Members,
    MemberState,
    TierObservation,
    unknown_observation,
)
from weightctl.controller.errors import (
    CapacityError,
    ErrorCode,
    FencedError,
    IntegrityError,
    TerminalError,
    UnknownOutcomeError,
    WeightctlError,
    WeightError,
)
from weightctl.controller.ports import (
    Busy,
    Conflict,
    Corrupt,
    Done,
    Fenced,
    NoCapacity,
    NoOp,
    Retry,
    Unknown,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from weightctl.controller.ports import Clock, Fence, Limiter, Outcome, StoreItem, Tier
    from weightctl.controller.weightstore.options import WeightStoreOptions

BACKOFF_S = 0.2
PAUSE_S_MAX = 30.0
BUSY_PAUSE_S_MAX = 5.0
"""Between two looks at what is held until nobody knows when."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hands:
    """What every primitive of one import needs."""

    clock: Clock
    options: WeightStoreOptions
    fence: Fence
    limits: Mapping[str, Limiter]
    """The bandwidth of each tier that has one, by its name."""
    waits: Callable[[str], None] = lambda _: None
    """Told what is waited for, in words, before each pause for what somebody else holds."""

    def limit(self, tier: Tier) -> Limiter | None:
        """The tier's bandwidth; the other end of an import is a source outside of every tier."""
        return self.limits.get(tier.profile.name)


def as_members(group_id: str, members: Sequence[Member]) -> Members:
    """The arrays of a few members, to be observed."""
    return Members(
        group_id=group_id,
        keys=[member.key for member in members],
        sizes_bytes=array("Q", [member.size_bytes for member in members]),
        sha256=b"".join(member.sha256 for member in members),
        data_types=bytes(member.data_type for member in members),
    )


async def observe(
    tier: Tier, members: Members, deadline_s: float, *, detail: Sequence[int] = ()
) -> TierObservation:
    """The tier's answer, or UNKNOWN for all when it does not come in time."""
    with anyio.move_on_after(deadline_s):
        return await tier.observe(members, detail=detail)
    return unknown_observation(len(members), f"no answer within {deadline_s:g} s")


def complete_mask(states: bytes) -> bytes:
    """1 for each member with a COMPLETE replica, else 0."""
    return states.translate(_COMPLETE)


_COMPLETE = bytes(value in {MemberState.COMPLETE, MemberState.VERIFIED} for value in range(256))


def batches(members: Iterable[Member], options: WeightStoreOptions) -> Iterator[list[Member]]:
    """Consecutive members in batches of bounded bytes and count."""
    batch: list[Member] = []
    size = 0
    for member in members:
        if batch and (
            size + member.size_bytes > options.batch_bytes or len(batch) == options.batch_items
        ):
            yield batch
            batch, size = [], 0
        batch.append(member)
        size += member.size_bytes
    if batch:
        yield batch


async def store_all(
    tier: Tier, members: Sequence[Member], item_of: Callable[[Member], StoreItem], hands: Hands
) -> int:
    """Bring every member into the tier; returns the bytes that moved.  Raises what cannot pass.

    Trying again is safe after a lost answer too: the tier looks first, and says NoOp where the same
    content is there and Conflict where it is another one.
    """
    left, moved_bytes, tries = list(members), 0, Tries(tier, hands)
    while True:
        items = [item_of(member) for member in left]
        outcomes = await tier.store(items, hands.fence, limit=hands.limit(tier))
        again = _unfinished(tier, left, outcomes)
        moved_bytes += sum(one.moved_bytes for one in outcomes if isinstance(one, Done))
        if not again:
            return moved_bytes
        await tries.again(again)
        left = [member for member, _ in again]


async def verify_all(tier: Tier, members: Sequence[Member], hands: Hands) -> None:
    """Read every member back from the tier and compare digests.  Raises what cannot pass."""
    left, tries = list(members), Tries(tier, hands)
    while True:
        outcomes = await tier.verify(left, limit=hands.limit(tier))
        again = _unfinished(tier, left, outcomes)
        if not again:
            return
        await tries.again(again)
        left = [member for member, _ in again]


def _unfinished(
    tier: Tier, members: Sequence[Member], outcomes: Sequence[Outcome]
) -> list[tuple[Member, Outcome]]:
    """The members to try again; an item without an outcome is unknown.  Raises for the others."""
    again: list[tuple[Member, Outcome]] = []
    for index, member in enumerate(members):
        outcome = outcomes[index] if index < len(outcomes) else Unknown(detail="no answer for it")
        match outcome:
            case Done() | NoOp():
                continue
            case Busy() | Retry() | Unknown():
                again.append((member, outcome))
            case _:
                raise refusal(tier, member, outcome)
    return again


class Tries:
    """How long one primitive over some members is tried.

    What fails in passing counts by its number, what is only Busy by the time slept since fewer
    members were unfinished: as long as the tier knew at first, or else `busy_s`.
    """

    def __init__(self, tier: Tier, hands: Hands) -> None:
        self._tier = tier
        self._hands = hands
        self._failures = 0
        self._left = 0
        self._slept_s = 0.0
        self._patience_s = 0.0

    async def again(self, unfinished: Sequence[tuple[Member, Outcome]]) -> None:
        """Pause before the next try.  Raises UnknownOutcomeError when there is to be none."""
        member, last = unfinished[0]
        if len(unfinished) != self._left:
            self._left, self._slept_s = len(unfinished), 0.0
        failed = next((pair for pair in unfinished if not isinstance(pair[1], Busy)), None)
        if failed is not None:
            self._failures += 1
            if self._failures >= self._hands.options.attempts:
                raise self._given_up(*failed, f"it did not succeed in {self._failures} attempts")
            self._hands.waits(f"{failed[0].key}: {_said(failed[1])}")
            await self._hands.clock.sleep(self._pause_s(unfinished, self._failures - 1))
            return
        delay_s = self._held_s(unfinished)
        if self._slept_s >= self._patience_s:
            raise self._given_up(member, last, f"it was held for {self._slept_s:.0f} s")
        self._hands.waits(f"{member.key}: {_said(last)}")
        await self._hands.clock.sleep(delay_s)
        self._slept_s += delay_s

    def _held_s(self, unfinished: Sequence[tuple[Member, Outcome]]) -> float:
        """How long to sleep now; sets for how long altogether, when this begins."""
        known_s = self._known_s(unfinished)
        if not self._slept_s:
            self._patience_s = max(self._hands.options.busy_s, known_s)
        guess_s = min(max(BACKOFF_S, self._slept_s), BUSY_PAUSE_S_MAX)
        return min(known_s or guess_s, PAUSE_S_MAX)

    def _pause_s(self, unfinished: Sequence[tuple[Member, Outcome]], number: int) -> float:
        asked_s = [one.after_s for _, one in unfinished if isinstance(one, Retry)]
        known_s = self._known_s(unfinished)
        return min(max(BACKOFF_S * 2.0**number, known_s, *asked_s), PAUSE_S_MAX)

    def _known_s(self, unfinished: Sequence[tuple[Member, Outcome]]) -> float:
        """Until when the last of those that are held is, where the tier knows; else 0."""
        ends_ms = [one.until_ms or 0 for _, one in unfinished if isinstance(one, Busy)]
        left_ms = max(ends_ms, default=0) - self._hands.clock.wall_ms()
        return max(left_ms, 0) / 1000

    def _given_up(self, member: Member, last: Outcome, why: str) -> UnknownOutcomeError:
        return UnknownOutcomeError(
            f"object {member.key} is not confirmed in tier {self._tier.profile.name}",
            f"{why}; the last answer was {_said(last)}",
            "see what `weightctl doctor` says of the tier, then run the same command again:"
            " it resumes",
        )


def _said(outcome: Outcome) -> str:
    """An outcome for people."""
    detail = getattr(outcome, "detail", "")
    return type(outcome).__name__ + (f": {detail}" if detail else "")


def refusal(tier: Tier, member: Member, outcome: Outcome) -> WeightctlError:
    """What an outcome that cannot pass means for an import."""
    what = f"object {member.key} could not be written to tier {tier.profile.name}"
    match outcome:
        case NoCapacity(needed_bytes=needed, free_bytes=free, detail=detail):
            return CapacityError(
                needed,
                free,
                what,
                detail,
                "evict or delete something there, then run the same command again: it resumes",
            )
        case Corrupt(expected=expected, got=got):
            return IntegrityError(
                what,
                f"its bytes have SHA-256 {got.hex()}, expected {expected.hex()}",
                "check the source and the medium, then import again",
            )
        case Fenced(detail=detail):
            return FencedError(
                what,
                detail or "a newer holder has written to the tier",
                "let the newer holder do it; nothing was changed here",
            )
        case Conflict(detail=detail):
            return WeightError(
                ErrorCode.CONFLICT,
                what,
                detail,
                "another content lies under this key; remove it or import under a new generation",
            )
        case other:
            detail = getattr(other, "detail", "")
            return TerminalError(what, detail, "mend the tier, then run the same command again")
