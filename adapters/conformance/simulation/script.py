"""What happens in one simulated history: its setting, the actions and the incidents.

A script is a value: the same script gives the same history. `generate` draws one from a seed;
`repr` of one is Python text that builds it again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from weightctl.adapters.conformance.faults import ERRORS, Call, Fault, Kind
from weightctl.adapters.conformance.simulation.entropy import Chance
from weightctl.controller.core.tiers import Capabilities, TierProfile


class Crash(StrEnum):
    """Faults of the process and its journal, which no tier has."""

    KILL_BEFORE = "kill_before"
    KILL_AFTER = "kill_after"
    REFUSED = "refused"  # the journal's disk is full
    UNCERTAIN_LOST = "uncertain_lost"
    UNCERTAIN_KEPT = "uncertain_kept"
    SLOW = "slow"  # [seconds]
    DEPOSE = "depose"  # [seconds] another process leads; this one goes on (odd: unaware)
    UNREADABLE = "unreadable"  # the journal's disk does not give a row back


DEADLY = frozenset({*(Crash.KILL_BEFORE, Crash.KILL_AFTER), Crash.DEPOSE})
COMMIT, FOLD, ROWS = "disk.commit", "disk.fold", "disk.rows"
KILLS = (Crash.KILL_BEFORE, Crash.KILL_AFTER)
JOURNAL_FAULTS: Mapping[str, tuple[str, ...]] = {
    COMMIT: (
        *KILLS,
        *(Crash.REFUSED, Crash.UNCERTAIN_LOST, Crash.UNCERTAIN_KEPT, Crash.SLOW, Crash.DEPOSE),
    ),
    FOLD: (*KILLS, Crash.REFUSED, Crash.UNCERTAIN_LOST, Crash.UNCERTAIN_KEPT),
    ROWS: (*KILLS, Crash.UNREADABLE, Crash.SLOW),
}
WAY = (Kind.LOSE_REQUEST, Kind.LOSE_ANSWER, Kind.DELAY, Kind.ERROR, Kind.FAIL_AFTER)
LOOK = (
    *(Kind.UNKNOWN, Kind.STALE, Kind.EMPTY, Kind.WRONG_EPOCH, Kind.FOREIGN),
    *(Kind.CUT, Kind.SURPLUS),
)
BATCH = (
    *(Kind.LATE, Kind.DOUBLE, Kind.PART, Kind.CUT, Kind.SURPLUS),
    *(Kind.SHUFFLE, Kind.BUSY, Kind.FALSE_DONE),
)
BYTES = (Kind.NO_SPACE, Kind.FLIP, Kind.TORN, Kind.ROT, Kind.OLD)
FAULTS: Mapping[Call, tuple[str, ...]] = {
    Call.OBSERVE: (*WAY, *LOOK, *KILLS),
    Call.STORE: (*WAY, *BATCH, *BYTES, *KILLS, Crash.DEPOSE),
    Call.DROP: (*WAY, *BATCH, *KILLS, Crash.DEPOSE),
    Call.QUARANTINE: (*WAY, *BATCH, *KILLS, Crash.DEPOSE),
    Call.VERIFY: (*WAY, *BATCH, *KILLS, Crash.DEPOSE),
    Call.OPEN: (*WAY, *KILLS),
    Call.READ: (*WAY, Kind.FLIP, *KILLS),
    Call.INVENTORY: (*WAY, Kind.EMPTY, *KILLS),
    Call.CAPACITY: (*WAY, Kind.EMPTY, *KILLS),
}
EVERY_FAULT: tuple[tuple[str, str], ...] = (
    *((str(call), str(kind)) for call, kinds in FAULTS.items() for kind in kinds),
    *((where, str(kind)) for where, kinds in JOURNAL_FAULTS.items() for kind in kinds),
)
"""(call or place at the journal, kind)."""
LIES = frozenset({Kind.STALE, Kind.EMPTY, Kind.WRONG_EPOCH, Kind.FOREIGN})
"""Faults of a look that tell something that is not so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSpec:
    """One simulated tier; a local one loses what is under way when its process dies."""

    name: str
    hot: bool = False
    local: bool = True
    limit_bytes: int = 1 << 40
    profile: TierProfile | None = None
    """What it declares; None: what the reference tier does."""
    behaves: Capabilities | None = None
    """What it is like; None: as it declares, and no better."""

    @property
    def nature(self) -> Capabilities:
        """What it is like."""
        declared = Capabilities(persistent=not self.hot, checksum=True)
        if self.profile is not None:
            declared = self.profile.capabilities
        return declared if self.behaves is None else self.behaves


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
    pass_bytes_max: int = 1 << 32
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
    *("wake", "reader"),
)
USER_WEIGHTS = (6, 5, 4, 1, 3, 1, 2, 2, 2, 1)
WORLD_ACTIONS = (
    *("kill", "clog", "away", "wipe", "forget", "lose", "rot", "jump", "stop", "skip"),
    *("partition", "pause", "litter", "power", "swap", "reborn", "appear", "jam"),
)
WORLD_WEIGHTS = (6, 3, 3, 2, 1, 3, 3, 3, 2, 1, 2, 2, 1, 1, 3, 2, 2, 2)
HORIZON_S = 100.0


