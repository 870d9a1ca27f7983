"""Who may use a tier next.  Layer: runtime.

Batches ask for a place at every tier that they touch: a slot and their bytes at each end, and get
both ends or wait.  Among those waiting, the class that is furthest below its share goes first, by
what it holds and, where that is the same (a tier may have one slot), by what it has had; within a
class the revision that was served longest ago.  So no class and no revision starves.
Release has one path, the end of the `async with`.
"""

import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum

import anyio

_PASSED_OVER_MAX = 8
"""A batch that was passed over this often keeps its tiers from being filled by later ones."""
_REMEMBERED_MAX = 10_000


class WorkClass(StrEnum):
    """What a batch is for."""

    REPAIR = "repair"
    REHYDRATE = "rehydrate"
    EVICT = "evict"
    DELETE = "delete"
    VERIFY = "verify"


SHARES: Mapping[WorkClass, float] = {
    WorkClass.REHYDRATE: 0.36,
    WorkClass.REPAIR: 0.28,
    WorkClass.EVICT: 0.14,
    WorkClass.DELETE: 0.14,
    WorkClass.VERIFY: 0.08,
}
"""Share of a tier's slots that each class may count on while it has work.  Loads and imports ask
for no place: they meet the loop in the tiers' bandwidth only.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierLimits:
    """Bounds of one tier; bandwidth None is unlimited."""

    concurrency: int = 4
    bytes_in_flight: int = 1024**3
    bandwidth_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """What a batch asks for."""

    work_class: WorkClass
    owner: str
    """Fair between owners: the revision."""
    tiers: tuple[str, ...]
    size_bytes: int


@dataclass(slots=True)
class _Load:
    limits: TierLimits
    running: int = 0
    bytes_in_flight: int = 0
    by_class: dict[WorkClass, int] = field(default_factory=dict)
    turn: float = 0.0
    """Of the batch that was let in last; turns of a class lie the further apart, the smaller its
    share is."""
    next_turns: dict[WorkClass, float] = field(default_factory=dict)

    def turn_of(self, work_class: WorkClass) -> float:
        """The turn of the class's next batch; a class that had nothing to do saves nothing up."""
        return max(self.turn, self.next_turns.get(work_class, 0.0))


@dataclass(slots=True, eq=False)
class _Waiting:
    ticket: Ticket
    order: int
    admitted: anyio.Event
    passed_over: int = 0


class Admission:
    """Slots and bytes in flight of every tier."""

    def __init__(
        self,
        tiers: Sequence[str],
        limits: Mapping[str, TierLimits] | None = None,
        shares: Mapping[WorkClass, float] = SHARES,
    ) -> None:
        given = limits or {}
        self._loads = {name: _Load(given.get(name, TierLimits())) for name in tiers}
        self._shares = shares
        self._waiting: list[_Waiting] = []
        self._order = itertools.count()
        self._served: dict[str, int] = {}

    def set_limits(self, limits: Mapping[str, TierLimits]) -> None:
        """Replace limits while running; what is under way is not disturbed."""
        for name, load in self._loads.items():
            load.limits = limits.get(name, load.limits)
        self._admit()

    @property
    def waiting_count(self) -> int:
        """Batches that wait for a place."""
        return len(self._waiting)

    def in_flight(self, tier: str) -> tuple[int, int]:
        """(batches, bytes) under way at a tier."""
        load = self._loads[tier]
        return load.running, load.bytes_in_flight

    @asynccontextmanager
    async def place(self, ticket: Ticket) -> AsyncIterator[None]:
        """Hold a slot and the ticket's bytes at each of its tiers for the length of the block."""
        waiting = _Waiting(ticket, next(self._order), anyio.Event())
        self._waiting.append(waiting)
        self._admit()
        try:
            if not waiting.admitted.is_set():
                await waiting.admitted.wait()
            yield
        finally:
            if waiting.admitted.is_set():
                self._release(ticket)
            else:
                self._waiting.remove(waiting)
            self._admit()

    def _release(self, ticket: Ticket) -> None:
        for name in ticket.tiers:
            load = self._loads[name]
            load.running -= 1
            load.bytes_in_flight -= ticket.size_bytes
            load.by_class[ticket.work_class] -= 1

    def _admit(self) -> None:
        """Let in whoever may go, best first, until nobody fits."""
        while (chosen := self._choose()) is not None:
            self._waiting.remove(chosen)
            self._enter(chosen.ticket)
            chosen.admitted.set()

    def _choose(self) -> _Waiting | None:
        reserved: set[str] = set()
        for waiting in sorted(self._waiting, key=self._rank):
            tiers = waiting.ticket.tiers
            if self._fits(waiting.ticket) and reserved.isdisjoint(tiers):
                self._pass_over(waiting)
                return waiting
            if waiting.passed_over >= _PASSED_OVER_MAX:
                reserved.update(tiers)
        return None

    def _pass_over(self, chosen: _Waiting) -> None:
        """Note that `chosen` goes before others that asked earlier for the same tiers."""
        for other in self._waiting:
            if other.order < chosen.order and set(other.ticket.tiers) & set(chosen.ticket.tiers):
                other.passed_over += 1

    def _enter(self, ticket: Ticket) -> None:
        for name in ticket.tiers:
            load = self._loads[name]
            load.running += 1
            load.bytes_in_flight += ticket.size_bytes
            load.by_class[ticket.work_class] = load.by_class.get(ticket.work_class, 0) + 1
            load.turn = load.turn_of(ticket.work_class)
            load.next_turns[ticket.work_class] = load.turn + 1 / self._shares[ticket.work_class]
        self._served.pop(ticket.owner, None)
        self._served[ticket.owner] = next(self._order)
        if len(self._served) > _REMEMBERED_MAX:
            del self._served[next(iter(self._served))]

    def _fits(self, ticket: Ticket) -> bool:
        """Whether every end has room; a batch larger than the bound goes alone."""
        for name in ticket.tiers:
            load = self._loads[name]
            if load.running >= load.limits.concurrency:
                return False
            flying = load.bytes_in_flight
            if flying and flying + ticket.size_bytes > load.limits.bytes_in_flight:
                return False
        return True

    def _rank(self, waiting: _Waiting) -> tuple[bool, float, float, int, int]:
        """Lower goes first: passed over too often, use of the class's share at the busiest end,
        the class's turn there, last served, order of asking.
        """
        ticket = waiting.ticket
        share = self._shares[ticket.work_class]
        loads = [self._loads[name] for name in ticket.tiers]
        use = max(load.by_class.get(ticket.work_class, 0) / share for load in loads)
        turn = max(load.turn_of(ticket.work_class) for load in loads)
        patient = waiting.passed_over < _PASSED_OVER_MAX
        return patient, use, turn, self._served.get(ticket.owner, -1), waiting.order
