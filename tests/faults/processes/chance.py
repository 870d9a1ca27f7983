"""Rounds by chance: several verbs at once over several revisions, and something that happens.

What happens is drawn from the seed: a kill at any moment or at a failpoint, a stop for longer than
every deadline, a worker's death, a clean end, an error of a tier or a file.  The verbs may be
refused; whatever they were told is held against the records ever after.
"""

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress

from tests.faults.processes.courses import COURSES, Life
from tests.faults.processes.ledger import identity_of, record_of
from tests.faults.processes.rounds import Rounds
from tests.faults.processes.sidecar import Asking, Died
from weightctl.controller.core.records import Availability
from weightctl.controller.failpoints.points import TIER_ERRORS

LIVES = 3
VERBS_MAX = 3
DELAY_S = 0.25
STOP_S = 3.0
"""Longer than the deadlines of `sidecar(deadline_s=1.0)`."""
REFUSALS = {
    *("BUSY", "NOT_READY", "STALE_GENERATION", "CONFLICT", "LEASE_EXPIRED", "NOT_FOUND"),
    *("DURABILITY_FAILED", "CAPACITY"),
    None,  # a ReconcileError: a tier failed, as it was made to
}
ALWAYS = ("evict", "rehydrate", "repair", "load", "lease acquire", "snapshot save", "delete")
LEASE_MS = 700
RELAPSES = 0.3
"""Share of starts after a death that are killed in their turn."""


class Chance:
    """What is drawn, over the rounds of one sidecar."""

    def __init__(self, rounds: Rounds, seed: int) -> None:
        self.rounds = rounds
        self.sidecar = rounds.sidecar
        self._rng = random.Random(seed)
        self._lives: list[Life] = []
        self._number = 1000
        self._incidents: dict[str, Callable[[], None]] = {
            "SIGKILL": self._kill,
            "failpoint": self._failpoint,
            "SIGSTOP": self._stop,
            "worker": self._worker,
            "SIGTERM": self._terminate,
            "error": self._error,
        }

    def round(self) -> None:
        """Several verbs, one incident, and everything mends."""
        self.rounds.score.rounds += 1
        while len(self._lives) < LIVES:
            self._number += 1
            self._lives.append(Life(self.sidecar, self.rounds.ledger, identity_of(self._number)))
        start = len(self.sidecar.log())
        (name,) = self._rng.choices(list(self._incidents), weights=(6, 6, 3, 3, 1, 3))
        if name in {"failpoint", "error"}:
            self._incidents[name]()
        asked = [self._asked(life) for life in self._rng.sample(self._lives, VERBS_MAX)]
        if name not in {"failpoint", "error"}:
            time.sleep(self._rng.random() * DELAY_S)
            self._incidents[name]()
        for life, asking in asked:
            self._heard(life, asking.ended())
        self.sidecar.disarm()
        self.rounds.score.hits[name] += 1
        reached = self.rounds.reached_since(start)
        self.rounds.score.hits.update(point for point, _ in reached)
        if any(action == "kill" for _, action in reached):
            self.sidecar.await_death()
        try:
            self._mend()
        except Died:  # of a failpoint that acted late
            late = [action for _, action in self.rounds.reached_since(start)]
            assert "kill" in late, "it died by itself"
            self.sidecar.await_death()
            self._mend()

    def _asked(self, life: Life) -> tuple[Life, Asking]:
        record = record_of(self.sidecar, life.identity)
        importing = record is None or record.availability is Availability.IMPORTING
        verb = "import" if importing else self._rng.choice(ALWAYS)
        params = COURSES[verb].params(life)
        if verb == "lease acquire":
            params |= {"ttl_ms": LEASE_MS, "holder": f"reader {self._rng.random()}"}
        if verb == "load":
            params |= {"folder": str(self.sidecar.folder / f"into-{life.identity[-4:]}")}
        asking = Asking(self.sidecar, verb, params)
        asking.start()
        return life, asking

    def _heard(self, life: Life, asking: Asking) -> None:
        if asking.document is not None:
            life.told(asking.document)
        elif asking.refusal is not None:
            assert asking.refusal.code in REFUSALS, f"{asking.verb}: {asking.refusal}"

    # --- what happens -----------------------------------------------------------------------------

    def _kill(self) -> None:
        self.sidecar.kill()

    def _failpoint(self) -> None:
        name = self._rng.choice(
            [
                *("journal.append.before", "journal.append.after", "file.*", "tier.*.piece"),
                *("tier.*.before", "tier.*.after", "tier.*.store.*", "tier.*.drop.*"),
            ]
        )
        action = self._rng.choice(["kill", "kill", "kill-children", "stop:3"])
        self.sidecar.arm(f"{name}:{self._rng.randint(1, 30)}={action}")

    def _error(self) -> None:
        number = self._rng.randint(1, 30)
        if self._rng.random() < 0.3:
            self.sidecar.arm(f"file.*:{number}=error:{self._rng.choice(['EIO', 'ENOSPC'])}")
        else:
            side = self._rng.choice(["before", "after"])
            self.sidecar.arm(f"tier.*.{side}:{number}=error:{self._rng.choice(TIER_ERRORS)}")

    def _stop(self) -> None:
        self.sidecar.send(signal.SIGSTOP)
        time.sleep(STOP_S)
        self.sidecar.send(signal.SIGCONT)

    def _worker(self) -> None:
        workers = self.sidecar.workers()
        if workers:
            with suppress(ProcessLookupError):
                os.kill(self._rng.choice(workers), signal.SIGKILL)

    def _terminate(self) -> None:
        self.sidecar.terminate()

    # --- afterwards -------------------------------------------------------------------------------

    def _mend(self) -> None:
        if not self.sidecar.alive:
            number = self._rng.randint(1, 20)
            self.rounds.mend(f"*:{number}=kill" if self._rng.random() < RELAPSES else "")
        for life in self._lives:
            record = record_of(self.sidecar, life.identity)
            if record is not None and record.availability is Availability.IMPORTING:
                self.rounds.lead(life, COURSES["import"])
        self.rounds.lead(self._lives[0], COURSES["snapshot save"])  # removes a killed one's draft
        self.rounds.settle(*self._lives)
        self._lives = [life for life in self._lives if not self._is_over(life)]

    def _is_over(self, life: Life) -> bool:
        record = record_of(self.sidecar, life.identity)
        return record is not None and record.availability is Availability.DELETED