def generate(seed: int, tiers: tuple[TierSpec, ...] = ()) -> Script:
    """A history by chance: some revisions, what is done to them, and what goes wrong.

    tiers: those of its world; without any they are drawn too.

    Each history has one fault that occurs often in it, the next seed the next one, so that a few
    hundred seeds meet them all; and half of them leave the process alive, which gets further.
    """
    chance = Chance(seed)
    often = EVERY_FAULT[seed % len(EVERY_FAULT)]
    setting = Setting(
        revisions=chance.choice((1, 2, 3, 3)),
        payloads=chance.choice((1, 2, 3, 5)),
        size_bytes=chance.choice((0, 64, 1000)),
        cold_copies=chance.choice((1, 1, 2)),
        tiers=tiers or _tiers(chance),
        latency_s=chance.choice((0.0, 0.01, 0.3)),
        pass_bytes_max=100 if seed % 3 == 0 else 1 << 32,
    )
    actions = [
        *_user_actions(chance, setting),
        *_world_actions(chance, setting),
        *_occasions(chance, setting, often[0]),
        *_cuts(seed, setting),
    ]
    seldom = often[0] in (Call.QUARANTINE, Call.INVENTORY)
    incidents = _incidents(chance, setting, mild=seldom or chance.random() < 0.5)
    incidents.update(_frequent(chance, setting, often))
    return Script(
        seed=seed,
        setting=setting,
        actions=tuple(sorted(actions, key=lambda action: action.at_s)),
        incidents=tuple((*place, fault) for place, fault in incidents.items()),
    )


def _tiers(chance: Chance) -> tuple[TierSpec, ...]:
    if chance.random() < 0.15:
        tight = TierSpec(name="disk", limit_bytes=chance.choice((200, 700, 3000)))
        return TIERS[0], tight, TIERS[2]
    if chance.random() < 0.15:
        return *TIERS, TierSpec(name="pool", hot=True, local=False)
    return TIERS


def _user_actions(chance: Chance, setting: Setting) -> list[Action]:
    actions = []
    for number in range(setting.revisions):
        at_s = chance.random() * 8
        amount = chance.choice((*(0.0,) * 8, *(1.0,) * 8, 2.0, 3.0))
        actions.append(Action(at_s=at_s, name="import", of=number, amount=amount))
        for _ in range(chance.randrange(4, 11)):
            at_s += chance.random() * 2 * (HORIZON_S - at_s) / 8
            (name,) = chance.choices(USER_ACTIONS, USER_WEIGHTS)
            amount = chance.random()
            actions.append(Action(at_s=round(at_s, 3), name=name, of=number, amount=amount))
    return actions


