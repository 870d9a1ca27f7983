"""Kills the loop at a chosen point of an operation, and finds out where it hit.  Layer: cli.

The operation is watched from outside: by the progress that an import reports, else by the plan of
what is left of it.  After the kill the same plan is made from the media and the records alone.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, cast

from weightctl.controller.api.client import RemoteError
from weightctl.controller.cli.demo.course import MISSED, Import, Place, Way, left
from weightctl.controller.clock import SystemClock
from weightctl.controller.core.records import Availability
from weightctl.controller.errors import UnknownOutcomeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from weightctl.controller.api import documents as doc
    from weightctl.controller.cli.demo.sandbox import Sandbox
    from weightctl.controller.core.identity import Identity

LOOK_S = 0.001
MEMBER_S = 0.03
"""About what one member takes, until it has been measured."""
READ_BACK_BYTES_PER_S = 640 * 1024**2
COMMIT_S = 0.015
"""About what an import takes to read back, and to write manifest and record."""
SLICE_S = 0.003
"""How long the loop runs between two looks for which it is held still; it takes several of them to
write the end of an operation.
"""
SLICES_MAX = 1000


class Killer:
    """Kills the sandbox's loop, and keeps a list of where it did."""

    def __init__(self, sandbox: Sandbox, identity: Identity, say: Callable[[str], None]) -> None:
        self._sandbox = sandbox
        self._identity = identity
        self._params = {"identity": str(identity)}
        self._say = say
        self._clock = SystemClock()
        self.kills: list[doc.DemoKill] = []

    def importing(self, params: dict[str, Any], size_bytes: int, point: float) -> None:
        """Start an import and kill it at `point` of its course."""
        course, due, over = Import(size_bytes), threading.Event(), threading.Event()
        wait_s = 0.0

        def emit(frame: dict[str, Any]) -> None:
            nonlocal wait_s
            if "progress" in frame and not due.is_set():
                course.take(frame["progress"])
                reached, share = course.reached(point)
                if reached:
                    verify_s = size_bytes / READ_BACK_BYTES_PER_S
                    wait_s = share * (COMMIT_S if course.verified else verify_s)
                    due.set()

        def ask() -> None:
            try:
                self._sandbox.ask("import", params, emit)
            except (UnknownOutcomeError, RemoteError):
                return
            finally:
                over.set()
                due.set()

        asking = threading.Thread(target=ask)
        asking.start()
        due.wait()
        over.wait(wait_s)
        self._sandbox.kill()
        asking.join()
        try:
            record, _ = self._sandbox.records(self._identity)
        except KeyError:
            place = course.hashed()
        else:
            ready = record.availability is not Availability.IMPORTING
            place = Place(stage=MISSED) if ready else course.place()
        self._note(point, place)

    def operating(self, verb: str, first: doc.Plan, point: float) -> bool:
        """Start an operation that `first` plans, and kill it at `point` of its course.

        False when it was over before the kill.
        """
        way = Way(first)
        self._sandbox.ask(verb, self._params)
        seen = self._await(verb, way, point)
        if seen is not None and way.goal(point)[0] == way.length:
            self._step_to_finish(verb)
        self._sandbox.kill()
        found = self._found()
        missed = found["purpose"] != verb
        place = Place(stage=MISSED) if missed else way.place(seen or found, found)
        self._note(point, place)
        return not missed

    def _found(self) -> doc.Plan:
        """What is left by the records and the media, without the loop."""
        return self._sandbox.survey("plan", self._params)

    def _await(self, verb: str, way: Way, point: float) -> doc.Plan | None:
        """Watch until the point is due; the last look, None when the operation was over before.

        A point in the finish is due one member earlier.
        """
        goal, share = way.goal(point)
        finish = goal == way.length
        started_s = self._clock.monotonic_s()
        while True:
            seen = cast("doc.Plan", self._sandbox.ask("plan", self._params))
            if seen["purpose"] != verb:
                return None
            done = way.done(seen)
            if done >= goal - finish:
                break
            time.sleep(LOOK_S)
        if not finish:
            passed_s = self._clock.monotonic_s() - started_s
            time.sleep(share * (passed_s / done if done else MEMBER_S))
        return seen

    def _step_to_finish(self, verb: str) -> None:
        """Let the loop run in slices, and kill it when all that is left is to say so.

        Where reading back comes last, that is at once: it leaves no trace on the media.
        """
        for _ in range(SLICES_MAX):
            with self._sandbox.held_still():
                found = self._found()
                unmoved = left(found).keys() - {"verify"}
                if found["purpose"] != verb or not (unmoved or found["waits"]):
                    self._sandbox.kill()
                    return
            time.sleep(SLICE_S)

    def _note(self, point: float, place: Place) -> None:
        self.kills.append(
            {
                "round": 1,
                "point": point,
                "stage": place.stage,
                "done": place.done,
                "total": place.total,
                "unit": place.unit,
            }
        )
        late = " (too late: it was done)" if place.stage == MISSED else ""
        self._say(f"  kill -9, meant for {point:.0%} of its course: {place}{late}")
