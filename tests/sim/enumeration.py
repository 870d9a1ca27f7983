"""Enumeration besides chance: each operation with one incident, at every place where one can be.

For a place (`tier.call`, `disk.commit`) and a fault the number of the call grows until a run passes
without the incident: then every call has been hit.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from tests.sim.report import Report
from tests.sim.scenarios import OPERATIONS
from tests.sim.script import COMMIT, TIERS, Crash, Script
from tests.sim.world import simulate
from weightctl.adapters.conformance.faults import ERRORS, Call, Fault, Kind

_PRIMITIVES = (Call.STORE, Call.DROP, Call.QUARANTINE, Call.VERIFY)
_TIER_NAMES = tuple(spec.name for spec in TIERS)
CALLS_MAX = 500
"""No operation of this size makes more calls of one kind; more is a run that does not end."""


def places(calls: Iterable[Call]) -> list[str]:
    """These calls at every tier."""
    return [f"{tier}.{call}" for tier in _TIER_NAMES for call in calls]


def _crashes() -> Iterator[tuple[str, Fault]]:
    for place in (*places((*_PRIMITIVES, Call.OBSERVE, Call.INVENTORY)), COMMIT):
        for kind in (Crash.KILL_BEFORE, Crash.KILL_AFTER):
            yield place, Fault(kind=str(kind))


def _journal() -> Iterator[tuple[str, Fault]]:
    for kind in (Crash.REFUSED, Crash.UNCERTAIN_LOST, Crash.UNCERTAIN_KEPT):
        yield COMMIT, Fault(kind=str(kind))


def _views() -> Iterator[tuple[str, Fault]]:
    for place in places((Call.OBSERVE,)):
        for depth in (1, 2, 3):
            yield place, Fault(kind=str(Kind.STALE), amount=depth)
        for kind in (Kind.UNKNOWN, Kind.LOSE_REQUEST, Kind.EMPTY, Kind.WRONG_EPOCH, Kind.FOREIGN):
            yield place, Fault(kind=str(kind))


def _answers() -> Iterator[tuple[str, Fault]]:
    kinds = (Kind.LOSE_REQUEST, Kind.LOSE_ANSWER, Kind.LATE, Kind.DOUBLE, Kind.PART, Kind.CUT)
    for place in places(_PRIMITIVES):
        for kind in (*kinds, Kind.SURPLUS, Kind.SHUFFLE, Kind.FALSE_DONE, Kind.BUSY):
            yield place, Fault(kind=str(kind), amount=7)


def _bytes() -> Iterator[tuple[str, Fault]]:
    for place in places((Call.STORE,)):
        for kind in (Kind.NO_SPACE, Kind.FLIP, Kind.TORN, Kind.ROT):
            yield place, Fault(kind=str(kind), amount=1)


def _errors(classes: Iterable[int]) -> Iterator[tuple[str, Fault]]:
    for number in classes:
        for place in places(Call):
            yield place, Fault(kind=str(Kind.ERROR), amount=number)


def _errors_after(classes: Iterable[int]) -> Iterator[tuple[str, Fault]]:
    for number in classes:
        for place in places(_PRIMITIVES):
            yield place, Fault(kind=str(Kind.FAIL_AFTER), amount=number)


EVERY_ERROR = range(len(ERRORS))
FAMILIES: Mapping[str, tuple[tuple[str, Fault], ...]] = {
    "crash": tuple(_crashes()),
    "journal": tuple(_journal()),
    "view": tuple(_views()),
    "answer": tuple(_answers()),
    "bytes": tuple(_bytes()),
    "error": tuple(_errors(EVERY_ERROR)),
    "error after": tuple(_errors_after(EVERY_ERROR)),
}
QUICK = {**FAMILIES, "error": tuple(_errors((0, 9))), "error after": tuple(_errors_after((7,)))}
"""Every place and kind, but of the classes of errors only the mildest and the wildest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A rule that one incident broke."""

    script: Script
    report: Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Enumerated:
    """What an enumeration did."""

    runs: int
    incidents: int
    broken: tuple[Broken, ...]


def enumerate_incidents(operation: str, faults: Iterable[tuple[str, Fault]]) -> Enumerated:
    """One operation under each fault at each of its places; stops at the first broken rule."""
    base = OPERATIONS[operation]
    runs = incidents = 0
    reached = simulate(base).reached
    for place, fault in faults:
        if not reached[place]:
            continue
        for number in range(CALLS_MAX):
            script = replace(base, incidents=((place, number, fault),))
            report = simulate(script)
            runs += 1
            incidents += report.incidents
            if report.oracle:
                broken = (Broken(script=script, report=report),)
                return Enumerated(runs=runs, incidents=incidents, broken=broken)
            if not report.incidents:
                break
    return Enumerated(runs=runs, incidents=incidents, broken=())
