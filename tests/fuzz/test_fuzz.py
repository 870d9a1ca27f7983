"""Every parser that meets foreign bytes: known inputs, changed ones, memory and work by size.

The long run with the same targets is `make fuzz`.  A failing input is printed with the failure;
`TARGETS[name].try_one(input)` repeats it.
"""

from collections.abc import Callable
from itertools import islice

import pytest

from tests.fuzz import corpus
from tests.fuzz.found import FOUND
from tests.fuzz.hostile import nested
from tests.fuzz.plain import Plain
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS

SEED = 1
PARTS = 100
GROWTH = 4
STEPS_FREE = 2000
STEPS_PER_BYTE = 40
"""Lines of Python for each byte of an input; the worst shape takes less than half of it."""
MEMORY_PARTS = 500

TABLE = [pytest.param(target, id=target.name) for target in TARGETS.values()]
SHAPES = [
    pytest.param(target, shape, id=f"{target.name}-{name}")
    for target in TARGETS.values()
    for name, shape in target.shapes.items()
]


def tried(target: Target, raw: bytes) -> bool:
    try:
        return target.try_one(raw)
    except Exception as fault:
        fault.add_note(f"target {target.name}, input {raw!r:.4000}")
        raise


@pytest.mark.parametrize("target", TABLE)
def test_every_known_input_is_taken_or_refused_with_reasons(target: Target) -> None:
    accepted = [tried(target, raw) for raw in corpus.known(target)]
    assert any(accepted) or target.name == "tier-long-name"  # which knows none that is right


@pytest.mark.parametrize("target", TABLE)
def test_a_value_nested_as_deep_as_can_be_read_is_refused(target: Target) -> None:
    if target.form in {"json", "lines"}:
        for raw in nested(target.seeds()[-1:]):
            tried(target, raw)


@pytest.mark.parametrize("target", TABLE)
def test_no_changed_input_breaks_a_promise(target: Target) -> None:
    plain = Plain(target, SEED)
    for raw in islice(plain.inputs(), target.changes):
        if tried(target, raw):
            plain.accepted(raw)


@pytest.mark.parametrize("target", TABLE)
def test_an_input_takes_memory_by_its_size(target: Target) -> None:
    inputs = [*target.seeds(), *(shape(MEMORY_PARTS) for shape in target.shapes.values())]
    for raw in inputs:
        peak, allowed = target.memory(raw)
        assert peak <= allowed, f"{len(raw)} bytes: {raw!r:.200}"


@pytest.mark.parametrize("target,shape", SHAPES)
def test_work_grows_with_the_size_and_not_with_its_square(
    target: Target, shape: Callable[[int], bytes]
) -> None:
    small, large = (target.mend(shape(PARTS * factor)) for factor in (1, GROWTH))
    took = [corpus.steps(target, raw) for raw in (small, large)]
    larger = len(large) / len(small)
    assert took[1] <= 1.5 * larger * took[0] + STEPS_FREE
    assert took[1] <= STEPS_FREE + STEPS_PER_BYTE * len(large)


@pytest.mark.parametrize("name,what,raw", FOUND, ids=[f"{name}-{what}" for name, what, _ in FOUND])
def test_what_was_found_once_stays_mended(name: str, what: str, raw: bytes) -> None:
    tried(TARGETS[name], raw)


def test_the_kept_inputs_are_small_and_of_known_targets() -> None:
    files = list(corpus.FOLDER.glob("*"))
    assert {path.stem for path in files} <= set(TARGETS)
    assert sum(path.stat().st_size for path in files) < 1024 * 1024
