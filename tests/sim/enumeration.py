"""Enumeration besides chance: each operation with one incident, at every place where one can be.

For a place (`tier.call`, `disk.commit`) and a fault the number of the call grows until a run passes
without the incident: then every call has been hit. Tiers are clogged one by one, at every moment of
an operation, and released in every order.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import permutations

from tests.sim.scenarios import OPERATIONS
from weightctl.adapters.conformance.faults import ERRORS, Call, Fault, Kind
from weightctl.adapters.conformance.simulation.report import Report
from weightctl.adapters.conformance.simulation.script import (
    COMMIT,
    FOLD,
    JOURNAL_FAULTS,
    KILLS,
    ROWS,
    TIERS,
    Action,
    Crash,
    Script,
)
from weightctl.adapters.conformance.simulation.shrink import told
from weightctl.adapters.conformance.simulation.world import simulate

_PRIMITIVES = (Call.STORE, Call.DROP, Call.QUARANTINE, Call.VERIFY)
_TIER_NAMES = tuple(spec.name for spec in TIERS)
CALLS_MAX = 500
"""No operation of this size makes more calls of one kind; more is a run that does not end."""

FaultAt = Callable[[int], Fault]
"""What goes wrong at the how-manieth call of a place."""
Place = tuple[str, FaultAt]


def _always(kind: str, amount: float = 0.0) -> FaultAt:
    fault = Fault(kind=str(kind), amount=amount)
    return lambda _: fault


def _turning(kind: str, first: int, at_once: int) -> FaultAt:
    """The next class of error at each call, with `at_once` of them at each."""
    return lambda number: Fault(kind=str(kind), amount=(first + at_once * number) % len(ERRORS))


def places(calls: Iterable[Call]) -> list[str]:
    """These calls at every tier."""
    return [f"{tier}.{call}" for tier in _TIER_NAMES for call in calls]


def _crashes() -> Iterator[Place]:
    for place in (*places(Call), COMMIT, FOLD, ROWS):
        for kind in KILLS:
            yield place, _always(kind)


def _journal() -> Iterator[Place]:
    for place, kinds in JOURNAL_FAULTS.items():
        for kind in kinds:
            if kind not in (*KILLS, Crash.DEPOSE):
                yield place, _always(kind, 5)


def _leaders() -> Iterator[Place]:
    for place in (*places(_PRIMITIVES), COMMIT):
        yield place, _always(Crash.DEPOSE, 12)


def _views() -> Iterator[Place]:
    for place in places((Call.OBSERVE,)):
        for depth in (1, 2, 3):
            yield place, _always(Kind.STALE, depth)
        for kind in (Kind.UNKNOWN, Kind.LOSE_REQUEST, Kind.EMPTY, Kind.WRONG_EPOCH, Kind.FOREIGN):
            yield place, _always(kind)


def _quick_views() -> Iterator[Place]:
    for place in places((Call.OBSERVE,)):
        for depth in (1, 2, 3):
            yield place, _always(Kind.STALE, depth)
        yield place, _always(Kind.UNKNOWN)
        yield place, _lying


def _lying(number: int) -> Fault:
    """Another lie at each look."""
    kinds = (Kind.EMPTY, Kind.FOREIGN, Kind.WRONG_EPOCH, Kind.LOSE_REQUEST)
    return Fault(kind=kinds[number % len(kinds)])


def _answers() -> Iterator[Place]:
    kinds = (Kind.LOSE_REQUEST, Kind.LOSE_ANSWER, Kind.LATE, Kind.DOUBLE, Kind.PART, Kind.CUT)
    for place in places(_PRIMITIVES):
        for kind in (*kinds, Kind.SURPLUS, Kind.SHUFFLE, Kind.FALSE_DONE, Kind.BUSY):
            yield place, _always(kind, 7)


def _bytes() -> Iterator[Place]:
    for place in places((Call.STORE,)):
        for kind in (Kind.NO_SPACE, Kind.FLIP, Kind.TORN, Kind.ROT, Kind.OLD):
            yield place, _always(kind, 1)


def _errors(faults: Iterable[FaultAt], calls: Iterable[Call]) -> Iterator[Place]:
    where = places(calls)
    for fault_at in faults:
        for place in where:
            yield place, fault_at


EVERY_ERROR = range(len(ERRORS))
FAMILIES: Mapping[str, tuple[Place, ...]] = {
    "crash": tuple(_crashes()),
    "journal": tuple(_journal()),
    "second leader": tuple(_leaders()),
    "view": tuple(_views()),
    "answer": tuple(_answers()),
    "bytes": tuple(_bytes()),
    "error": tuple(_errors([_always(Kind.ERROR, n) for n in EVERY_ERROR], Call)),
    "error after": tuple(_errors([_always(Kind.FAIL_AFTER, n) for n in EVERY_ERROR], _PRIMITIVES)),
}
AT_ONCE: Mapping[Call, int] = {Call.OBSERVE: 1, Call.QUARANTINE: len(ERRORS)}
"""Classes of error that a quick enumeration tries at each call; of other calls four."""


def quick(operation: str) -> Mapping[str, tuple[Place, ...]]:
    """Every place of an operation, but each call with one lie and some classes of error only.

    They take turns over calls, tiers and operations, so that each class meets each kind of call.
    """
    begin = 3 * list(OPERATIONS).index(operation)
    return {
        **FAMILIES,
        "view": tuple(_quick_views()),
        "error": tuple(_quick_errors(Kind.ERROR, Call, begin)),
        "error after": tuple(_quick_errors(Kind.FAIL_AFTER, _PRIMITIVES, begin)),
    }


def _quick_errors(kind: Kind, calls: Iterable[Call], begin: int) -> Iterator[Place]:
    for call in calls:
        at_once = AT_ONCE.get(call, 4)
        for tier, place in enumerate(places([call])):
            for one in range(at_once):
                yield place, _turning(kind, begin + tier + one, at_once)


JAM_STEPS = 4
JAM_STEP_S = 0.12


@dataclass(slots=True)
class Enumerated:
    """What an enumeration did; it stops at the first broken rule."""

    runs: int = 0
    incidents: int = 0
    errors: set[tuple[str, str, int]] = field(default_factory=set)
    """Call, kind of fault and class of error of what happened."""
    broken: tuple[tuple[Script, Report], ...] = ()

    def run(self, script: Script) -> Report:
        """Simulate one script and count it."""
        report = simulate(script)
        self.runs += 1
        self.incidents += report.incidents
        if report.oracle:
            self.broken = ((script, report),)
        return report


def enumerate_incidents(operation: str, faults: Iterable[Place]) -> Enumerated:
    """One operation under each fault at each of its places."""
    base, done = OPERATIONS[operation], Enumerated()
    reached = simulate(base).reached
    for place, fault_at in faults:
        if not reached[place]:
            continue
        for number in range(CALLS_MAX):
            fault = fault_at(number)
            report = done.run(replace(base, incidents=((place, number, fault),)))
            if report.incidents and fault.kind in (Kind.ERROR, Kind.FAIL_AFTER):
                done.errors.add((place.rpartition(".")[2], fault.kind, int(fault.amount)))
            if done.broken:
                return done
            if not report.incidents:
                break
    return done


def enumerate_jams(operation: str) -> Enumerated:
    """One operation while the tiers are clogged one by one, released in each order."""
    base, done = OPERATIONS[operation], Enumerated()
    begins_s = base.actions[-1].at_s
    for order in range(len(list(permutations(_TIER_NAMES)))):
        for step in range(JAM_STEPS):
            jam = Action(at_s=begins_s + step * JAM_STEP_S, name="jam", of=order, amount=0.01)
            script = replace(base, actions=(*base.actions, jam))
            done.run(script)
            done.incidents += 1
            if done.broken:
                return done
    return done


def judged(done: Enumerated) -> None:
    """Fail with what broke, made small; and when nothing went wrong at all."""
    for script, report in done.broken:
        raise AssertionError(told(script, report))
    assert done.incidents, "nothing went wrong"
