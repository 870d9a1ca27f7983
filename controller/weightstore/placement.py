"""Which tiers an import writes to.  Layer: weightstore.

By default the first hot tier with room and the first persistent cold tier with room, in the order
in which the tiers were given, so that a power loss right after READY loses nothing.  A tier that
cannot say how much room it has is not chosen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

from weightctl.controller.errors import (
    CapacityError,
    ConfigError,
    ReconcileError,
    TerminalError,
    TransientError,
)
from weightctl.controller.weightstore.primitives import complete_mask, observe

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weightctl.controller.core.observation import Member, Members, TierObservation
    from weightctl.controller.core.tiers import TierProfile
    from weightctl.controller.ports import Tier
    from weightctl.controller.weightstore.options import WeightStoreOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What one tier says to an import: what is missing there and the room, or why it takes none."""

    tier: Tier
    needed_bytes: int = 0
    free_bytes: int = 0
    seen: TierObservation | None = None
    error: ReconcileError | None = None
    """Why it cannot be used; the sizes are not known then."""

    @property
    def takes(self) -> bool:
        """Whether there is room for what is missing."""
        return self.error is None and self.needed_bytes <= self.free_bytes

    @property
    def refusal(self) -> str:
        """Why it does not take the members, for people."""
        name = self.tier.profile.name
        if self.error is not None:
            return f"{name}: {self.error.what}: {self.error.why}"
        return f"{name}: needs {self.needed_bytes} bytes, {self.free_bytes} are free"


async def choose(
    tiers: Sequence[Tier],
    names: Sequence[str] | None,
    members: Members,
    options: WeightStoreOptions,
) -> list[Tier]:
    """The tiers to write to: those in `names`, or by the default rule.

    Raises ConfigError for an unknown name or when no tier of a kind exists, CapacityError when
    none has room, TransientError when none can be asked.
    """
    if names is not None:
        return [await _named(tiers, name, members, options) for name in dict.fromkeys(names)]
    return [await _with_room(found, kind, members, options) for kind, found in by_default(tiers)]


def check(tiers: Sequence[Tier], names: Sequence[str] | None) -> None:
    """Refuse what no tier can ever take, before anything is read.  Raises ConfigError."""
    if names is None:
        for kind, found in by_default(tiers):
            if not found:
                raise _no_tier(tiers, kind)
        return
    for tier in tiers:
        if tier.profile.name in names and tier.profile.capabilities.observe_only:
            raise ConfigError(
                f"nothing can be imported into tier {tier.profile.name}",
                f"{tier.profile.kind} shows replicas that others make, and can make none",
                "name other tiers",
            )


def check_fit(tiers: Sequence[Tier], names: Sequence[str] | None, members: Members) -> None:
    """Refuse members that no tier of a kind could ever keep, before anything is recorded.

    Raises TerminalError; for named tiers as soon as one of them could not.
    """
    kinds = by_default(tiers)
    if names is not None:
        named = [tier for tier in tiers if tier.profile.name in names]
        kinds = tuple((repr(tier.profile.name), [tier]) for tier in named)
    for _, found in kinds:
        problems = [unfit(tier, members) for tier in found]
        for problem in problems[:1]:
            if problem is not None and all(problems):
                raise problem


def by_default(tiers: Sequence[Tier]) -> tuple[tuple[str, list[Tier]], ...]:
    """Hot and persistent cold tiers in which something can be stored, in order of preference."""
    takers = [tier for tier in tiers if not tier.profile.capabilities.observe_only]
    hot = [tier for tier in takers if tier.profile.hot]
    return ("hot", hot), ("persistent cold", [one for one in takers if _persistent(one.profile)])


def _no_tier(tiers: Sequence[Tier], kind: str) -> ConfigError:
    only = [tier.profile for tier in tiers if tier.profile.capabilities.observe_only]
    seen = "".join(
        f"; {one.name} ({one.kind}) shows replicas that others make, and can make none"
        for one in only
    )
    return ConfigError(
        "the weights cannot be placed",
        f"no {kind} tier is configured that takes any{seen}",
        "configure one, or name the tiers to write to",
    )


def _persistent(profile: TierProfile) -> bool:
    return not profile.hot and profile.capabilities.persistent


async def _named(
    tiers: Sequence[Tier], name: str, members: Members, options: WeightStoreOptions
) -> Tier:
    found = [tier for tier in tiers if tier.profile.name == name]
    if not found:
        raise ConfigError(
            f"tier {name!r} is not configured",
            f"known are {', '.join(sorted(tier.profile.name for tier in tiers))}",
            "name one of these",
        )
    return await _with_room(found, repr(name), members, options)


async def _with_room(
    candidates: Sequence[Tier], kind: str, members: Members, options: WeightStoreOptions
) -> Tier:
    asked: list[Standing] = []
    for tier in candidates:
        found = await standing(tier, members, options)
        if found.takes:
            return tier
        asked.append(found)
    raise no_place(asked, kind, members.group_id)


async def standing(
    tier: Tier, members: Members, options: WeightStoreOptions, *, detail: Sequence[int] = ()
) -> Standing:
    """What a tier says to an import of these members; `detail` as of `Tier.observe`."""
    problem = unfit(tier, members)
    if problem is not None:
        return Standing(tier=tier, error=problem)
    try:
        with anyio.fail_after(options.observe_deadline_s):
            free_bytes = (await tier.capacity()).free_bytes
    except TimeoutError:
        silent = TransientError(
            f"capacity of tier {tier.profile.name}",
            f"no answer within {options.observe_deadline_s:g} s",
            "see what `weightctl doctor` says of it",
        )
        return Standing(tier=tier, error=silent)
    except ReconcileError as error:
        return Standing(tier=tier, error=error)
    seen = await observe(tier, members, options.observe_deadline_s, detail=detail)
    return Standing(
        tier=tier, needed_bytes=_missing_bytes(seen, members), free_bytes=free_bytes, seen=seen
    )


def no_place(asked: Sequence[Standing], kind: str, group_id: str) -> ReconcileError:
    """Why none of the tiers that were asked takes the members."""
    reasons = [found.refusal for found in asked]
    errors = [found.error for found in asked if found.error is not None]
    if len(errors) == len(asked):
        lasts = all(isinstance(error, TerminalError) for error in errors)
        return (TerminalError if lasts else TransientError)(
            f"group {group_id} cannot be placed: no {kind} tier can be used",
            "; ".join(reasons),
            "; ".join(dict.fromkeys(error.todo for error in errors if error.todo)),
        )
    return CapacityError(
        max(found.needed_bytes for found in asked),
        max(found.free_bytes for found in asked),
        f"group {group_id} does not fit into any {kind} tier",
        "; ".join(reasons),
        "evict or delete something, or name other tiers; then run the same command again",
    )


def unfit(tier: Tier, members: Members) -> TerminalError | None:
    """Why a tier could never keep one of the members (`ports.Choosing`); None when it could."""
    ask: Callable[[Member], str] | None = getattr(tier, "unfit", None)
    if ask is None:
        return None
    for index in range(len(members)):
        why = ask(members.member(index))
        if why:
            return TerminalError(
                f"object {members.keys[index]} cannot be kept in tier {tier.profile.name}",
                why,
                "choose another identity, or name other tiers",
            )
    return None


def _missing_bytes(seen: TierObservation, members: Members) -> int:
    """Bytes that are not there yet; what an interrupted import left counts as there."""
    there = complete_mask(seen.states)
    return sum(
        size for size, complete in zip(members.sizes_bytes, there, strict=True) if not complete
    )
