"""What the tiers show and hold of a candidate, and what is in the way.  Layer: weightstore.

Looking takes nothing and changes nothing; reading asks each tier for the digest of every complete
replica that it shows, which is the only way to learn a digest that no manifest holds.  Invariant:
what was not answered is never taken for absent, and a replica that was not read counts for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from weightctl.controller.core.observation import Member, MemberState, ReplicaDetail
from weightctl.controller.errors import (
    IntegrityError,
    NothingReadableError,
    ReconcileError,
    UnknownOutcomeError,
    WeightctlError,
)
from weightctl.controller.ports import NOT_SET_UP, Busy, Corrupt, Retry, Unknown
from weightctl.controller.weightstore.candidate import UNKNOWN_DIGEST
from weightctl.controller.weightstore.primitives import Tries, batches, observe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from weightctl.controller.core.observation import TierObservation
    from weightctl.controller.ports import Outcome, Tier
    from weightctl.controller.weightstore.candidate import Candidate
    from weightctl.controller.weightstore.primitives import Hands

_AGAIN = "nothing was changed; look again when it has ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """Why a candidate cannot be adopted, or a source imported: one object in one tier, or (no key)
    a whole tier, or (no tier either) the whole of it.
    """

    key: str
    tier: str
    error: WeightctlError


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What one tier shows: indexes of the members with a complete replica, and their details."""

    tier: Tier
    complete: Sequence[int]
    details: Mapping[int, ReplicaDetail]


@dataclass(slots=True, kw_only=True)
class Look:
    """One look at every tier."""

    held: list[Held] = field(default_factory=list)
    obstacles: list[Obstacle] = field(default_factory=list)
    undecided: set[int] = field(default_factory=set)
    """Members of which some tier did not say whether it has them."""

    def holders(self, index: int) -> list[Held]:
        """The tiers with a complete replica of a member."""
        return [held for held in self.held if index in held.details]


@dataclass(slots=True, kw_only=True)
class Reading:
    """What was read: (digest, instance id) by member index and tier name."""

    digests: dict[int, dict[str, tuple[bytes, str]]] = field(default_factory=dict)
    obstacles: list[Obstacle] = field(default_factory=list)
    read_bytes: int = 0


# --- looking --------------------------------------------------------------------------------------


async def look(candidate: Candidate, tiers: Sequence[Tier], deadline_s: float) -> Look:
    """Ask every tier for every member.  A manifest that no tier has is no obstacle."""
    found = Look()
    count = len(candidate.members)
    for tier in tiers:
        seen = await observe(tier, candidate.members, deadline_s, detail=range(count))
        if not any(seen.states) and NOT_SET_UP in seen.problem:
            continue  # a medium that nobody has used yet
        _note(found, candidate, tier, seen)
    for index in range(count):
        missing = not found.holders(index) and index not in found.undecided
        if missing and index != candidate.manifest_index:
            key, size = candidate.members.keys[index], candidate.members.sizes_bytes[index]
            error = NothingReadableError(
                f"object {key} is in no tier",
                f"no tier shows a complete replica of {size} bytes; one of another size is none",
                "bring it back, or adopt with the manifest of what is there",
            )
            found.obstacles.append(Obstacle(key=key, tier="", error=error))
    return found


def _note(found: Look, candidate: Candidate, tier: Tier, seen: TierObservation) -> None:
    name, members = tier.profile.name, candidate.members
    if not any(seen.states):
        found.undecided |= set(range(len(members)))
        error = UnknownOutcomeError(
            f"tier {name} does not say what it holds",
            seen.problem or "it gave no answer",
            "an object that nobody can see is not proven: see `weightctl doctor`, then look again",
        )
        found.obstacles.append(Obstacle(key="", tier=name, error=error))
        return
    details: dict[int, ReplicaDetail] = {}
    for index, state in enumerate(seen.states):
        detail = seen.details.get(index)
        if state == MemberState.ABSENT and detail is None:
            continue
        judged = _judged(state, detail, members.sizes_bytes[index])
        if isinstance(judged, ReplicaDetail):
            details[index] = judged
            continue
        found.undecided.add(index)
        key = members.keys[index]
        kind, why, todo = judged
        what = f"object {key} in tier {name} is not one to adopt"
        found.obstacles.append(Obstacle(key=key, tier=name, error=kind(what, why, todo)))
    found.held.append(Held(tier=tier, complete=sorted(details), details=details))


