"""Histories of a sidecar beside a Mooncake, drawn from a seed."""

from dataclasses import dataclass

from tests.sim.mooncake.world import TIERS, MooncakeWorld, simulate
from weightctl.adapters.conformance.faults import Fault
from weightctl.adapters.conformance.simulation.entropy import Chance
from weightctl.adapters.conformance.simulation.script import Action, Crash, Script, Setting

HORIZON_S = 900.0
USERS = ("evict", "rehydrate", "repair", "delete", "lease", "release", "plan", "wake", "reader")
USER_WEIGHTS = (8, 6, 3, 1, 2, 2, 1, 1, 1)
SPELLS = {
    "freeze": "thaw",
    "master_stops": "master_starts",
    "lossy": "calm",
    "host_dies": "host_returns",
    "disk_goes": "disk_returns",
    "offload_slow": "offload_goes_on",
    "offload_stops": "offload_goes_on",
    "fill": "empty",
}
"""What begins and how it ends."""
SPELL_WEIGHTS = (4, 4, 3, 5, 2, 2, 2, 1)
LENGTHS_S = (0.5, 2.0, 5.0, 8.0, 15.0, 40.0, 120.0, 400.0)
MOMENTS = (
    *("kill", "stranger_puts", "stranger_reads", "stranger_removes", "stranger_replaces"),
    *("jump", "skip", "pause", "old_files", "stranger_tricks"),
)
MOMENT_WEIGHTS = (4, 3, 3, 1, 1, 1, 1, 1, 1, 1)


FACES = frozenset(
    {
        "the Master hangs",
        "answer late",
        "answer not in time",
        "answer lost after the effect",
        "the Master stops",
        "a Master has forgotten",
        "a Master remembers",
        "a host dies",
        "a host returns",
        "a host returns too soon",
        "a removed key comes back",
        "an old file is taken for a copy",
        "a copy is read from its host",
        "a disk is away",
        "others' pressure evicts",
        "offload is slow",
        "offload never comes",
        "the segments are full",
        "strangers put",
        "strangers read",
        "a stranger removes a member",
        "a stranger's key has a comma",
        "a stranger replaces a member",
        "the sidecar is killed",
        "another store is refused",
        "a parking segment is mounted",
    }
)
"""What the histories of the test must meet, all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A script, and in which cluster it happens."""

    script: Script
    masters: int = 1

    def play(self) -> MooncakeWorld:
        """Play it; the world as it was left."""
        return simulate(self.script, masters=self.masters)


def generate(seed: int) -> History:
    """Some revisions, what is done to them, and what befalls the cluster meanwhile."""
    chance = Chance(f"mooncake/{seed}")
    setting = Setting(
        revisions=chance.choice((1, 2, 3)),
        payloads=chance.choice((1, 2)),
        size_bytes=chance.choice((64, 1000)),
        tiers=TIERS,
        latency_s=chance.choice((0.002, 0.02, 0.2)),
    )
    actions = [*_users(chance, setting), *_spells(chance, seed), *_moments(chance)]
    incidents = tuple(
        (f"{tier.name}.{call}", number, Fault(kind=str(kind), amount=0.0))
        for tier in TIERS
        for call in ("store", "drop", "verify")
        for number in range(6)
        for kind in (chance.choice((Crash.KILL_BEFORE, Crash.KILL_AFTER)),)
        if chance.random() < 0.05
    )
    return History(
        script=Script(
            seed=seed,
            setting=setting,
            actions=tuple(sorted(actions, key=lambda action: action.at_s)),
            incidents=incidents,
            linger_s=30.0,
        ),
        masters=2 if seed % 3 == 2 else 1,
    )


def _users(chance: Chance, setting: Setting) -> list[Action]:
    actions = []
    for number in range(setting.revisions):
        at_s = chance.random() * 60
        actions.append(Action(at_s=at_s, name="import", of=number))
        for _ in range(chance.randrange(3, 9)):
            at_s += chance.random() * 2 * (HORIZON_S - at_s) / 8
            (name,) = chance.choices(USERS, USER_WEIGHTS)
            amount = round(0.1 + 0.9 * chance.random(), 3)
            actions.append(Action(at_s=round(at_s, 3), name=name, of=number, amount=amount))
    return actions


def _spells(chance: Chance, seed: int) -> list[Action]:
    names = [list(SPELLS)[seed % len(SPELLS)]]
    names += chance.choices(list(SPELLS), SPELL_WEIGHTS, k=chance.randrange(4))
    actions = []
    for name in names:
        at_s = round(20 + chance.random() * HORIZON_S, 3)
        of, amount = chance.randrange(2), round(chance.random(), 3)
        if name == "lossy":
            amount *= 0.5
        actions.append(Action(at_s=at_s, name=name, of=of, amount=amount))
        until_s = at_s + chance.choice(LENGTHS_S)
        remembers = (
            float(chance.random() < 0.5) if seed % 3 == 2 and name == "master_stops" else 0.0
        )
        actions.append(Action(at_s=until_s, name=SPELLS[name], of=of, amount=remembers))
    return actions


def _moments(chance: Chance) -> list[Action]:
    return [
        Action(
            at_s=round(20 + chance.random() * HORIZON_S, 3),
            name=name,
            of=chance.randrange(3),
            amount=round(chance.random(), 3),
        )
        for name in chance.choices(MOMENTS, MOMENT_WEIGHTS, k=chance.randrange(6))
    ]
