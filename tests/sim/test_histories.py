"""Histories by chance: the whole loop under faults; every one of the invariants is judged.

A fixed number of seeds, so that each run of the suite is the same. A failure prints its seed and a
shrunk script; `make soak` goes on with other seeds.
"""

import subprocess
import sys
from collections import Counter

import pytest

from tests.sim.kinds import incidents, table, unnamed
from tests.sim.scenarios import SCENARIOS
from weightctl.adapters.conformance.faults import Fault
from weightctl.adapters.conformance.simulation.actions import ACTIONS
from weightctl.adapters.conformance.simulation.script import (
    EVERY_FAULT,
    Action,
    Script,
    Setting,
    TierSpec,
    generate,
)
from weightctl.adapters.conformance.simulation.shrink import shrink, told
from weightctl.adapters.conformance.simulation.world import simulate
from weightctl.controller.runtime.removing import Remover

BATCHES = 13
SEEDS_PER_BATCH = 20
INCIDENTS_MIN = 2000
MORE_TURNS = 30
"""Further histories for an incident that was rare in the first ones."""
_fired: Counter[str] = Counter()
_acted: Counter[str] = Counter()
_runs: set[int] = set()


def _simulate(seed: int) -> None:
    script = generate(seed)
    report = simulate(script)
    _fired.update(report.fired)
    _acted.update(report.actions)
    _runs.add(seed)
    if report.oracle:
        pytest.fail(told(script, report))


@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_history_breaks_a_rule(batch: int) -> None:
    for seed in range(batch * SEEDS_PER_BATCH, (batch + 1) * SEEDS_PER_BATCH):
        _simulate(seed)


def test_enough_went_wrong_and_every_kind_of_fault_occurred() -> None:
    if len(_runs) < BATCHES * SEEDS_PER_BATCH:
        pytest.skip("not all histories were run")
    assert _fired.total() >= INCIDENTS_MIN
    for index, (where, kind) in enumerate(EVERY_FAULT):
        for turn in range(BATCHES, BATCHES + MORE_TURNS):  # seeds that have it often
            if _fired[f"{where.rpartition('.')[2]}:{kind}"]:
                break
            _simulate(index + turn * len(EVERY_FAULT))
    assert sorted(incidents() - set(_fired)) == []
    never = [kind for kind, times in table(_fired, _acted).items() if not times]
    assert never == []


def test_every_incident_and_action_belongs_to_a_named_kind() -> None:
    assert unnamed([*incidents(), *ACTIONS]) == ["import", "wake"]


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_scenario_breaks_a_rule(name: str) -> None:
    report = simulate(SCENARIOS[name])
    if report.oracle:
        pytest.fail(told(SCENARIOS[name], report))


@pytest.mark.parametrize("seed", range(12))
def test_one_seed_is_one_history(seed: int) -> None:
    script = generate(seed)
    assert simulate(script).digest == simulate(script).digest


def test_a_history_is_the_same_in_another_process() -> None:
    package = "weightctl.adapters.conformance.simulation"
    code = (
        f"from {package}.script import generate; from {package}.world import simulate;"
        "print([simulate(generate(seed)).digest for seed in range(3)])"
    )
    told_by = {
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            text=True,
            env={"PYTHONHASHSEED": hash_seed, "PATH": ""},
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert told_by == {f"{[simulate(generate(seed)).digest for seed in range(3)]}\n"}


def test_a_script_is_python_text() -> None:
    script = generate(5)
    names = (Script, Setting, TierSpec, Action, Fault)
    assert eval(repr(script), {name.__name__: name for name in names}) == script


def test_shrinking_keeps_the_rule_that_broke_and_little_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Remover, "_check_leases", lambda *_: None)
    monkeypatch.setattr("weightctl.controller.store.evidence.EvidenceBook.record", _no_record)
    seed = next(seed for seed in range(100) if simulate(generate(seed)).oracle)
    script = generate(seed)
    report = simulate(script)
    small, last = shrink(script, report)
    assert last.oracle == report.oracle == "evidence"
    assert len(small.actions) <= 4
    assert len(small.incidents) <= 2


async def _no_record(*_: object) -> None:
    """Evidence that is not made durable."""
