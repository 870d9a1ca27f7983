"""The lab in full: `make lab`.  Prints what found each planted fault, and what was enumerated.

Exit code 1 when the product breaks a rule by itself or a planted fault is not found.
"""

import time
from dataclasses import dataclass
from itertools import chain

from tests.sim.enumeration import FAMILIES, Enumerated, enumerate_incidents, enumerate_jams
from tests.sim.mooncake import planted as mooncake_planted
from tests.sim.mooncake.soak import tell
from tests.sim.planted import MUST_FIND, PLANTED
from tests.sim.planting import Planted, planted
from tests.sim.scenarios import OPERATIONS, SCENARIOS
from tests.sim.soak import report, run_seeds
from weightctl.adapters.conformance.simulation.script import generate
from weightctl.adapters.conformance.simulation.shrink import told
from weightctl.adapters.conformance.simulation.world import simulate

SEEDS_MAX = 150
"""Histories by chance after which a planted fault counts as not found."""
HISTORIES = 600
MOONCAKE_HISTORIES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What found one planted fault."""

    fault: str
    oracle: str
    """Empty when nothing did."""
    by: str
    incidents: int
    """Incidents and actions until it was found."""
    detail: str = ""


def hunt(fault: str, patches: tuple[Planted, ...], seeds_max: int = SEEDS_MAX) -> Finding:
    """Run scenarios, then histories by chance, until the rule breaks that the fault is against."""
    incidents = 0
    chance = ((f"seed {seed}", generate(seed)) for seed in range(seeds_max))
    with planted(*patches):
        for name, script in chain(SCENARIOS.items(), chance):
            run = simulate(script)
            incidents += run.incidents + run.actions.total()
            if run.oracle in MUST_FIND[fault]:
                return Finding(
                    fault=fault, oracle=run.oracle, by=name, incidents=incidents, detail=run.detail
                )
    return Finding(fault=fault, oracle="", by="not found", incidents=incidents)


def _planted_table() -> int:
    print("| planted fault | oracle | scenario | after |\n|---|---|---|---|")
    missed = 0
    for fault, patches in PLANTED.items():
        found = hunt(fault, patches)
        missed += not found.oracle
        print(f"| {fault} | {found.oracle or '-'} | {found.by} | {found.incidents} |", flush=True)
    print(f"\n{len(PLANTED)} planted faults, {missed} not found\n")
    return missed


def _enumerated_table() -> int:
    print("| operation | incidents | runs | incidents that happened |\n|---|---|---|---|")
    broken = total = 0
    for operation in OPERATIONS:
        for family, faults in FAMILIES.items():
            done = enumerate_incidents(operation, faults)
            total += done.incidents
            print(f"| {operation} | {family} | {done.runs} | {done.incidents} |", flush=True)
            broken += _told(done)
        done = enumerate_jams(operation)
        total += done.incidents
        print(f"| {operation} | clogged tiers | {done.runs} | {done.incidents} |", flush=True)
        broken += _told(done)
    print(f"\n{total} incidents, broken rules: {broken}\n")
    return broken


def _told(done: Enumerated) -> int:
    for script, found in done.broken:
        print(told(script, found))
    return len(done.broken)


def _mooncake_table() -> int:
    print("| fault planted into the Mooncake adapter | oracle | scenario |\n|---|---|---|")
    problems = 0
    for fault in mooncake_planted.PLANTED:
        oracle, scenario = mooncake_planted.hunt(fault)
        problems += not oracle
        print(f"| {fault} | {oracle or '-'} | {scenario} |", flush=True)
    return problems + tell(0, MOONCAKE_HISTORIES)


def main() -> int:
    problems = _planted_table() + _enumerated_table() + _mooncake_table()
    began_s = time.monotonic()
    tally = run_seeds(0, HISTORIES)
    for _, text in tally.failures:
        print(text)
    print(report(tally, time.monotonic() - began_s))
    return 1 if problems + len(tally.failures) else 0


if __name__ == "__main__":
    raise SystemExit(main())
