"""Which key is worked on next.  Layer: runtime; knows nothing of the domain.

A key is known at most once: waiting in a lane, delayed, or being worked on (and then perhaps due
again afterwards).  Single-threaded and single-writer: every method but `claim` is synchronous, and
nothing is handed from one task to another; a woken task takes for itself.  A claimed key stays
accounted for until `done`, so cancellation at any await loses nothing.
"""

import heapq
import itertools
from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, TypeVar

import anyio

from weightctl.controller.core.backoff import Backoff
from weightctl.controller.errors import require
from weightctl.controller.ports import Clock, Entropy
from weightctl.controller.runtime.timer import Alarm, Timer

K = TypeVar("K", bound=Hashable)

NOW = float("-inf")
"""Due time of a key that waits in a lane."""

_STALE_MIN = 64


class Priority(IntEnum):
    """Lanes; a lower number is served first."""

    FRESH = 0
    """Somebody changed something."""
    CONTINUED = 1
    """The last pass wants to go on; new work starts first."""
    RESYNC = 2


class QueueClosedError(Exception):
    """The queue hands out nothing any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions:
    """Bounds and shares of a queue."""

    keys_max: int = 1_000_000
    claims_per_lower: int = 8
    """Among this many claims at least one goes to each lower lane that has something."""
    backoff: Backoff = Backoff()


class _Entry:
    """One known key.  `due_s` None: nothing pending (then it is being worked on)."""

    __slots__ = ("active", "due_s", "failures", "generation", "priority")

    def __init__(self, due_s: float, priority: Priority) -> None:
        self.due_s: float | None = due_s
        self.priority = priority
        self.active = False
        self.failures = 0
        self.generation = 0


class WorkQueue(Generic[K]):
    """Deduplicating queue with lanes, delays and a backoff per key."""

    def __init__(
        self, clock: Clock, entropy: Entropy, timer: Timer, options: QueueOptions | None = None
    ) -> None:
        self._clock = clock
        self._entropy = entropy
        self._timer = timer
        self._options = options or QueueOptions()
        self._entries: dict[K, _Entry] = {}
        self._lanes: tuple[OrderedDict[K, float], ...] = tuple(OrderedDict() for _ in Priority)
        self._passed_over = [0 for _ in Priority]
        self._delayed: list[tuple[float, int, K]] = []
        self._delayed_count = 0
        self._order = itertools.count()
        self._active = 0
        self._alarm: Alarm | None = None
        self._waiters: deque[anyio.Event] = deque()
        self._closed = False
        self.refused = 0
        """Adds that a full queue refused since the start; the resync makes up for them."""

    # --- adding -----------------------------------------------------------------------------------

    def add(self, key: K, priority: Priority = Priority.FRESH) -> bool:
        """Make `key` due at once; supersedes a delay.  False when the queue is full."""
        entry = self._entries.get(key)
        if entry is None:
            if not self._has_room(priority):
                return False
            self._entries[key] = _Entry(NOW, priority)
            self._line_up(key, priority)
            return True
        if entry.due_s is not None:
            self._merge_now(key, entry, priority)
            return True
        entry.due_s = NOW
        entry.priority = priority
        return True

    def add_after(self, key: K, delay_s: float, priority: Priority = Priority.FRESH) -> bool:
        """Make `key` due in `delay_s` seconds, or earlier if it is due earlier already."""
        if delay_s <= 0:
            return self.add(key, priority)
        due_s = self._clock.monotonic_s() + delay_s
        entry = self._entries.get(key)
        if entry is None:
            if not self._has_room(priority):
                return False
            self._entries[key] = _Entry(due_s, priority)
            self._delay(key, due_s)
            return True
        if entry.due_s is None:
            entry.due_s = due_s
            entry.priority = priority
        elif due_s < entry.due_s:
            entry.due_s = due_s
            entry.priority = min(entry.priority, priority)
            if not entry.active:
                self._delayed_count -= 1
                self._delay(key, due_s)
        return True

    def fail(self, key: K, generation: int, at_least_s: float = 0.0) -> float:
        """Count a failure of the claimed `key` and delay it; returns the delay in seconds.

        The count starts anew with another `generation`; otherwise only `succeed` resets it.
        """
        entry = self._entries[key]
        require(entry.active, f"queue: {key} failed without being worked on")
        if entry.generation != generation:
            entry.generation = generation
            entry.failures = 0
        entry.failures += 1
        delay_s = self._options.backoff.delay_s(entry.failures, self._entropy.random())
        delay_s = max(delay_s, at_least_s)
        self.add_after(key, delay_s, Priority.CONTINUED)
        return delay_s

    def succeed(self, key: K) -> None:
        """Forget the failures of the claimed `key`."""
        self._entries[key].failures = 0

    # --- taking -----------------------------------------------------------------------------------

    async def claim(self) -> K:
        """Wait for a due key and take it.  Raises QueueClosedError once closed."""
        while True:
            if self._closed:
                raise QueueClosedError
            if self.has_due():
                return self.take()
            event = anyio.Event()
            self._waiters.append(event)
            try:
                await event.wait()
            except BaseException:
                self._leave(event)
                raise

    def take(self) -> K:
        """Take the next due key without waiting; there must be one (`has_due`)."""
        lane = self._choose()
        key = lane.popitem(last=False)[0]
        entry = self._entries[key]
        entry.active = True
        entry.due_s = None
        self._active += 1
        return key

    def has_due(self) -> bool:
        """Whether `take` would find something now."""
        return self._surface() or any(self._lanes)

    def done(self, key: K) -> None:
        """End the work on a claimed key; it lines up again if it became due meanwhile.

        A key with nothing pending leaves the queue, and its failure count with it.
        """
        entry = self._entries[key]
        require(entry.active, f"queue: {key} ended without being worked on")
        entry.active = False
        self._active -= 1
        if entry.due_s is None:
            del self._entries[key]
        elif entry.due_s == NOW:
            self._line_up(key, entry.priority)
        else:
            self._delay(key, entry.due_s)

    def give_back(self, key: K) -> None:
        """End the work on a claimed key that was not carried through: it is due at once."""
        self.add(key, Priority.FRESH)
        self.done(key)

    def close(self) -> None:
        """Hand out nothing any more; waiting and later claims raise QueueClosedError."""
        self._closed = True
        self._wake(len(self._waiters))

    # --- looking ----------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def is_active(self, key: K) -> bool:
        """Whether the key is being worked on."""
        entry = self._entries.get(key)
        return entry is not None and entry.active

    @property
    def active_count(self) -> int:
        """Keys being worked on."""
        return self._active

    @property
    def delayed_count(self) -> int:
        """Keys that wait for their time."""
        return self._delayed_count

    def due_count(self, priority: Priority) -> int:
        """Keys in a lane."""
        return len(self._lanes[priority])

    def oldest_wait_s(self) -> float:
        """How long the longest-waiting due key has been waiting."""
        heads = [next(iter(lane.values())) for lane in self._lanes if lane]
        return self._clock.monotonic_s() - min(heads) if heads else 0.0

    def failures(self, key: K) -> int:
        """Failures in a row of a known key, 0 for an unknown one."""
        entry = self._entries.get(key)
        return entry.failures if entry else 0

    def next_due_s(self) -> float | None:
        """Monotonic time of the earliest delayed key; None when none waits."""
        self._drop_stale()
        return self._delayed[0][0] if self._delayed else None

    # --- inside -----------------------------------------------------------------------------------

    def _has_room(self, priority: Priority) -> bool:
        """Room for one more key; other work displaces a resync visit, which comes again anyway."""
        if len(self._entries) < self._options.keys_max:
            return True
        resync = self._lanes[Priority.RESYNC]
        if priority is not Priority.RESYNC and resync:
            victim, _ = resync.popitem(last=True)
            del self._entries[victim]
            return True
        self.refused += 1
        return False

    def _merge_now(self, key: K, entry: _Entry, priority: Priority) -> None:
        """Make an entry that is pending already due now, in the better of the two lanes."""
        was_due = entry.due_s == NOW
        better = min(entry.priority, priority)
        if was_due and better is entry.priority:
            return
        if not entry.active:
            if was_due:
                del self._lanes[entry.priority][key]
            else:
                self._delayed_count -= 1
            self._line_up(key, better)
        entry.due_s = NOW
        entry.priority = better

    def _line_up(self, key: K, priority: Priority) -> None:
        self._lanes[priority][key] = self._clock.monotonic_s()
        if self._waiters:
            self._wake(1)

    def _delay(self, key: K, due_s: float) -> None:
        heapq.heappush(self._delayed, (due_s, next(self._order), key))
        self._delayed_count += 1
        if len(self._delayed) > _STALE_MIN + 2 * self._delayed_count:
            self._delayed = [item for item in self._delayed if self._is_current(item)]
            heapq.heapify(self._delayed)
        if self._alarm is None or due_s < self._alarm.due_s:
            self._arm(due_s)

    def _arm(self, due_s: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._timer.call_at(due_s, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._surface()
        self._drop_stale()
        if self._delayed and self._alarm is None:
            self._arm(self._delayed[0][0])

    def _is_current(self, item: tuple[float, int, K]) -> bool:
        entry = self._entries.get(item[2])
        return entry is not None and not entry.active and entry.due_s == item[0]

    def _drop_stale(self) -> None:
        while self._delayed and not self._is_current(self._delayed[0]):
            heapq.heappop(self._delayed)

    def _surface(self) -> bool:
        """Move delayed keys whose time has come into their lanes; whether any moved."""
        if not self._delayed:
            return False
        now_s = self._clock.monotonic_s()
        moved = False
        while self._delayed and self._delayed[0][0] <= now_s:
            item = heapq.heappop(self._delayed)
            if self._is_current(item):
                entry = self._entries[item[2]]
                entry.due_s = NOW
                self._delayed_count -= 1
                self._line_up(item[2], entry.priority)
                moved = True
        return moved

    def _choose(self) -> OrderedDict[K, float]:
        """The most urgent lane, unless a lower one has been passed over often enough."""
        chosen = -1
        for number, lane in enumerate(self._lanes):
            if not lane:
                continue
            if chosen < 0:
                chosen = number
                continue
            self._passed_over[number] += 1
            if self._passed_over[number] >= self._options.claims_per_lower:
                chosen = number
        require(chosen >= 0, "queue: nothing is due")
        self._passed_over[chosen] = 0
        return self._lanes[chosen]

    def _wake(self, count: int) -> None:
        for _ in range(min(count, len(self._waiters))):
            self._waiters.popleft().set()

    def _leave(self, event: anyio.Event) -> None:
        """A waiter goes away; if it had been woken, the wake-up belongs to another one."""
        if event.is_set():
            self._wake(1)
        else:
            self._waiters.remove(event)
