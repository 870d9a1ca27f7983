"""Small histories made by hand: one for each operation, and the corners that chance seldom meets.

The operations are also what is enumerated: every crash point, error and stale view of each.
"""

from collections.abc import Mapping
from dataclasses import replace

from weightctl.adapters.conformance.faults import Fault, Kind
from weightctl.adapters.conformance.simulation.script import (
    COMMIT,
    TIERS,
    Action,
    Crash,
    Script,
    Setting,
    TierSpec,
)
from weightctl.controller.core.tiers import TierProfile

_MEM, _DISK, _FAR = 0, 1, 2


def _script(*actions: tuple[float, str, int, float], **changes: object) -> Script:
    setting = {"revisions": 1, "payloads": 2, "latency_s": 0.01} | changes
    incidents = setting.pop("incidents", ())
    linger_s = setting.pop("linger_s", 50.0)
    return Script(
        seed=1,
        setting=Setting(**setting),  # type: ignore[arg-type]
        actions=tuple(
            Action(at_s=at_s, name=name, of=of, amount=amount) for at_s, name, of, amount in actions
        ),
        incidents=incidents,  # type: ignore[arg-type]
        linger_s=linger_s,  # type: ignore[arg-type]
    )


def _brief(*actions: tuple[float, str, int, float], **changes: object) -> Script:
    return _script(*actions, linger_s=10.0, **changes)


_IN_MEMORY = (0.0, "import", 0, 0.0)
_IN_BOTH = (0.0, "import", 0, 1.0)

OPERATIONS: Mapping[str, Script] = {
    "import": _brief(_IN_BOTH),
    "evict": _brief(_IN_MEMORY, (2.0, "evict", 0, 1.0)),
    "evict a copy": _brief(_IN_BOTH, (2.0, "evict", 0, 1.0)),
    "rehydrate": _brief(_IN_BOTH, (2.0, "wipe", _MEM, 1.0), (12.0, "rehydrate", 0, 1.0)),
    "repair": _brief(_IN_BOTH, (2.0, "rot", _DISK, 0.5), (3.0, "repair", 0, 1.0), cold_copies=2),
    "delete": _brief(_IN_BOTH, (2.0, "litter", _FAR, 0.5), (3.0, "delete", 0, 1.0)),
    "abort": _brief((0.0, "import", 0, 2.0), (2.0, "delete", 0, 1.0)),
    "abandon": _script((0.0, "import", 0, 2.0)),
}
"""What is enumerated."""


def _lacking(spec: TierSpec, **lacks: bool) -> TierSpec:
    """The tier with a profile that does not declare everything."""
    declared = replace(spec.nature, **lacks)
    profile = TierProfile(name=spec.name, kind="lacking", hot=spec.hot, capabilities=declared)
    return replace(spec, profile=profile)


POOL = (*TIERS, TierSpec(name="pool", hot=True, local=False))
_LINGERING = (_lacking(TIERS[_MEM], delete_is_immediate=False), TIERS[_DISK])
_BEHIND = (TIERS[_MEM], _lacking(TIERS[_DISK], list_is_consistent=False))
_UNSEEN = (TIERS[_MEM], _lacking(TIERS[_DISK], instance_is_reused=True))
_BUSY = tuple(("mem.drop", number, Fault(kind=Kind.BUSY, amount=8.0)) for number in range(3))

