"""Which tiers an import writes to.  Layer: weightstore.

By default the first hot tier with room and the first persistent cold tier with room, in the order
in which the tiers were given, so that a power loss right after READY loses nothing.  A tier that
cannot say how much room it has is not chosen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weightctl.controller.errors import CapacityError, ConfigError, ReconcileError, TransientError
from weightctl.controller.weightstore.primitives import complete_mask, observe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weightctl.controller.core.observation import Members
    from weightctl.controller.core.tiers import TierProfile
    from weightctl.controller.ports import Tier
    from weightctl.controller.weightstore.options import WeightStoreOptions


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
    hot, cold = _by_default(tiers)
    return [
        await _with_room(hot, "hot", members, options),
        await _with_room(cold, "persistent cold", members, options),
    ]


def check(tiers: Sequence[Tier], names: Sequence[str] | None) -> None:
    """Refuse what no tier can ever take, before anything is read.  Raises ConfigError."""
    if names is None:
        for found, kind in zip(_by_default(tiers), ("hot", "persistent cold"), strict=True):
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


def _by_default(tiers: Sequence[Tier]) -> tuple[list[Tier], list[Tier]]:
    """Hot and persistent cold tiers in which something can be stored."""
    takers = [tier for tier in tiers if not tier.profile.capabilities.observe_only]
    hot = [tier for tier in takers if tier.profile.hot]
    return hot, [tier for tier in takers if _persistent(tier.profile)]


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
    reasons: list[str] = []
    unusable: list[ReconcileError] = []
    most_needed = most_free = 0
    for tier in candidates:
        try:
            free_bytes = (await tier.capacity()).free_bytes
        except ReconcileError as error:
            reasons.append(f"{tier.profile.name}: {error.what}: {error.why}")
            unusable.append(error)
            continue
        needed = await _missing_bytes(tier, members, options)
        if needed <= free_bytes:
            return tier
        most_needed, most_free = max(most_needed, needed), max(most_free, free_bytes)
        reasons.append(f"{tier.profile.name}: needs {needed} bytes, {free_bytes} are free")
    if len(unusable) == len(candidates):
        raise TransientError(
            f"group {members.group_id} cannot be placed: no {kind} tier can be used",
            "; ".join(reasons),
            "; ".join(dict.fromkeys(error.todo for error in unusable if error.todo)),
        )
    raise CapacityError(
        most_needed,
        most_free,
        f"group {members.group_id} does not fit into any {kind} tier",
        "; ".join(reasons),
        "evict or delete something, or name other tiers; the import can be resumed",
    )


async def _missing_bytes(tier: Tier, members: Members, options: WeightStoreOptions) -> int:
    """Bytes that are not there yet; what an interrupted import left counts as there."""
    seen = await observe(tier, members, options.observe_deadline_s)
    there = complete_mask(seen.states)
    return sum(
        size for size, complete in zip(members.sizes_bytes, there, strict=True) if not complete
    )
