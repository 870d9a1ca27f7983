"""The stateful test that asks the model and the real thing the same, step by step.

A subclass gives a driver of the real thing: the pure state, or a store with its journal. Requests
are drawn around what the model holds (the present generation, one before, one ahead; known ids), so
that most of them reach deep into their tables; the clock goes both ways.
"""

from typing import Any, Protocol

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.model.decisions import TOP, Answer, Model, Row
from tests.model.translate import NAMES, plain_state, start_snapshot
from weightctl.controller.core.records import Snapshot


class Driver(Protocol):
    """The real thing, answering in the model's plain form."""

    def ask(self, request: Row, now: int) -> Answer:
        """Answer one request at a wall-clock time in milliseconds."""

    def snapshot(self) -> Snapshot:
        """Give the whole visible state."""

    def audit(self) -> None:
        """Check what must hold at any point: restore, replay, restart."""


V2, V10, TENANT = NAMES["v2"], NAMES["v10"], NAMES["tenant"]
OFTEN = st.sampled_from([V2, V2, V2, V2, V10, V10, *NAMES.values()])
OFFSETS = st.sampled_from([0, 0, 0, 0, 0, 0, -1, -1, 1, -2, -TOP, TOP])
DELTAS = st.sampled_from([0, 1, 1, 10, 50, 100, 1000, -1, -60, -500, 3_600_000, -3_600_000])
TARGETS = st.sampled_from(["HOT", "HOT", "COLD", "COLD", "MIXED", "UNKNOWN"])
PLACES = st.sampled_from(["HOT", "COLD", "MIXED", "ABSENT", "UNKNOWN"])
STATES = st.sampled_from(["READY", "READY", "DEGRADED", "DEGRADED", "IMPORTING", "DELETED"])
TENANTS = st.sampled_from(["default", "default", "default", "tenant-t", "_bad"])
IDS = st.sampled_from([0, 0, 0, 0, 1, 2, 3, TOP, TOP + 1])
"""How far behind the newest id; the last two stand for themselves and for id 0."""
HOLDERS = st.sampled_from(["one", "two", ""])
TTLS = st.sampled_from([0, 1, 50, 100, 1000, 86_400_000, 86_400_001])
COUNTS = st.sampled_from([1, 1, 1, 1, 2, 0, TOP, TOP + 1])
SHAS = st.sampled_from(["a", "a", "a", "a", "c", "bad"])

