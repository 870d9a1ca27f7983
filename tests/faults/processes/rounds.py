"""One round: a life is led up to an operation, the operation is hit, and everything must mend.

A round leaves its sidecar running and at peace, so that rounds follow each other over one state
directory: revisions of earlier rounds stay, as tombstones or alive, and are checked ever again.
"""

import re
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import zip_longest

from tests.faults.processes.courses import COURSES, Course, Life
from tests.faults.processes.ledger import Ledger, identity_of, record_of
from tests.faults.processes.sidecar import Asking, Died, Sidecar
from weightctl.controller.api.client import RemoteError
from weightctl.controller.core.records import Availability

LOGGED = re.compile(r"failpoint (\S+): log")
REACHED = re.compile(r"failpoint (\S+): (kill|stop|kill-children|error)$", re.MULTILINE)
PASSING = {"BUSY", "NOT_READY", "STALE_GENERATION", "LEASE_EXPIRED"}
"""Refusals that say: not now; on a slow machine a load may outlive its short lease."""
PATIENCE_S = 400.0
PAUSE_S = 0.1
TRIES = 5
IN_FLIGHT_S = 0.05
RELAPSE_S = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Where and how an operation is hit: the N-th time that a failpoint is reached in it."""

    course: str
    name: str
    number: int = 1
    action: str = "kill"

    def __str__(self) -> str:
        return f"{self.course} at {self.name}:{self.number}={self.action}"

    @property
    def armed(self) -> str:
        return f"{self.name}:{self.number}={self.action}"


@dataclass(slots=True)
class Score:
    """What rounds have done."""

    rounds: int = 0
    hits: Counter[str] = field(default_factory=Counter)
    missed: list[str] = field(default_factory=list)

    def told(self) -> str:
        """For people."""
        return (
            f"{self.rounds} rounds, {sum(self.hits.values())} hits at {len(self.hits)} failpoints,"
            f" {len(self.missed)} missed"
        )


class Rounds:
    """Rounds over one sidecar."""

    def __init__(self, sidecar: Sidecar) -> None:
        self.sidecar = sidecar
        self.ledger = Ledger()
        self.score = Score()
        self._life: Life | None = None
        self._lives = 0

    # --- leading a life up to an operation --------------------------------------------------------

    def led_up_to(self, name: str) -> Life:
        """A life that has done all courses before `name` and not this one."""
        names = list(COURSES)
        before = names[: names.index(name)]
        if self._life is None or any(done not in before for done in self._life.done):
            self._lives += 1
            self._life = Life(self.sidecar, self.ledger, identity_of(self._lives))
        for earlier in before:
            if earlier not in self._life.done:
                self.lead(self._life, COURSES[earlier])
        return self._life

    def lead(self, life: Life, course: Course) -> None:
        """Ask, again where the state does not allow it yet, until it is told to be done."""
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                life.ask(course)
                break
            except RemoteError as refusal:
                if refusal.code not in PASSING or time.monotonic() > until:
                    raise
                time.sleep(PAUSE_S)
        course.ended(life)
        life.done.append(course.name)

    # --- finding the points -----------------------------------------------------------------------

    def reached(self, name: str) -> Counter[str]:
        """The failpoints that an undisturbed course reaches, and how often, in their order."""
        life = self.led_up_to(name)
        self.settle()
        start = len(self.sidecar.log())
        self.sidecar.arm("*=log")
        self.lead(life, COURSES[name])
        self.sidecar.disarm()
        return Counter(LOGGED.findall(self.sidecar.log()[start:]))

    # --- a round ----------------------------------------------------------------------------------

    def hit(self, point: Point) -> bool:
        """Hit the course there and let everything mend; whether the point was reached."""
        course = COURSES[point.course]
        life = self.led_up_to(point.course)
        self.score.rounds += 1
        start = len(self.sidecar.log())
        self.sidecar.arm(point.armed)
        if course.verb == "lease release":
            self.ledger.asked_to_release(life.lease_id)
        asking = self._asked(life, course)
        self.sidecar.disarm()
        if asking.document is not None:
            life.told(asking.document)
        reached = bool(self.reached_since(start))
        if point.action == "kill" and (reached or asking.lost):
            self.sidecar.await_death()
            self.mend()
        try:
            self.lead(life, course)
        except Died:  # of a failpoint that acted late
            reached = bool(self.reached_since(start))
            assert point.action == "kill", "nobody was to kill it"
            assert reached, "it died by itself"
            self.sidecar.await_death()
            self.mend()
            self.lead(life, course)
        self.settle(life)
        if reached:
            self.score.hits[point.name] += 1
        else:
            self.score.missed.append(str(point))
        return reached

    def hits(self, point: Point) -> bool:
        """Hit one life after the other until the point was reached.

        An operation may find done what it was to do, by the medium itself or by another step of
        its own, where a pause of the machine leaves the time for that.
        """
        return any(self.hit(point) for _ in range(TRIES))

    def _asked(self, life: Life, course: Course) -> Asking:
        """Ask once that the state allows it: a killed load's lease may live for some seconds."""
        until = time.monotonic() + PATIENCE_S
        while True:
            asking = Asking(self.sidecar, course.verb, course.params(life))
            asking.start()
            refusal = asking.ended().refusal
            if refusal is None or refusal.code not in PASSING or time.monotonic() > until:
                return asking
            time.sleep(PAUSE_S)

    def reached_since(self, start: int) -> list[tuple[str, str]]:
        """Failpoints that have acted since the log had that length, with what they did.

        One that was reached just before all were disarmed may still be about to act.
        """
        time.sleep(IN_FLIGHT_S)
        found: list[tuple[str, str]] = REACHED.findall(self.sidecar.log()[start:])
        return found

    def mend(self, relapse: str = "") -> None:
        """Check what the dead left, and start anew; `relapse`: the first start is armed so."""
        self.ledger.check_dead(self.sidecar)
        if relapse:
            self._relapse(relapse)
        if not self.sidecar.alive:
            self.sidecar.start()

    def _relapse(self, armed: str) -> None:
        """A start that may be killed in its turn, while it opens or while it mends."""
        start = len(self.sidecar.log())
        self.sidecar.arm(armed)
        with suppress(Died):
            self.sidecar.start()
            time.sleep(RELAPSE_S)
        self.sidecar.disarm()
        reached = self.reached_since(start)
        self.score.hits.update(f"start: {name}" for name, _ in reached)
        if reached:
            self.sidecar.await_death()
            self.ledger.check_dead(self.sidecar)

    def settle(self, *lives: Life) -> None:
        """Wait until nothing is left to do, then check everything."""
        self.sidecar.wait(self._at_rest, "it does not come to rest")
        records = [(life.identity, record_of(self.sidecar, life.identity)) for life in lives]
        alive = [
            name
            for name, record in records
            if record is not None and record.availability is Availability.READY
        ]
        self.ledger.check_settled(self.sidecar, *alive)

    def _at_rest(self) -> bool:
        plans = self.sidecar.ask("plan")["items"]
        return all(plan["verdict"] == "converged" for plan in plans)


def enumerated(
    rounds: Rounds,
    courses: tuple[str, ...] = tuple(COURSES),
    *,
    most: int = 3,
    act: Callable[[str], str] = lambda _: "kill",
) -> list[Point]:
    """Every failpoint that each course reaches, each time up to `most`, with what is to happen.

    Points of all courses are dealt out in turn, so that one life serves a point of each course.
    """
    columns = [
        [
            Point(course=name, name=reached, number=number, action=act(reached))
            for reached, count in rounds.reached(name).items()
            for number in range(1, min(count, most) + 1)
            if act(reached)
        ]
        for name in courses
    ]
    return [point for row in zip_longest(*columns) for point in row if point is not None]


def failing(name: str) -> str:
    """The error that a failpoint can tell: not done before it, perhaps done after it."""
    if name.startswith("file."):
        return "error:ENOSPC"
    if name.startswith("tier.") and not name.endswith(".piece"):
        return "error:unknown" if name.endswith(".after") else "error:transient"
    return ""
