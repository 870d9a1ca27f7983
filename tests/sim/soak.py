"""Simulates random histories for as long as wanted on all cores: `python -m tests.sim.soak`.

Reports incidents per second and what was never reached; a broken rule is printed with its seed and
its shrunk script, and makes the exit code 1.
"""

import argparse
import gc
import os
import secrets
import sys
import tempfile
import time
import warnings
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from tests.sim.branches import Branches, measured, report_of
from tests.sim.kinds import KINDS, incidents, table
from weightctl.adapters.conformance.simulation.script import generate
from weightctl.adapters.conformance.simulation.shrink import told
from weightctl.adapters.conformance.simulation.world import simulate
from weightctl.controller.core.plan import Reason, Verdict
from weightctl.controller.core.records import Availability, Operation

SEEDS_PER_BATCH = 20
MEASURED_EVERY = 10
"""One batch in so many tells which branches it took; that makes it several times slower."""
SHOWN_MAX = 5
DISAGREEMENTS = (Reason.GROUP_INCOMPLETE, Reason.OTHER_REPLICAS)
"""Only where the directory is not what was committed, and no simulated disk forges rows."""


@dataclass(slots=True)
class Tally:
    """What a number of runs did."""

    runs: int = 0
    passes: int = 0
    virtual_s: float = 0.0
    exempt: int = 0
    fired: Counter[str] = field(default_factory=Counter)
    acted: Counter[str] = field(default_factory=Counter)
    seen: set[tuple[str, ...]] = field(default_factory=set)
    failures: list[tuple[int, str]] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        self.runs += other.runs
        self.passes += other.passes
        self.virtual_s += other.virtual_s
        self.exempt += other.exempt
        self.fired += other.fired
        self.acted += other.acted
        self.seen |= other.seen
        self.failures += other.failures


def run_batch(first: int, count: int, folder: Path | None) -> Tally:
    """Simulate some seeds in a process of a soak; `folder` is where branches are written.

    What Python complains of beside the run, as of a coroutine that nobody awaits, is a fault too.
    """
    ignored: list[str] = []
    warnings.simplefilter("error")
    sys.unraisablehook = lambda left: ignored.append(f"{left.exc_value!r} in {left.object!r}")
    with measured(folder, str(first)):
        tally = run_seeds(first, count)
    gc.collect()
    tally.failures += [(first, f"seeds from {first}: unraisable: {text}") for text in ignored]
    return tally


def run_seeds(first: int, count: int) -> Tally:
    """Simulate some seeds; what fails is shrunk here."""
    tally = Tally()
    for seed in range(first, first + count):
        script = generate(seed)
        report = simulate(script)
        tally.runs += 1
        tally.passes += report.passes
        tally.virtual_s += report.virtual_s
        tally.exempt += report.exempt
        tally.fired += report.fired
        tally.acted += report.actions
        tally.seen |= report.seen
        if report.oracle:
            tally.failures.append((seed, told(script, report)))
    return tally


def possible() -> set[tuple[str, ...]]:
    """The states and reasons that a history may reach."""
    published = {Availability.READY, Availability.DEGRADED}
    states: set[tuple[str, ...]] = {
        ("state", availability.name, operation.name)
        for availability in Availability
        for operation in Operation
        if operation is Operation.NONE or availability in published
    }
    states |= {("verdict", verdict.name) for verdict in Verdict}
    return states | {("reason", str(reason)) for reason in Reason if reason not in DISAGREEMENTS}


def never(tally: Tally) -> list[str]:
    """Kinds of faults, incidents, states, verdicts and reasons that did not occur."""
    kinds = [kind for kind, times in table(tally.fired, tally.acted).items() if not times]
    missing = sorted(incidents() - set(tally.fired))
    return kinds + missing + sorted(" ".join(part) for part in possible() - tally.seen)


def report(tally: Tally, seconds: float) -> str:
    """One paragraph for people."""
    rate = tally.fired.total() / max(seconds, 1e-9)
    missing = never(tally)
    reached = len(possible() & tally.seen)
    kinds = sum(times > 0 for times in table(tally.fired, tally.acted).values())
    happened = len(incidents() & set(tally.fired))
    return (
        f"{tally.runs} histories, {tally.fired.total()} incidents ({rate:.0f}/s),"
        f" {tally.acted.total()} actions, {tally.passes} passes,"
        f" {tally.virtual_s / 3600:.0f} simulated hours in {seconds:.0f} s;"
        f" beyond any controller: {tally.exempt}; broken rules: {len(tally.failures)}\n"
        f"kinds of faults: {kinds} of {len(KINDS)}, at calls: {happened} of {len(incidents())};"
        f" states, verdicts and reasons: {reached} of {len(possible())};"
        f" never reached: {', '.join(missing) or 'nothing'}"
    )


def soak(minutes: float, jobs: int, seed: int, folder: Path | None = None) -> int:
    """Run until the time is over; the exit code.  With a folder, branches are measured there."""
    began_s, tally, following = time.monotonic(), Tally(), seed
    print(f"first seed {seed}, {jobs} processes, {minutes:g} minutes", flush=True)
    with ProcessPoolExecutor(jobs) as pool:
        running: set[Future[Tally]] = set()
        while True:
            over = time.monotonic() - began_s > minutes * 60
            while not over and len(running) < 2 * jobs:
                number = (following - seed) // SEEDS_PER_BATCH
                where = None if number % MEASURED_EVERY else folder
                running.add(pool.submit(run_batch, following, SEEDS_PER_BATCH, where))
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
    if folder is not None:
        print(told_branches(report_of(folder)))
    return 1 if tally.failures else 0


def told_branches(found: Branches) -> str:
    """Where the loop's and the planner's branches were not taken, the worst last."""
    lines = [
        f"  {name}: {taken} of {total}; not from these lines: {', '.join(map(str, missing))}"
        for name, taken, total, missing in found.files
        if missing
    ]
    return "\n".join((f"branches: {found.taken} of {found.total}", *lines))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=None, help="first seed; by chance without")
    parser.add_argument("--branches", action="store_true", help="measure branches as well")
    options = parser.parse_args()
    if not 0 < options.minutes < float("inf"):
        parser.error("--minutes: a number above 0, such as 0.5 or 30")
    if options.jobs < 1:
        parser.error("--jobs: at least 1")
    seed = secrets.randbelow(10**9) if options.seed is None else options.seed
    if not options.branches:
        return soak(options.minutes, options.jobs, seed)
    with tempfile.TemporaryDirectory() as folder:
        return soak(options.minutes, options.jobs, seed, Path(folder))


if __name__ == "__main__":
    raise SystemExit(main())
