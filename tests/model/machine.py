"""The stateful test that asks the model and the real thing the same, step by step.

A subclass gives a driver of the real thing: the pure state, or a store with its journal. Requests
are drawn around what the model holds (the present generation, one before, one ahead; known ids), so
that most of them reach deep into their tables; the clock goes both ways.
"""

from collections.abc import Callable
from inspect import signature
from random import Random
from typing import Any, Protocol, TypeVar, cast

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.model.decisions import TOP, Answer, Model, Name, Row
from tests.model.translate import NAMES, plain_state, start_snapshot
from weightctl.controller.core.records import Availability, Operation, Residency, Snapshot


class Driver(Protocol):
    """The real thing, answering in the model's plain form."""

    def ask(self, request: Row, now: int) -> Answer:
        """Answer one request at a wall-clock time in milliseconds."""

    def snapshot(self) -> Snapshot:
        """Give the whole visible state."""

    def audit(self) -> None:
        """Check what must hold at any point: restore, replay, restart."""


VALID = [name for name in NAMES.values() if name.valid and name.fits]
V2, INVALID = NAMES["v2"], NAMES["invalid"]

CHOICES: dict[str, list[Any]] = {
    # None stands for the revision in focus: the first one that is not on its way out.
    "name": [None, None, None, None, None, None, *NAMES.values()],
    "leaving": [*VALID, V2, INVALID],
    "scope": [None, V2, INVALID],
    # From the present generation; the last two stand for 0 and for the largest number.
    "offset": [0, 0, 0, 0, 0, 0, 0, 0, -1, -1, 1, -2, -TOP, TOP],
    "delta": [0, 0, 1, 1, 5, 10, 50, 100, -1, -60, 1000, -500, 3_600_000, -3_600_000],
    "towards": ["HOT", "HOT", "HOT", "COLD", "COLD", "COLD", "MIXED", "UNKNOWN"],
    "place": ["HOT", "COLD", "MIXED", "MIXED", "ABSENT", "UNKNOWN"],
    "state": ["READY"] * 4 + ["DEGRADED"] * 3 + ["IMPORTING", "DELETED"],
    # Empty stands for the tenant of the record that is named.
    "tenant": ["", "", "", "", "", "", "default", "tenant-t", "_bad"],
    # How far behind the newest id; the last two stand for the largest number and for 0.
    "behind": [0, 0, 0, 0, 0, 0, 1, 2, -1, TOP, TOP + 1],
    "holder": ["one", "one", "two", "two", "three", ""],
    "ttl": [1, 50, 100, 1000, 1000, 86_400_000, 0, 86_400_001],
    "count": [1, 1, 1, 1, 1, 2, 0, TOP, TOP + 1],
    "size": [100, 100, 100, 100, 7, 0, TOP + 1],
    "sha": ["a", "a", "a", "a", "a", "c", "bad"],
    "flaw": ["", "", "", "", "", "key", "size"],
    "extra": [False] * 9 + [True],
    "short": [False, True],
    "same": [False, True],
    "marks": [(0, 2), (1, 2), (2, 2), (1, 3), (3, 3), (2, 4), (4, 3), (0, 0)],
    "cursor": ["", "a", "a", "b", "b", "\n"],
    "limit": [0, 1, 2, 1000, 1001],
    "after": [None, V2, NAMES["v10"]],
}
STEPS: dict[str, tuple[str, ...]] = {}
"""Every step and the names of its choices, for `walk`."""

Method = TypeVar("Method", bound=Callable[..., None])


def step(method: Method) -> Method:
    """Make a method a rule whose arguments are drawn from the choices of their names."""
    names = tuple(signature(method).parameters)[1:]
    STEPS[method.__name__] = names
    draws = {name: st.sampled_from(CHOICES[name]) for name in names}
    decorate: Any = rule
    return cast("Method", decorate(**draws)(method))