def _judged(
    state: int, detail: ReplicaDetail | None, size_bytes: int
) -> ReplicaDetail | tuple[type[ReconcileError], str, str]:
    """The details of a replica that counts, or class, why and next of what it fails by."""
    if state == MemberState.PARTIAL:
        return UnknownOutcomeError, "it is being written", _AGAIN
    if state not in (MemberState.COMPLETE, MemberState.ABSENT) or detail is None:
        return UnknownOutcomeError, "the tier gave no whole answer for it", _AGAIN
    if state == MemberState.ABSENT or detail.size_bytes != size_bytes:
        why = f"it has {detail.size_bytes} bytes, the manifest says {size_bytes}"
        return IntegrityError, why, "adopt with the manifest that belongs to it, or remove it there"
    return detail


# --- reading --------------------------------------------------------------------------------------


async def read(
    candidate: Candidate, found: Look, hands: Hands, on_read: Callable[[str, int], None]
) -> Reading:
    """Read back every replica that was seen complete, and compare; `on_read(tier, bytes)`."""
    reading = Reading()
    index_of = {key: index for index, key in enumerate(candidate.members.keys)}
    for held in found.held:
        name = held.tier.profile.name
        for batch in batches(candidate.members.select(held.complete), hands.options):
            for member, outcome in await _digests(held.tier, batch, hands):
                index = index_of[member.key]
                _take(reading, index, held, (member, outcome))
            size_bytes = sum(member.size_bytes for member in batch)
            reading.read_bytes += size_bytes
            on_read(name, size_bytes)
    for index in reading.digests:
        _compare(candidate, found, reading, index)
    return reading


async def _digests(
    tier: Tier, batch: Sequence[Member], hands: Hands
) -> Iterable[tuple[Member, Outcome]]:
    """The last outcome for each member; what passes is tried again, as far as `Tries` goes.

    The members have no digest that a content could have, so the right answer is Corrupt, which
    says what was read.
    """
    outcomes: dict[str, tuple[Member, Outcome]] = {}
    left, tries = list(batch), Tries(tier, hands)
    while True:
        answers = await tier.verify(left, limit=hands.limit(tier))
        for index, member in enumerate(left):
            answer = answers[index] if index < len(answers) else Unknown(detail="no answer for it")
            outcomes[member.key] = (member, answer)
        again = [pair for pair in outcomes.values() if isinstance(pair[1], Busy | Retry | Unknown)]
        if not again:
            return outcomes.values()
        try:
            await tries.again(again)
        except UnknownOutcomeError:
            return outcomes.values()  # the caller has a word for each
        left = [member for member, _ in again]


def _take(reading: Reading, index: int, held: Held, answer: tuple[Member, Outcome]) -> None:
    (member, outcome), name = answer, held.tier.profile.name
    match outcome:
        case Corrupt(got=got, instance_id=instance_id) if len(got) == len(UNKNOWN_DIGEST):
            if instance_id == held.details[index].instance_id:
                reading.digests.setdefault(index, {})[name] = (got, instance_id)
                return
            why = "another replica lies there than a moment ago"
        case _:
            why = f"{type(outcome).__name__}: {getattr(outcome, 'detail', '')}".rstrip(": ")
    error = UnknownOutcomeError(
        f"object {member.key} in tier {name} could not be read", why, _AGAIN
    )
    reading.obstacles.append(Obstacle(key=member.key, tier=name, error=error))


def _compare(candidate: Candidate, found: Look, reading: Reading, index: int) -> None:
    """Every replica against what was told, what its tier recorded, and the other tiers."""
    key, expected = candidate.members.keys[index], candidate.expected(index)
    digests = reading.digests[index]
    recorded = {held.tier.profile.name: held.details[index].sha256 for held in found.holders(index)}
    for name, (got, _) in digests.items():
        told = expected or recorded[name] or got
        if told == got:
            continue
        says = "was told" if expected else "the tier recorded when it was stored"
        error = IntegrityError(
            f"object {key} in tier {name} has wrong bytes",
            f"they have SHA-256 {got.hex()}; {told.hex()} is what {says}",
            "remove that replica, or adopt what belongs to these bytes",
        )
        reading.obstacles.append(Obstacle(key=key, tier=name, error=error))
        return
    if len({got for got, _ in digests.values()}) > 1:
        spelled = ", ".join(f"{name} {got.hex()}" for name, (got, _) in digests.items())
        error = IntegrityError(
            f"object {key} differs between tiers",
            f"SHA-256: {spelled}",
            "give the right digests, or remove the wrong replica",
        )
        reading.obstacles.append(Obstacle(key=key, tier="", error=error))
