"""Histories with the profile of one tier: in its place stands a simulated one that keeps just that.

What a tier does not declare, the simulated one does not do: it forgets when its process ends, its
deletions linger, its lists are behind, it tells no digests. The rest of the world is as ever, and
so is every oracle.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from weightctl.adapters.conformance.faults import Fault, Kind
from weightctl.adapters.conformance.simulation.script import (
    TIERS,
    Action,
    Script,
    Setting,
    TierSpec,
    generate,
)
from weightctl.adapters.conformance.simulation.shrink import told
from weightctl.adapters.conformance.simulation.world import simulate
from weightctl.controller.core.tiers import Capabilities, TierProfile

_MEMORY, _DISK, _FAR = TIERS
_STEPS_TOLD = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What some histories with a profile came to; they end with the first broken rule."""

    histories: int
    incidents: int
    broken: str = ""
    """The seed, the rule and the shrunk script of what broke; empty when nothing did."""


def play(profile: TierProfile, seeds: Iterable[int], behaves: Capabilities | None = None) -> Played:
    """Simulate these seeds with that profile, and first what chance seldom meets.

    behaves: what the tier is like in truth; None: what it declares.
    """
    checked = _spec_of(profile, behaves)
    histories = incidents = 0
    for script in _scripts(checked, seeds):
        report = simulate(script)
        histories += 1
        incidents += report.incidents
        if report.oracle:
            broken = told(script, report, steps=_STEPS_TOLD)
            return Played(histories=histories, incidents=incidents, broken=broken)
    return Played(histories=histories, incidents=incidents)


def _spec_of(profile: TierProfile, behaves: Capabilities | None) -> TierSpec:
    """The tier in the place of the one that is most like it."""
    shared = profile.capabilities.shared
    place = _MEMORY if profile.hot else _FAR if shared else _DISK
    named = replace(profile, name=place.name)
    return replace(place, local=not shared, profile=named, behaves=behaves)


def _scripts(checked: TierSpec, seeds: Iterable[int]) -> Iterator[Script]:
    alone = (checked, _DISK) if checked.hot else (_MEMORY, checked)
    among = tuple(checked if spec.name == checked.name else spec for spec in TIERS)
    yield _damaged_and_deleted(checked, alone)
    for seed in seeds:
        world = alone if seed % 2 else among
        script = generate(seed, world)
        colds = sum(not spec.hot for spec in world)
        copies = min(script.setting.cold_copies, colds)  # nobody asks for more than can be
        yield replace(script, setting=replace(script.setting, cold_copies=copies))


def _damaged_and_deleted(checked: TierSpec, world: tuple[TierSpec, ...]) -> Script:
    """Its copies turn bad at once and are set aside; then the revision is deleted."""
    names = ("import", "repair", "delete")
    rot = Fault(kind=Kind.ROT, amount=1.0)
    return Script(
        seed=0,
        setting=Setting(revisions=1, payloads=2, tiers=world),
        actions=tuple(
            Action(at_s=at_s, name=name, amount=1.0)
            for at_s, name in zip((0.0, 0.5, 1.5), names, strict=True)
        ),
        incidents=tuple((f"{checked.name}.store", number, rot) for number in range(2)),
    )