LAST = TOP - 1
STARTS: list[tuple[Snapshot, int]] = [
    (Snapshot(), 1_000),
    (Snapshot(), 1_000),
    (start_snapshot(now_ms=500), 1_000),
    (start_snapshot(now_ms=500), 1_000),
    (start_snapshot(now_ms=500, leases=[5_000]), 1_000),
    (start_snapshot(now_ms=500, leases=[5_000], operation=Operation.REPAIRING), 1_000),
    (start_snapshot(now_ms=500, leases=[5_000], operation=Operation.REHYDRATING), 1_000),
    (start_snapshot(availability=Availability.DELETING), 1_000),
    (start_snapshot(), TOP - 5_000),
    (start_snapshot(generation=TOP - 5), 1_000),
    (start_snapshot(generation=LAST), 1_000),
    (start_snapshot(generation=LAST, operation=Operation.REHYDRATING), 1_000),
    (start_snapshot(generation=LAST, availability=Availability.DELETING), 1_000),
    (start_snapshot(generation=LAST, availability=Availability.DEGRADED), 1_000),
    (
        start_snapshot(
            generation=LAST,
            availability=Availability.IMPORTING,
            residency=Residency.UNKNOWN,
        ),
        1_000,
    ),
    (start_snapshot(next_id=TOP - 2), 1_000),
    (start_snapshot(next_id=TOP), 1_000),
]


