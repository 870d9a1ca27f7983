"""The work queue against a simple model: a table of keys, under a virtual clock."""

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.support.virtual_time import SeededEntropy, VirtualClock
from weightctl.controller.core.backoff import Backoff
from weightctl.controller.runtime.timer import Timer
from weightctl.controller.runtime.workqueue import Priority, QueueOptions, WorkQueue

KEYS_MAX = 6
BACKOFF = Backoff(base_s=1.0, max_s=8.0, jitter=0.0)
keys = st.integers(min_value=0, max_value=7)
lanes = st.sampled_from(Priority)


@dataclass
class Row:
    """What the model knows of a key."""

    due_s: float | None
    priority: Priority
    active: bool = False
    failures: int = 0
    generation: int = 0


class QueueModel(RuleBasedStateMachine):
    """Each rule does the same to the queue and to the table."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = VirtualClock()
        options = QueueOptions(keys_max=KEYS_MAX, backoff=BACKOFF, claims_per_lower=3)
        self.queue: WorkQueue[int] = WorkQueue(
            self.clock, SeededEntropy(), Timer(self.clock), options
        )
        self.rows: dict[int, Row] = {}
        self.waits = dict.fromkeys(Priority, 0)
        self.out_of_turn = dict.fromkeys(Priority, 0)
        self.claims = 0

    def due(self, lane: Priority | None = None) -> set[int]:
        now_s = self.clock.monotonic_s()
        return {
            key
            for key, row in self.rows.items()
            if not row.active
            and row.due_s is not None
            and row.due_s <= now_s
            and (lane is None or row.priority is lane)
        }

    def lined_up(self) -> set[int]:
        return {
            key for key, row in self.rows.items() if not row.active and row.due_s == float("-inf")
        }

    def put(self, key: int, due_s: float, priority: Priority, *, accepted: bool) -> None:
        row = self.rows.get(key)
        if row is not None:
            assert accepted, "a known key is never refused"
            if row.due_s is None:
                row.due_s, row.priority = due_s, priority
            elif due_s < row.due_s or due_s == float("-inf"):
                row.due_s, row.priority = due_s, min(row.priority, priority)
            return
        if len(self.rows) >= KEYS_MAX:
            victims = {k for k in self.lined_up() if self.rows[k].priority is Priority.RESYNC}
            assert accepted == bool(victims and priority is not Priority.RESYNC)
            if not accepted:
                return
            gone = {k for k in victims if k not in self.queue}
            assert len(gone) == 1, "exactly one resync visit makes room"
            del self.rows[gone.pop()]
        assert accepted
        self.rows[key] = Row(due_s, priority)

    @rule(key=keys, priority=lanes)
    def add(self, key: int, priority: Priority) -> None:
        accepted = self.queue.add(key, priority)
        self.put(key, float("-inf"), priority, accepted=accepted)

    @rule(key=keys, delay_s=st.sampled_from([0.5, 1.0, 2.0, 5.0]), priority=lanes)
    def add_after(self, key: int, delay_s: float, priority: Priority) -> None:
        accepted = self.queue.add_after(key, delay_s, priority)
        self.put(key, self.clock.monotonic_s() + delay_s, priority, accepted=accepted)

    @rule(seconds=st.sampled_from([0.25, 1.0, 3.0]))
    def pass_time(self, seconds: float) -> None:
        self.clock.jump(seconds)

    @rule()
    def surface(self) -> None:
        assert self.queue.has_due() == bool(self.due())
        for key in self.due():
            self.rows[key].due_s = float("-inf")

    @precondition(lambda self: self.due())
    @rule()
    def take(self) -> None:
        assert self.queue.has_due()
        for key in self.due():
            self.rows[key].due_s = float("-inf")
        waiting = {lane for lane in Priority if self.due(lane)}
        key = self.queue.take()
        row = self.rows[key]
        assert key in self.due(), "only a due key is handed out, and never one that is worked on"
        self.claims += 1
        for lane in Priority:
            passed_over = lane in waiting and lane is not row.priority
            self.waits[lane] = self.waits[lane] + 1 if passed_over else 0
            assert self.waits[lane] < 5, f"{lane.name} starves"
        assert row.priority is min(waiting) or self.claims_out_of_turn(row.priority)
        row.active, row.due_s = True, None

    def claims_out_of_turn(self, lane: Priority) -> bool:
        """Count a claim from a lower lane; each has at most a third of all claims that way."""
        self.out_of_turn[lane] += 1
        return self.out_of_turn[lane] <= self.claims / 3 + 1

    def some_active(self) -> int:
        return min(key for key, row in self.rows.items() if row.active)

    def any_active(self) -> bool:
        return any(row.active for row in self.rows.values())

    @precondition(any_active)
    @rule(give_back=st.booleans())
    def end(self, give_back: bool) -> None:
        key = self.some_active()
        if give_back:
            self.put(key, float("-inf"), Priority.FRESH, accepted=True)
            self.queue.give_back(key)
        else:
            self.queue.done(key)
        self.rows[key].active = False
        if self.rows[key].due_s is None:
            del self.rows[key]

    @precondition(any_active)
    @rule(generation=st.integers(0, 1))
    def fail(self, generation: int) -> None:
        key = self.some_active()
        row = self.rows[key]
        row.failures = row.failures + 1 if row.generation == generation else 1
        row.generation = generation
        delay_s = self.queue.fail(key, generation)
        assert delay_s == BACKOFF.delay_s(row.failures, 0.0)
        self.put(key, self.clock.monotonic_s() + delay_s, Priority.CONTINUED, accepted=True)

    @precondition(any_active)
    @rule()
    def succeed(self) -> None:
        key = self.some_active()
        self.queue.succeed(key)
        self.rows[key].failures = 0

    @invariant()
    def agree(self) -> None:
        assert len(self.queue) == len(self.rows) <= KEYS_MAX
        assert self.queue.active_count == sum(row.active for row in self.rows.values())
        for key, row in self.rows.items():
            assert key in self.queue
            assert self.queue.failures(key) == row.failures
        waiting = [row.due_s for row in self.rows.values() if not row.active and row.due_s]
        delayed = [due_s for due_s in waiting if due_s != float("-inf")]
        assert self.queue.delayed_count == len(delayed)
        assert self.queue.next_due_s() == min(delayed, default=None)


TestQueueModel = QueueModel.TestCase
TestQueueModel.settings = settings(max_examples=150, stateful_step_count=60)
