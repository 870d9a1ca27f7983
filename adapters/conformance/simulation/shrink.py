"""Makes a failing script small: drops incidents and actions for as long as the same rule breaks."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from weightctl.adapters.conformance.simulation.report import Report
from weightctl.adapters.conformance.simulation.script import Script
from weightctl.adapters.conformance.simulation.world import simulate

Item = TypeVar("Item")
RUNS_MAX = 250


def shrink(script: Script, report: Report) -> tuple[Script, Report]:
    """A script that breaks the same rule with no part that can be left out, as far as tried."""
    runs = 0
    best = report

    def fails(candidate: Script) -> bool:
        nonlocal runs, best
        runs += 1
        if runs > RUNS_MAX:
            return False
        tried = simulate(candidate)
        if tried.oracle != report.oracle:
            return False
        best = tried
        return True

    used = tuple(item for item in script.incidents if (item[0], item[1]) in report.used)
    if fails(replace(script, incidents=used)):
        script = replace(script, incidents=used)
    before = None
    while script != before and runs <= RUNS_MAX:
        before = script
        script = _with_fewer(script, "incidents", fails)
        script = _with_fewer(script, "actions", fails)
    return script, best


def _with_fewer(script: Script, field: str, fails: Callable[[Script], bool]) -> Script:
    def having(items: Sequence[Any]) -> Script:
        changes: dict[str, Any] = {field: tuple(items)}
        return replace(script, **changes)

    return having(_fewer(getattr(script, field), lambda items: fails(having(items))))


def _fewer(items: Sequence[Item], fails: Callable[[Sequence[Item]], bool]) -> Sequence[Item]:
    """Leave out halves, quarters and so on, down to single items."""
    size = max(len(items) // 2, 1)
    while items and size:
        start = 0
        while start < len(items):
            kept = [*items[:start], *items[start + size :]]
            if fails(kept):
                items = kept
            else:
                start += size
        size //= 2
    return items


def told(script: Script, report: Report, *, steps: int = 60) -> str:
    """A failure for people: seed, rule, the shrunk script as Python text, and how it ends."""
    small, last = shrink(script, report)
    again = simulate(small, keep_trace=True)
    tail = "\n    ".join(again.trace[-steps:])
    return (
        f"seed {script.seed}: {report.oracle}: {report.detail}\n"
        f"  shrunk ({last.oracle}: {last.detail}):\n  {small!r}\n"
        f"  its last steps:\n    {tail}"
    )
