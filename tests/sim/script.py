"""What happens in one simulated history: its setting, the actions and the incidents.

A script is a value: the same script gives the same history. `generate` draws one from a seed;
`repr` of one is Python text that builds it again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

from weightctl.adapters.conformance.faults import ERRORS, Call, Fault, Kind


class Crash(StrEnum):
    """Faults of the process and its journal, which no tier has."""

    KILL_BEFORE = "kill_before"
    KILL_AFTER = "kill_after"
    REFUSED = "refused"  # the journal's disk is full
    UNCERTAIN_LOST = "uncertain_lost"
    UNCERTAIN_KEPT = "uncertain_kept"
    SLOW = "slow"  # [seconds]


COMMIT = "disk.commit"
JOURNAL_FAULTS = tuple(Crash)
WAY = (Kind.LOSE_REQUEST, Kind.LOSE_ANSWER, Kind.DELAY, Kind.ERROR, Kind.FAIL_AFTER)
LOOK = (
    *(Kind.UNKNOWN, Kind.STALE, Kind.EMPTY, Kind.WRONG_EPOCH, Kind.FOREIGN),
    *(Kind.CUT, Kind.SURPLUS),
)
BATCH = (
    *(Kind.LATE, Kind.DOUBLE, Kind.PART, Kind.CUT, Kind.SURPLUS),
    *(Kind.SHUFFLE, Kind.BUSY, Kind.FALSE_DONE),
)
BYTES = (Kind.NO_SPACE, Kind.FLIP, Kind.TORN, Kind.ROT)
FAULTS: Mapping[Call, tuple[str, ...]] = {
    Call.OBSERVE: (*WAY, *LOOK),
    Call.STORE: (*WAY, *BATCH, *BYTES, Crash.KILL_BEFORE, Crash.KILL_AFTER),
    Call.DROP: (*WAY, *BATCH, Crash.KILL_BEFORE, Crash.KILL_AFTER),
    Call.QUARANTINE: (*WAY, *BATCH, Crash.KILL_BEFORE, Crash.KILL_AFTER),
    Call.VERIFY: (*WAY, *BATCH, Crash.KILL_BEFORE, Crash.KILL_AFTER),
    Call.OPEN: WAY,
    Call.READ: (*WAY, Kind.FLIP),
    Call.INVENTORY: (*WAY, Kind.EMPTY),
    Call.CAPACITY: (*WAY, Kind.EMPTY),
}
LIES = frozenset({Kind.STALE, Kind.EMPTY, Kind.WRONG_EPOCH, Kind.FOREIGN})
"""Faults of a look that tell something that is not so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSpec:
    """One simulated tier; a local one loses what is under way when its process dies."""

    name: str
    hot: bool = False
    local: bool = True
    limit_bytes: int = 1 << 40