class WeightMachine(RuleBasedStateMachine):
    """Model and driver, asked the same; `steps` counts over all runs of a class."""

    steps = 0

    def driver_of(self, snapshot: Snapshot) -> Driver:
        """Give the real thing, holding the snapshot."""
        raise NotImplementedError

    @initialize(start=st.sampled_from(STARTS))
    def begin_somewhere(self, start: tuple[Snapshot, int]) -> None:
        snapshot, self.now = start
        self.model: Model = plain_state(snapshot)
        self.driver: Driver = self.driver_of(snapshot)

    def ask(self, call: str, delta: int, **arguments: Any) -> None:
        type(self).steps += 1
        self.now = min(max(self.now + delta, 0), TOP)
        request = {"call": call, **arguments}
        expected = self.model.ask(request, self.now)
        assert self.driver.ask(request, self.now) == expected, request

    def focus(self, name: Name | None) -> Name:
        """Give the named revision, or the first one that lives or does not yet."""
        going = ("DELETING", "DELETED")
        revs = self.model.revs
        living = (each for each in VALID if each not in revs or revs[each]["av"] not in going)
        return name or next(living, V2)

    def aimed(self, name: Name | None, offset: int) -> Row:
        """Give name and expected generation of a request that is fenced."""
        focus = self.focus(name)
        row = self.model.revs.get(focus)
        present = 1 if row is None else row["gen"]
        expected = {-TOP: 0, TOP: TOP}.get(offset, min(present + offset, TOP))
        return {"name": focus, "expected": expected}

    @staticmethod
    def newest(behind: int, following: int) -> int:
        return {TOP: TOP, TOP + 1: 0}.get(behind, min(max(following - 1 - behind, 1), TOP))

    @staticmethod
    def tenant(given: str, record: Row | None) -> str:
        return given or (record["name"].tenant if record else "default")

    # --- revisions --------------------------------------------------------------------------------

    @step
    def begin(self, delta: int, name: Name | None, count: int, size: int) -> None:
        self.ask("begin", delta, name=self.focus(name), count=count, bytes=size)

    @step
    def commit(self, delta: int, name: Name | None, offset: int, sha: str, flaw: str) -> None:
        aimed = self.aimed(name, offset)
        row = self.model.revs.get(aimed["name"])
        declared = row["ref"] if row else {"count": 1, "bytes": 100}
        ref = {"group": aimed["name"].label, "count": declared["count"], "sha": sha}
        ref["bytes"] = 8 if flaw == "size" else declared["bytes"]
        ref["canonical"] = flaw != "key"
        self.ask("commit", delta, **aimed, ref=ref)

    @step
    def publish(self, delta: int, name: Name | None) -> None:
        focus = self.focus(name)
        self.ask("begin", delta, name=focus, count=1, bytes=100)
        ref = {"group": focus.label, "count": 1, "bytes": 100, "sha": "a", "canonical": True}
        self.ask("commit", 0, **self.aimed(focus, 0), ref=ref)

    @step
    def abort(self, delta: int, name: Name | None, offset: int) -> None:
        self.ask("abort", delta, **self.aimed(name, offset))

    @step
    def delete(self, delta: int, name: Name | None, offset: int) -> None:
        self.ask("delete", delta, **self.aimed(name, offset))

    @step
    def finish_delete(self, delta: int, leaving: Name, offset: int) -> None:
        self.ask("finish_delete", delta, **self.aimed(leaving, offset))

    @step
    def observe(self, delta: int, name: Name | None, offset: int, state: str, place: str) -> None:
        self.ask("observe", delta, **self.aimed(name, offset), av=state, res=place)

    # --- leases -----------------------------------------------------------------------------------

    @step
    def acquire(self, delta: int, name: Name | None, offset: int, holder: str, ttl: int) -> None:
        self.ask("acquire", delta, **self.aimed(name, offset), holder=holder, ttl=ttl)

    @step
    def renew(self, delta: int, behind: int, ttl: int, tenant: str) -> None:
        number = self.newest(behind, self.model.next_lease)
        tenant = self.tenant(tenant, self.model.leases.get(number))
        self.ask("renew", delta, id=number, ttl=ttl, tenant=tenant)

    @step
    def release(self, delta: int, behind: int, tenant: str) -> None:
        number = self.newest(behind, self.model.next_lease)
        tenant = self.tenant(tenant, self.model.leases.get(number))
        self.ask("release", delta, id=number, tenant=tenant)

    @step
    def expire(self, delta: int, scope: Name | None) -> None:
        self.ask("expire", delta, name=scope)

    # --- operations -------------------------------------------------------------------------------

    @step
    def start(self, delta: int, name: Name | None, offset: int, towards: str, extra: bool) -> None:
        aimed = self.aimed(name, offset)
        self.ask("start", delta, **aimed, target=towards, members=self.members(aimed, extra))

    @step
    def repair(
        self,
        delta: int,
        name: Name | None,
        offset: int,
        towards: str,
        *,
        extra: bool,
        short: bool,
    ) -> None:
        aimed = self.aimed(name, offset)
        members = self.members(aimed, extra)
        self.ask("repair", delta, **aimed, target=towards, members=members, short=short)

    def members(self, aimed: Row, extra: bool) -> int:
        row = self.model.revs.get(aimed["name"])
        return int(row["ref"]["count"] if row else 1) + (2 if extra else 1)

    @step
    def progress(
        self,
        delta: int,
        behind: int,
        marks: tuple[int, int],
        cursor: str,
        *,
        state: str,
        place: str,
        same: bool,
    ) -> None:
        number = self.newest(behind, self.model.next_op)
        op = self.model.ops.get(number)
        if same and op is not None:
            row = self.model.revs[op["name"]]
            state, place = row["av"], row["res"]
        request = {"id": number, "processed": marks[0], "total": marks[1], "cursor": cursor}
        self.ask("progress", delta, **request, av=state, res=place)

    @step
    def finish(self, delta: int, behind: int, towards: str) -> None:
        self.ask("finish", delta, id=self.newest(behind, self.model.next_op), res=towards)

    # --- reads ------------------------------------------------------------------------------------

    @step
    def read(self, delta: int, name: Name | None, tenant: str, behind: int) -> None:
        self.ask("get", delta, name=self.focus(name))
        number = self.newest(behind, self.model.next_op)
        tenant = self.tenant(tenant, self.model.ops.get(number))
        self.ask("query", 0, id=number, tenant=tenant)

    @step
    def browse(self, limit: int, after: Name | None) -> None:
        row = None if after is None else after.listing[3:]
        self.ask("list", 0, resource=V2.listing[:3], limit=limit, after=row)

    @step
    def look_closely(self) -> None:
        self.driver.audit()

    @invariant()
    def both_hold_the_same(self) -> None:
        assert plain_state(self.driver.snapshot()) == self.model

    def teardown(self) -> None:
        if hasattr(self, "driver"):
            self.driver.audit()


def walk(machine: WeightMachine, random: Random, steps: int) -> None:
    """Take random steps from a random start; wider than a search that also has to shrink."""
    machine.begin_somewhere(start=random.choice(STARTS))
    for _ in range(steps):
        name = random.choice(sorted(STEPS))
        chosen = {choice: random.choice(CHOICES[choice]) for choice in STEPS[name]}
        getattr(machine, name)(**chosen)
        machine.both_hold_the_same()
    machine.teardown()
