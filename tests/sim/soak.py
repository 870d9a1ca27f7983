"""Simulates random histories for as long as wanted on all cores: `python -m tests.sim.soak`.

Reports incidents per second and what was never reached; a broken rule is printed with its seed and
its shrunk script, and makes the exit code 1.
"""

import argparse
import os
import secrets
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field

from tests.sim.script import COMMIT, FAULTS, JOURNAL_FAULTS, generate
from tests.sim.shrink import told
from tests.sim.world import simulate
from weightctl.controller.core.plan import Reason
from weightctl.controller.core.records import Availability, Operation

SEEDS_PER_BATCH = 20
SHOWN_MAX = 5


@dataclass(slots=True)
class Tally:
    """What a number of runs did."""

    runs: int = 0
    incidents: int = 0
    actions: int = 0
    passes: int = 0
    virtual_s: float = 0.0
    exempt: int = 0
    fired: Counter[str] = field(default_factory=Counter)
    seen: set[tuple[str, ...]] = field(default_factory=set)
    failures: list[tuple[int, str]] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        self.runs += other.runs
        self.incidents += other.incidents
        self.actions += other.actions
        self.passes += other.passes
        self.virtual_s += other.virtual_s
        self.exempt += other.exempt
        self.fired += other.fired
        self.seen |= other.seen
        self.failures += other.failures


def run_seeds(first: int, count: int) -> Tally:
    """Simulate some seeds; what fails is shrunk here."""
    tally = Tally()
    for seed in range(first, first + count):
        script = generate(seed)
        report = simulate(script)
        tally.runs += 1
        tally.incidents += report.incidents
        tally.actions += report.actions.total()
        tally.passes += report.passes
        tally.virtual_s += report.virtual_s
        tally.exempt += report.exempt
        tally.fired += report.fired
        tally.seen |= report.seen
        if report.oracle:
            tally.failures.append((seed, told(script, report)))
    return tally


def possible() -> set[tuple[str, ...]]:
    """The states and reasons that a history may reach."""
    published = {Availability.READY, Availability.DEGRADED}
    states = {
        ("state", availability.name, operation.name)
        for availability in Availability
        for operation in Operation
        if operation is Operation.NONE or availability in published
    }
    return states | {("reason", str(reason)) for reason in Reason}


def never(tally: Tally) -> list[str]:
    """Kinds of faults, states and reasons that did not occur."""
    kinds = {f"{call}:{kind}" for call, faults in FAULTS.items() for kind in faults}
    kinds |= {f"{COMMIT.split('.')[-1]}:{kind}" for kind in JOURNAL_FAULTS}
    missing = kinds - set(tally.fired)
    return sorted(missing) + sorted(" ".join(part) for part in possible() - tally.seen)


def report(tally: Tally, seconds: float) -> str:
    """One paragraph for people."""
    rate = tally.incidents / max(seconds, 1e-9)
    missing = never(tally)
    return (
        f"{tally.runs} histories, {tally.incidents} incidents ({rate:.0f}/s), {tally.actions}"
        f" actions, {tally.passes} passes, {tally.virtual_s / 3600:.0f} simulated hours in"
        f" {seconds:.0f} s; beyond any controller: {tally.exempt};"
        f" broken rules: {len(tally.failures)}\n"
        f"kinds of faults: {len(tally.fired)}; never reached: {', '.join(missing) or 'nothing'}"
    )


def soak(minutes: float, jobs: int, seed: int) -> int:
    """Run until the time is over; the exit code."""
    began_s, tally, following = time.monotonic(), Tally(), seed
    print(f"first seed {seed}, {jobs} processes, {minutes:g} minutes", flush=True)
    with ProcessPoolExecutor(jobs) as pool:
        running: set[Future[Tally]] = set()
        while True:
            over = time.monotonic() - began_s > minutes * 60
            while not over and len(running) < 2 * jobs:
                running.add(pool.submit(run_seeds, following, SEEDS_PER_BATCH))
                following += SEEDS_PER_BATCH
            if not running:
                break
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                part = future.result()
                tally.add(part)
                for _, text in part.failures[: SHOWN_MAX - len(tally.failures) + 1]:
                    print(text, flush=True)
    print(report(tally, time.monotonic() - began_s))
    return 1 if tally.failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=None, help="first seed; by chance without")
    options = parser.parse_args()
    seed = secrets.randbelow(10**9) if options.seed is None else options.seed
    return soak(options.minutes, options.jobs, seed)


if __name__ == "__main__":
    raise SystemExit(main())
