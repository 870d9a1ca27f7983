"""The planner against a slow, independent reading of the table, one member at a time."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.situations import TARGETS, situation
from weightctl.controller.core.plan import Leases, Plan, Situation, StepKind
from weightctl.controller.core.planner import plan
from weightctl.controller.core.records import Availability, Operation

GOOD = "cv"
TIERS = ("mem", "disk", "dfs", "nof")
COLD = TIERS[1:]

words = st.integers(1, 6).flatmap(
    lambda size: st.tuples(*[st.text("?-pcvx", min_size=size, max_size=size)] * len(TIERS))
)
operations = st.sampled_from(list(TARGETS))


def touched(made: Plan, kind: StepKind) -> dict[int, set[tuple[str, str]]]:
    """Member -> (source, target) of the steps of one kind."""
    found: dict[int, set[tuple[str, str]]] = {}
    for step in made.steps:
        if step.kind is kind:
            for index in step.indexes():
                found.setdefault(index, set()).add((step.source, step.target))
    return found


def evict_verdict(memory: str, cold: str) -> str:
    """The evict rows of the design's table for one member."""
    if memory in GOOD:
        if "v" in cold:
            return "drop"
        if "c" in cold:
            return "verify"
        return "wait" if "p" in cold or "?" in cold else "store"
    if memory in "?p":
        return "wait"
    if any(state in GOOD for state in cold):
        return "done"
    return "wait" if "p" in cold or "?" in cold else "lost"


@given(words)
def test_evict_follows_the_table_member_by_member(letters: tuple[str, ...]) -> None:
    made = plan(situation(dict(zip(TIERS, letters, strict=True)), operation=Operation.EVICTING))
    drops, verifies = touched(made, StepKind.DROP), touched(made, StepKind.VERIFY)
    stores, aside = touched(made, StepKind.STORE), touched(made, StepKind.QUARANTINE)
    for index, (memory, *cold) in enumerate(zip(*letters, strict=True)):
        verdict = evict_verdict(memory, "".join(cold))
        assert (index in drops) == (verdict == "drop")
        assert (index in verifies) == (verdict == "verify")
        assert (index in stores) == (verdict == "store" and index not in aside)
    done = [evict_verdict(m, "".join(c)) == "done" for m, *c in zip(*letters, strict=True)]
    assert made.processed_members == sum(done)


@given(words, operations, st.integers(0, 1), st.sampled_from([None, Availability.DELETING]))
def test_no_step_breaks_a_safety_rule(
    letters: tuple[str, ...],
    operation: Operation,
    leases: int,
    deleting: Availability | None,
) -> None:
    tiers = dict(zip(TIERS, letters, strict=True))
    seen = situation(
        tiers,
        operation=Operation.NONE if deleting else operation,
        availability=deleting or Availability.READY,
        leases=Leases(count=leases),
    )
    made = plan(seen)
    for step in made.steps:
        for index in step.indexes():
            _check_step(seen, tiers, step.kind, (step.source, step.target), index)
    if leases:
        assert {step.kind for step in made.steps} <= {
            StepKind.STORE, StepKind.VERIFY, StepKind.FINISH,
        }  # fmt: skip


def _check_step(
    seen: Situation, tiers: dict[str, str], kind: StepKind, path: tuple[str, str], index: int
) -> None:
    source, target = path
    if kind is StepKind.STORE:
        assert tiers[source][index] in GOOD, "bytes come from a readable replica"
        assert tiers[target][index] == "-", "only what is known to be absent is stored"
    elif kind is StepKind.QUARANTINE:
        assert tiers[source][index] == "x"
        assert any(word[index] in GOOD for word in tiers.values()), "not the only copy there is"
    elif kind is StepKind.DROP and seen.record.availability is Availability.DELETING:
        assert tiers[source][index] in "cvx"
        if index == seen.facts.manifest_index:
            payloads = [word[i] for word in tiers.values() for i in range(len(word)) if i != index]
            assert set(payloads) <= {"-"}, "the manifest goes last"
    elif kind is StepKind.DROP:
        assert source == "mem"
        assert any(tiers[cold][index] == "v" for cold in COLD), "a verified cold copy is left"


@given(words, operations)
def test_a_finish_is_proven_by_the_observation(
    letters: tuple[str, ...], operation: Operation
) -> None:
    made = plan(situation(dict(zip(TIERS, letters, strict=True)), operation=operation))
    if any(step.kind is StepKind.FINISH for step in made.steps):
        for memory, *cold in zip(*letters, strict=True):
            if operation is Operation.EVICTING:
                assert memory not in "?pcv"
                assert set(cold) & set(GOOD)
            else:
                assert memory in GOOD


@given(words, operations)
def test_the_same_situation_gives_the_same_plan(
    letters: tuple[str, ...], operation: Operation
) -> None:
    seen = situation(dict(zip(TIERS, letters, strict=True)), operation=operation)
    assert plan(seen) == plan(seen)


@given(words, operations)
def test_a_plan_without_steps_says_what_it_waits_for(
    letters: tuple[str, ...], operation: Operation
) -> None:
    made = plan(situation(dict(zip(TIERS, letters, strict=True)), operation=operation))
    assert made.steps or made.waits
