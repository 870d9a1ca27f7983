"""The README names every oracle, and every oracle that it names is there."""

import re
from pathlib import Path

from weightctl.adapters.conformance import simulation
from weightctl.adapters.conformance.simulation.trust import Trust
from weightctl.controller.core.observation import MemberState

FOLDER = Path(simulation.__file__).parent
_JUDGED = re.compile(r'(?:violate|_found)\(\s*"([a-z-]+)"')
_KINDS = re.compile(r'kind = "([a-z-]+)" if .* else "([a-z-]+)"')


def _in_code() -> set[str]:
    found: set[str] = set()
    for path in FOLDER.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        found.update(_JUDGED.findall(text))
        found.update(name for pair in _KINDS.findall(text) for name in pair)
    return found


def _in_readme() -> dict[str, list[str]]:
    """By the row's first cell: the oracles of the second."""
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    table = text.partition("| invariant | oracles |")[2].partition("\n\n")[0]
    rows = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| ")]
    return {name.strip(): re.findall(r"`([a-z-]+)`", oracles) for name, oracles in rows}


def test_each_invariant_has_a_named_oracle_and_each_oracle_is_named() -> None:
    rows = _in_readme()
    numbers = [name.partition(".")[0] for name in rows if name[0].isdigit()]
    assert numbers == [str(number) for number in range(1, 13)]
    assert all(rows.values())
    named = [oracle for oracles in rows.values() for oracle in oracles]
    assert sorted(named) == sorted(_in_code())


def test_a_look_after_just_the_settle_time_settles_whatever_floats_make_of_it() -> None:
    trust = Trust(4.0, 0.1, {"mem": "1"})
    whole, gone = {"a": int(MemberState.COMPLETE)}, {"a": int(MemberState.ABSENT)}
    since_s = 1021.5158685733583  # plus 4.0 it is not what 1025.5158685733581 less it makes of it
    trust.answered("mem", "group", whole, "1", 1006.0)
    trust.answered("mem", "group", gone, "1", since_s)
    assert trust.problem("mem", "group", since_s)
    trust.answered("mem", "group", gone, "1", 1025.5158685733581)
    assert not trust.problem("mem", "group", 1025.5158685733581)
    trust.answered("mem", "group", gone, "1", 1026.0)
    assert not trust.problem("mem", "group", 1026.0)
