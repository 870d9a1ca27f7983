"""Tier calls with outcomes turned into results or errors.  Layer: weightstore.

Owns the reading of outcomes on the import path: a passing fault is tried again a bounded number of
times (stores look before they write), everything else raises with the member's key.  What a tier
did not confirm is not done.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

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
BUSY_S_MAX = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hands:
    """What every primitive of one import needs."""

    clock: Clock
    options: WeightStoreOptions
    fence: Fence
    limits: Mapping[str, Limiter]
    """The bandwidth of each tier that has one, by its name."""

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
    left, again = list(members), _untried(members)
    moved_bytes = 0
    for attempt in range(hands.options.attempts):
        items = [item_of(member) for member in left]
        outcomes = await tier.store(items, hands.fence, limit=hands.limit(tier))
        again = _unfinished(tier, left, outcomes)
        moved_bytes += sum(one.moved_bytes for one in outcomes if isinstance(one, Done))
        if not again:
            return moved_bytes
        await pause(hands, attempt, [outcome for _, outcome in again])
        left = [member for member, _ in again]
    raise _given_up(tier, *again[0], hands.options.attempts)


async def verify_all(tier: Tier, members: Sequence[Member], hands: Hands) -> None:
    """Read every member back from the tier and compare digests.  Raises what cannot pass."""
    left, again = list(members), _untried(members)
    for attempt in range(hands.options.attempts):
        outcomes = await tier.verify(left, limit=hands.limit(tier))
        again = _unfinished(tier, left, outcomes)
        if not again:
            return
        await pause(hands, attempt, [outcome for _, outcome in again])
        left = [member for member, _ in again]
    raise _given_up(tier, *again[0], hands.options.attempts)


def _untried(members: Sequence[Member]) -> list[tuple[Member, Outcome]]:
    return [(member, Unknown(detail="it was not tried")) for member in members]


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
                _refuse(tier, member, outcome)
    return again


async def pause(hands: Hands, attempt: int, outcomes: Sequence[Outcome]) -> None:
    """Wait before the next attempt, as long as the outcomes ask for."""
    delay_s = BACKOFF_S * 2**attempt
    for outcome in outcomes:
        match outcome:
            case Retry(after_s=after_s):
                delay_s = max(delay_s, after_s)
            case Busy(until_ms=int() as until_ms):
                delay_s = max(delay_s, (until_ms - hands.clock.wall_ms()) / 1000)
            case _:
                pass
    await hands.clock.sleep(min(delay_s, BUSY_S_MAX))


def _given_up(tier: Tier, member: Member, last: Outcome, attempts: int) -> UnknownOutcomeError:
    said = type(last).__name__ + (f": {detail}" if (detail := getattr(last, "detail", "")) else "")
    return UnknownOutcomeError(
        f"object {member.key} is not confirmed in tier {tier.profile.name}",
        f"it did not succeed in {attempts} attempts; the last answer was {said}",
        "see what `weightctl doctor` says of the tier, then run the same command again: it resumes",
    )


def _refuse(tier: Tier, member: Member, outcome: Outcome) -> NoReturn:
    what = f"object {member.key} could not be written to tier {tier.profile.name}"
    match outcome:
        case NoCapacity(needed_bytes=needed, free_bytes=free, detail=detail):
            raise CapacityError(
                needed,
                free,
                what,
                detail,
                "evict or delete something there, then run the same command again: it resumes",
            )
        case Corrupt(expected=expected, got=got):
            raise IntegrityError(
                what,
                f"its bytes have SHA-256 {got.hex()}, expected {expected.hex()}",
                "check the source and the medium, then import again",
            )
        case Fenced(detail=detail):
            raise FencedError(
                what,
                detail or "a newer holder has written to the tier",
                "let the newer holder do it; nothing was changed here",
            )
        case Conflict(detail=detail):
            raise WeightError(
                ErrorCode.CONFLICT,
                what,
                detail,
                "another content lies under this key; remove it or import under a new generation",
            )
        case other:
            detail = getattr(other, "detail", "")
            raise TerminalError(what, detail, "mend the tier, then run the same command again")