TIERS = (
    TierSpec(name="mem", hot=True),
    TierSpec(name="disk"),
    TierSpec(name="far", local=False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The world before anything happens."""

    revisions: int = 2
    payloads: int = 3
    size_bytes: int = 64
    cold_copies: int = 1
    tiers: tuple[TierSpec, ...] = TIERS
    latency_s: float = 0.01
    """Every call takes up to this long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Something that a user or the world does at a time."""

    at_s: float
    name: str
    of: int = 0
    """Number of the revision or tier."""
    amount: float = 0.0


Place = tuple[str, int]
"""Where an incident happens: `tier.call` or `disk.commit`, and the how-manieth call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One history before it happens."""

    seed: int
    """Of the order in which ready tasks run, and of latencies."""
    setting: Setting = field(default_factory=Setting)
    actions: tuple[Action, ...] = ()
    incidents: tuple[tuple[str, int, Fault], ...] = ()
    linger_s: float = 10.0
    """How long faults may still come after the last action."""


USER_ACTIONS = (
    *("evict", "rehydrate", "repair", "delete", "lease", "renew", "release", "plan"),
    "wake",
)
USER_WEIGHTS = (6, 5, 4, 1, 3, 1, 2, 2, 2)
WORLD_ACTIONS = (
    *("kill", "clog", "away", "wipe", "forget", "lose", "rot", "jump", "stop", "skip"),
    *("partition", "pause", "litter", "power", "swap", "reborn", "appear"),
)
WORLD_WEIGHTS = (6, 4, 3, 2, 1, 3, 3, 3, 2, 1, 2, 2, 1, 1, 3, 2, 2)
HORIZON_S = 100.0


def generate(seed: int) -> Script:
    """A history by chance: some revisions, what is done to them, and what goes wrong."""
    chance = Random(seed)
    setting = Setting(
        revisions=chance.choice((1, 2, 2, 3)),
        payloads=chance.choice((1, 2, 3, 5)),
        size_bytes=chance.choice((0, 64, 1000)),
        cold_copies=chance.choice((1, 1, 2)),
        tiers=_tiers(chance),
        latency_s=chance.choice((0.0, 0.01, 0.3)),
    )
    actions = [*_user_actions(chance, setting), *_world_actions(chance, setting)]
    return Script(
        seed=seed,
        setting=setting,
        actions=tuple(sorted(actions, key=lambda action: action.at_s)),
        incidents=tuple(_incidents(chance, setting)),
    )


def _tiers(chance: Random) -> tuple[TierSpec, ...]:
    if chance.random() < 0.15:
        tight = TierSpec(name="disk", limit_bytes=chance.choice((200, 700, 3000)))
        return TIERS[0], tight, TIERS[2]
    if chance.random() < 0.15:
        return *TIERS, TierSpec(name="pool", hot=True, local=False)
    return TIERS


def _user_actions(chance: Random, setting: Setting) -> list[Action]:
    actions = []
    for number in range(setting.revisions):
        at_s = chance.random() * 8
        amount = chance.choice((0.0, 0.0, 1.0, 2.0, 3.0))
        actions.append(Action(at_s=at_s, name="import", of=number, amount=amount))
        for _ in range(chance.randrange(3, 9)):
            at_s += chance.random() * 2 * (HORIZON_S - at_s) / 8
            (name,) = chance.choices(USER_ACTIONS, USER_WEIGHTS)
            amount = chance.random()
            actions.append(Action(at_s=round(at_s, 3), name=name, of=number, amount=amount))
    return actions


def _world_actions(chance: Random, setting: Setting) -> list[Action]:
    actions = []
    for _ in range(chance.randrange(8)):
        (name,) = chance.choices(WORLD_ACTIONS, WORLD_WEIGHTS)
        actions.append(
            Action(
                at_s=round(chance.random() * HORIZON_S, 3),
                name=name,
                of=chance.randrange(len(setting.tiers)),
                amount=round(chance.random(), 3),
            )
        )
    return actions


def _incidents(chance: Random, setting: Setting) -> list[tuple[str, int, Fault]]:
    incidents: dict[Place, Fault] = {}
    rate = chance.choice((0.02, 0.06, 0.15))
    for tier in setting.tiers:
        for call, kinds in FAULTS.items():
            rare = call is Call.QUARANTINE
            for number in range(8 if rare else 60):
                if chance.random() < (0.3 if rare else rate):
                    fault = Fault(kind=str(chance.choice(kinds)), amount=_amount(chance))
                    incidents[f"{tier.name}.{call}", number] = fault
    for number in range(60):
        if chance.random() < rate / 3:
            fault = Fault(kind=str(chance.choice(JOURNAL_FAULTS)), amount=_amount(chance))
            incidents[COMMIT, number] = fault
    return [(place, number, fault) for (place, number), fault in incidents.items()]


def _amount(chance: Random) -> float:
    """Serves as seconds, versions, bytes, items and the number of an error alike."""
    return float(chance.choice((0, 1, 1, 2, 3, 5, 7, 8, 9, 12, 40, len(ERRORS))))