CORNERS: Mapping[str, Script] = {
    "an eviction is paused for longer than evidence holds": _script(
        _IN_BOTH,
        (2.0, "evict", 0, 1.0),
        (3.0, "pause", 0, 2.0),
        incidents=tuple(("mem.drop", n, Fault(kind=Kind.BUSY, amount=20.0)) for n in range(8)),
    ),
    "an eviction begins in a pause": _script(
        _IN_MEMORY, (1.0, "pause", 0, 1.0), (2.0, "evict", 0, 1.0)
    ),
    "an eviction begins outside the window": _script(
        _IN_BOTH, (1.0, "pause", 0, 0.9), (2.0, "evict", 0, 1.0)
    ),
    "a copy is cut after it was read back": _script(
        _IN_BOTH, (1.0, "repair", 0, 1.0), (4.0, "cut", _DISK, 1.0), (5.0, "evict", 0, 1.0)
    ),
    "the only copy is wrong": _script(
        _IN_MEMORY, (1.0, "rot", _MEM, 0.0), (1.0, "rot", _MEM, 0.5), (2.0, "repair", 0, 1.0)
    ),
    "a pass may move a few bytes only": _brief(
        _IN_MEMORY, (2.0, "evict", 0, 1.0), payloads=5, size_bytes=1000, pass_bytes_max=1500
    ),
    "a copy is exchanged after it was read back": _script(
        _IN_BOTH,
        (2.0, "evict", 0, 1.0),
        (6.0, "swap", _DISK, 0.1),
        (6.1, "swap", _DISK, 0.5),
        (6.2, "swap", _DISK, 0.9),
        incidents=_BUSY,
    ),
    "a tier is reborn after its copies were read back": _script(
        _IN_BOTH, (2.0, "evict", 0, 1.0), (4.0, "reborn", _DISK, 1.0), incidents=_BUSY
    ),
    "a wrong copy lies where an eviction leads": _script(
        _IN_BOTH, (1.0, "rot", _DISK, 0.0), (1.0, "rot", _DISK, 0.9), (2.0, "evict", 0, 1.0)
    ),
    "another copy would be shown as the same": _script(
        _IN_BOTH, (2.0, "evict", 0, 1.0), tiers=_UNSEEN
    ),
    "a copy is exchanged while the evidence is written": _script(
        _IN_BOTH,
        (2.0, "evict", 0, 1.0),
        (4.0, "swap", _DISK, 0.1),
        incidents=((COMMIT, 4, Fault(kind=Crash.SLOW, amount=5.0)),),
    ),
    "a wrong copy is found under a lease": _script(
        _IN_BOTH,
        (1.0, "rot", _MEM, 0.0),
        (1.0, "rot", _MEM, 0.5),
        (2.0, "lease", 0, 0.9),
        (3.0, "repair", 0, 1.0),
        cold_copies=2,
    ),
    "a lease is renewed for less": _script(
        _IN_MEMORY, (2.0, "lease", 0, 0.9), (3.0, "renew", 0, 0.1)
    ),
    "a lease is taken after another one was given back": _script(
        _IN_MEMORY, (2.0, "lease", 0, 0.9), (3.0, "release", 0, 1.0), (4.0, "lease", 0, 0.8)
    ),
    "an eviction is asked for under a lease": _script(
        _IN_MEMORY, (2.0, "lease", 0, 0.9), (3.0, "evict", 0, 1.0), (4.0, "rehydrate", 0, 1.0)
    ),
    "a deletion is asked for under a lease": _script(
        _IN_MEMORY, (2.0, "lease", 0, 0.9), (3.0, "delete", 0, 1.0)
    ),
    "a lease is asked for during an eviction": _script(
        _IN_MEMORY, (2.0, "evict", 0, 1.0), (2.01, "lease", 0, 0.9), (2.05, "lease", 0, 0.8)
    ),
    "a tier forgets while nobody leads": _script(
        _IN_BOTH,
        (2.0, "clog", _MEM, 0.06),
        (3.0, "evict", 0, 1.0),
        (3.2, "kill", 0, 1.0),
        (3.3, "wipe", _FAR, 1.0),
    ),
    "a tier is reborn and another one answers late": _script(
        _IN_BOTH,
        (2.0, "reborn", _DISK, 1.0),
        (2.05, "evict", 0, 1.0),
        *((4.9 + 0.1 * step, "wake", 0, 1.0) for step in range(4)),
        incidents=tuple(
            ("far.observe", number, Fault(kind=Kind.DELAY, amount=1.5)) for number in (4, 5, 6)
        ),
    ),
    "a repair leads to cold where memory holds copies": _script(
        _IN_BOTH, (2.0, "evict", 0, 1.0), (10.0, "appear", _MEM, 1.0), (10.01, "repair", 0, 1.0)
    ),
    "a machine loses power during an eviction": _script(
        _IN_MEMORY, (2.0, "evict", 0, 1.0), (2.08, "power", 0, 1.0)
    ),
    "a deposed leader goes on with a deletion": _script(
        _IN_BOTH,
        (2.0, "clog", _MEM, 0.2),
        (2.0, "delete", 0, 1.0),
        (3.0, "partition", 0, 0.9),
    ),
    "two memories hold the same": _script(
        _IN_BOTH, (2.0, "wipe", _MEM, 1.0), (12.0, "rehydrate", 0, 1.0), (30.0, "evict", 0, 1.0),
        tiers=POOL,
    ),
    "a tier is silent during a deletion": _script(
        _IN_BOTH, (2.0, "away", _DISK, 0.5), (3.0, "delete", 0, 1.0)
    ),
    "somebody asks what would be done": _script(
        _IN_MEMORY,
        (2.0, "evict", 0, 1.0),
        *((2.02 + 0.02 * step, "plan", 0, 1.0) for step in range(8)),
    ),
    "a commit is uncertain": _script(
        _IN_MEMORY,
        (2.0, "evict", 0, 1.0),
        incidents=((COMMIT, 5, Fault(kind=Crash.UNCERTAIN_LOST)),),
    ),
    "the first commit is refused": _brief(
        _IN_MEMORY, incidents=((COMMIT, 0, Fault(kind=Crash.REFUSED)),)
    ),
    "the first commit is uncertain": _brief(
        _IN_MEMORY, incidents=((COMMIT, 0, Fault(kind=Crash.UNCERTAIN_LOST)),)
    ),
    "every other commit is refused": _script(
        _IN_MEMORY,
        (2.0, "evict", 0, 1.0),
        incidents=tuple((COMMIT, n, Fault(kind=Crash.REFUSED)) for n in range(3, 15, 2)),
    ),
    "no tier takes anything for a while": _script(
        _IN_MEMORY,
        (2.0, "evict", 0, 1.0),
        latency_s=0.0,
        incidents=tuple(
            (f"{tier}.store", n, Fault(kind=Kind.ERROR))
            for tier in ("disk", "far")
            for n in range(200)
        ),
    ),
    "memory is wiped while a cold tier gives no answer": _script(
        _IN_BOTH,
        (2.0, "wipe", _MEM, 1.0),
        *((2.1 + step, "wake", 0, 1.0) for step in range(8)),
        incidents=tuple(("disk.observe", n, Fault(kind=Kind.UNKNOWN)) for n in range(2, 30)),
    ),
    "three revisions are evicted at once": _script(
        *((0.0, "import", number, 0.0) for number in range(3)),
        *((9.0, "evict", number, 1.0) for number in range(3)),
        revisions=3,
        payloads=5,
        latency_s=0.3,
    ),
    "revisions are imported long after the start": _script(
        *((60.0 + 0.7 * number, "import", number, 1.0) for number in range(4)),
        revisions=4,
        latency_s=0.0,
    ),
    "a revision that has lost everything is visited at rest": _script(
        _IN_MEMORY, (2.0, "wipe", _MEM, 1.0), (3.0, "evict", 0, 1.0)
    ),
    "a revision is imported twice": _script(
        _IN_MEMORY, (2.0, "delete", 0, 1.0), (20.0, "import", 0, 0.0)
    ),
    "tiers say that they stored what they did not": _script(
        _IN_MEMORY,
        (2.0, "evict", 0, 1.0),
        latency_s=0.0,
        incidents=tuple(
            (f"{tier}.store", n, Fault(kind=Kind.FALSE_DONE))
            for tier in ("disk", "far")
            for n in range(200)
        ),
    ),
    "a revision of many members is evicted": _brief(
        _IN_MEMORY, (2.0, "evict", 0, 1.0), payloads=30
    ),
    "what was dropped lingers while a member is lost": _script(
        _IN_BOTH,
        (2.0, "lose", _MEM, 0.0),
        (2.0, "lose", _DISK, 0.0),
        (8.0, "evict", 0, 1.0),
        payloads=5,
        latency_s=0.0,
        tiers=_LINGERING,
    ),
    "a copy that was set aside is not listed yet": _script(
        _IN_MEMORY,
        (0.5, "repair", 0, 1.0),
        (1.5, "delete", 0, 1.0),
        tiers=_BEHIND,
        incidents=tuple(("disk.store", n, Fault(kind=Kind.ROT)) for n in range(2)),
    ),
}  # fmt: skip
"""What chance seldom meets."""

SCENARIOS: Mapping[str, Script] = {**OPERATIONS, **CORNERS}