STARTS = [
    (Snapshot(), 1_000),
    (Snapshot(), 1_000),
    (start_snapshot(now_ms=500), 1_000),
    (start_snapshot(now_ms=500), 1_000),
    (start_snapshot(generation=TOP - 6), 1_000),
    (start_snapshot(generation=TOP - 1), 1_000),
    (start_snapshot(next_id=TOP - 2), 1_000),
    (start_snapshot(next_id=TOP), 1_000),
    (start_snapshot(), TOP - 5_000),
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

    def expected(self, name: Any, offset: int) -> int:
        row = self.model.revs.get(name)
        present = 1 if row is None else row["gen"]
        if offset == -TOP:
            return 0
        return min(present + offset, TOP) if offset != TOP else TOP

    @staticmethod
    def newest(behind: int, following: int) -> int:
        if behind == TOP + 1:
            return 0
        return TOP if behind == TOP else max(following - 1 - behind, 1)

    # --- revisions --------------------------------------------------------------------------------

    @rule(delta=DELTAS, name=OFTEN, count=COUNTS, size=st.sampled_from([100, 100, 100, 7, 0]))
    def begin(self, delta: int, name: Any, count: int, size: int) -> None:
        self.ask("begin", delta, name=name, count=count, bytes=size)

    @rule(delta=DELTAS, name=OFTEN, offset=OFFSETS, sha=SHAS, as_declared=st.integers(0, 7))
    def commit(self, delta: int, name: Any, offset: int, sha: str, as_declared: int) -> None:
        row = self.model.revs.get(name)
        count, size = (row["ref"]["count"], row["ref"]["bytes"]) if row else (1, 100)
        if as_declared == 0:
            size = 8
        ref = {"group": name.label, "count": count, "bytes": size, "sha": sha}
        ref["canonical"] = as_declared != 1
        self.ask("commit", delta, name=name, expected=self.expected(name, offset), ref=ref)

    @rule(delta=DELTAS, name=OFTEN, offset=OFFSETS, call=st.sampled_from(["abort", "delete"]))
    def leave(self, delta: int, name: Any, offset: int, call: str) -> None:
        self.ask(call, delta, name=name, expected=self.expected(name, offset))

    @rule(delta=DELTAS, name=OFTEN, offset=OFFSETS)
    def finish_delete(self, delta: int, name: Any, offset: int) -> None:
        self.ask("finish_delete", delta, name=name, expected=self.expected(name, offset))

    @rule(delta=DELTAS, name=OFTEN, offset=OFFSETS, state=STATES, place=PLACES)
    def observe(self, delta: int, name: Any, offset: int, state: str, place: str) -> None:
        expected = self.expected(name, offset)
        self.ask("observe", delta, name=name, expected=expected, av=state, res=place)

    # --- leases -----------------------------------------------------------------------------------

    @rule(delta=DELTAS, name=OFTEN, offset=OFFSETS, holder=HOLDERS, ttl=TTLS)
    def acquire(self, delta: int, name: Any, offset: int, holder: str, ttl: int) -> None:
        expected = self.expected(name, offset)
        self.ask("acquire", delta, name=name, expected=expected, holder=holder, ttl=ttl)

    @rule(delta=DELTAS, behind=IDS, ttl=TTLS, tenant=TENANTS)
    def renew(self, delta: int, behind: int, ttl: int, tenant: str) -> None:
        number = self.newest(behind, self.model.next_lease)
        self.ask("renew", delta, id=number, ttl=ttl, tenant=tenant)

    @rule(delta=DELTAS, behind=IDS, tenant=TENANTS)
    def release(self, delta: int, behind: int, tenant: str) -> None:
        self.ask("release", delta, id=self.newest(behind, self.model.next_lease), tenant=tenant)

    @rule(delta=DELTAS, name=st.sampled_from([None, V2, NAMES["invalid"]]))
    def expire(self, delta: int, name: Any) -> None:
        self.ask("expire", delta, name=name)

    # --- operations -------------------------------------------------------------------------------

    @rule(delta=DELTAS, name=OFTEN, offset=OFFSETS, towards=TARGETS, extra=st.integers(0, 9))
    def start(self, delta: int, name: Any, offset: int, towards: str, extra: int) -> None:
        self.ask("start", delta, **self.started(name, offset, towards, extra))

    @rule(delta=DELTAS, name=OFTEN, offset=OFFSETS, towards=TARGETS, short=st.booleans())
    def repair(self, delta: int, name: Any, offset: int, towards: str, short: bool) -> None:
        self.ask("repair", delta, **self.started(name, offset, towards, 1), short=short)

    def started(self, name: Any, offset: int, target: str, extra: int) -> Row:
        row = self.model.revs.get(name)
        members = (row["ref"]["count"] if row else 1) + (2 if extra == 0 else 1)
        expected = self.expected(name, offset)
        return {"name": name, "expected": expected, "target": target, "members": members}

    @rule(
        delta=DELTAS,
        behind=IDS,
        marks=st.tuples(st.integers(0, 4), st.integers(0, 4)),
        cursor=st.sampled_from(["", "a", "b", "\n"]),
        seen=st.tuples(STATES, PLACES),
    )
    def progress(
        self, delta: int, behind: int, marks: tuple[int, int], cursor: str, seen: tuple[str, str]
    ) -> None:
        number = self.newest(behind, self.model.next_op)
        processed, total = marks
        state, place = seen
        self.ask(
            "progress",
            delta,
            id=number,
            processed=processed,
            total=total,
            cursor=cursor,
            av=state,
            res=place,
        )

    @rule(delta=DELTAS, behind=IDS, place=TARGETS)
    def finish(self, delta: int, behind: int, place: str) -> None:
        self.ask("finish", delta, id=self.newest(behind, self.model.next_op), res=place)

    # --- reads ------------------------------------------------------------------------------------

    @rule(delta=DELTAS, name=OFTEN, tenant=TENANTS, behind=IDS)
    def read(self, delta: int, name: Any, tenant: str, behind: int) -> None:
        self.ask("get", delta, name=name)
        self.ask("query", 0, id=self.newest(behind, self.model.next_op), tenant=tenant)

    @rule(limit=st.sampled_from([0, 1, 2, 1000, 1001]), after=st.sampled_from([None, V2, V10]))
    def browse(self, limit: int, after: Any) -> None:
        row = None if after is None else after.listing[3:]
        self.ask("list", 0, resource=V2.listing[:3], limit=limit, after=row)

    @rule()
    def look_closely(self) -> None:
        self.driver.audit()

    @invariant()
    def both_hold_the_same(self) -> None:
        assert plain_state(self.driver.snapshot()) == self.model

    def teardown(self) -> None:
        if hasattr(self, "driver"):
            self.driver.audit()