def _world_actions(chance: Chance, setting: Setting) -> list[Action]:
    actions = []
    for _ in range(chance.randrange(8)):
        (name,) = chance.choices(WORLD_ACTIONS, WORLD_WEIGHTS)
        at_s = round(chance.random() * HORIZON_S, 3)
        of = chance.randrange(24 if name == "jam" else len(setting.tiers))
        actions.append(Action(at_s=at_s, name=name, of=of, amount=round(chance.random(), 3)))
        if name in ("rot", "swap") and chance.random() < 0.5:
            actions += _repairs(setting, at_s + 2)
    return actions


def _cuts(seed: int, setting: Setting) -> list[Action]:
    """In some histories a cold copy is cut that may have been read back before."""
    chance = Chance(f"cuts/{seed}")
    if chance.random() < 0.8:
        return []
    at_s, amount = round(chance.random() * HORIZON_S, 3), round(chance.random(), 3)
    of = chance.randrange(len(setting.tiers))
    return [Action(at_s=at_s, name="cut", of=of, amount=amount), *_repairs(setting, at_s + 2)]


def _repairs(setting: Setting, at_s: float) -> list[Action]:
    """Damage is found when somebody has a reason to read everything."""
    return [
        Action(at_s=at_s, name="repair", of=number, amount=1.0)
        for number in range(setting.revisions)
    ]


def _occasions(chance: Chance, setting: Setting, call: str) -> list[Action]:
    """What makes a call happen that is seldom made without a reason."""
    at_s = round(chance.random() * HORIZON_S, 3)
    match call:
        case Call.QUARANTINE:
            rot = [
                Action(at_s=at_s, name="rot", of=tier, amount=round(chance.random(), 3))
                for tier in range(len(setting.tiers))
            ]
            return [*rot, *_repairs(setting, at_s + 2), *_repairs(setting, at_s + 14)]
        case Call.INVENTORY:
            number = chance.randrange(setting.revisions)
            return [Action(at_s=at_s, name="delete", of=number, amount=1.0)]
        case _:
            return []


def _frequent(chance: Chance, setting: Setting, often: tuple[str, str]) -> dict[Place, Fault]:
    where, kind = often
    seldom = where not in (Call.OBSERVE, Call.CAPACITY, COMMIT)
    rate = 1.0 if where == Call.QUARANTINE else 0.6 if seldom else 0.1
    places = [where] if where in JOURNAL_FAULTS else [f"{t.name}.{where}" for t in setting.tiers]
    return {
        (place, number): Fault(kind=kind, amount=_amount(chance))
        for place in places
        for number in range(4 if where == Call.QUARANTINE else 12 if seldom else 40)
        if chance.random() < rate
    }


def _incidents(chance: Chance, setting: Setting, *, mild: bool) -> dict[Place, Fault]:
    incidents: dict[Place, Fault] = {}
    rate = chance.choice((0.03, 0.1, 0.2))
    for tier in setting.tiers:
        for call, kinds in FAULTS.items():
            rare = call is Call.QUARANTINE
            for number in range(8 if rare else 60):
                if chance.random() < (0.3 if rare else rate):
                    fault = Fault(kind=str(chance.choice(kinds)), amount=_amount(chance))
                    incidents[f"{tier.name}.{call}", number] = fault
    for place, kinds in JOURNAL_FAULTS.items():
        for number in range(60):
            if chance.random() < rate / 3:
                fault = Fault(kind=str(chance.choice(kinds)), amount=_amount(chance))
                incidents[place, number] = fault
    if mild:
        return {at: fault for at, fault in incidents.items() if fault.kind not in DEADLY}
    return incidents


def _amount(chance: Chance) -> float:
    """Serves as seconds, versions, bytes, items and the number of an error alike."""
    return float(chance.choice((0, 1, 1, 2, 3, 5, 7, 8, 9, 12, 40, len(ERRORS))))
