"""`weightctl adapter check`: the suite over somebody's tier.  Layer: conformance.

It runs in a child process.  Nothing that the tier does can hold up or end the one who asks: the
child has a deadline for each case and one for all, and is started again behind a case in which it
hung or died.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from weightctl.adapters.conformance.grades import Grade
from weightctl.adapters.conformance.loading import LOADED
from weightctl.adapters.conformance.report import UNTRIED, Finding, Report, Verdict
from weightctl.adapters.conformance.session import EVENTS, REQUEST
from weightctl.controller.errors import ConfigError

NEEDED = ("pytest", "pytest_asyncio", "blockbuster")
_RESTARTS_MAX = 20
_LONG_RUNS = 2
"""Cases that take `soak_s` each."""
_TELL_S = 0.5
_TOLD_CHARS = 4000
_RUNNER = ("/_pytest/", "/pluggy/", "/pytest_asyncio/", "<frozen runpy>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to check and how long it may take."""

    factory: str
    """`module:attribute`, as an entry point names it."""
    options: Mapping[str, object] = field(default_factory=dict)
    """Its options; `{tmp}` in a text is a fresh folder for each case."""
    harness: str = ""
    """`module:class` of a `TierHarness` that knows how to hurt the medium; empty: a plain one."""
    select: str = ""
    """pytest's `-k`; empty: every case."""
    load_deadline_s: float = 120.0
    """For importing it and calling its factory once."""
    case_deadline_s: float = 120.0
    soak_s: float = 0.0
    """How long each long run of platinum takes; 0: they are not tried."""
    deadline_s: float = 1800.0


def check(request: Request, tell: Callable[[int, int], None] = lambda *_: None) -> Report:
    """Run the suite and give what was found.  Raises ConfigError when the kit is not installed.

    tell: gets the cases that have ended and those that there are, now and then.
    """
    absent = [name for name in NEEDED if find_spec(name) is None]
    if absent:
        raise ConfigError(
            "the conformance kit",
            f"not installed: {', '.join(absent)}",
            "install weightctl[conformance]",
        )
    with tempfile.TemporaryDirectory(prefix="weightctl-check-") as name:
        return _Check(request, Path(name), tell).run()


class _Check:
    """One check; `folder` is scratch."""

    def __init__(self, request: Request, folder: Path, tell: Callable[[int, int], None]) -> None:
        self._request = request
        self._folder = folder
        self._tell = tell
        self._grades: dict[str, Grade] = {}
        self._findings: dict[str, Finding] = {}
        self._hints: list[str] = []
        self._profile: dict[str, object] = {}

    def run(self) -> Report:
        """Children one after the other, until every case has an end."""
        if problem := self._load():
            return Report(factory=self._request.factory, problem=problem)
        code, told = 0, ""
        for _ in range(_RESTARTS_MAX):
            (self._folder / EVENTS).write_text("")
            deadline_s = self._request.deadline_s + _LONG_RUNS * self._request.soak_s
            code, told = self._child("session", deadline_s)
            begun = self._read()
            if begun is None and not self._open_cases():
                break
            if begun is None:
                begun = self._open_cases()[0]
            self._add(begun, _verdict_of(code), _without_runner(told))
            if not self._open_cases():
                break
        for case in self._open_cases():
            self._add(case, Verdict.UNTRIED, "the check ended before it")
        self._tell(len(self._findings), len(self._grades))
        return Report(
            factory=self._request.factory,
            profile=self._profile,
            findings=tuple(self._findings.values()),
            selection=self._request.select,
            hints=tuple(dict.fromkeys(self._hints)),
            problem="" if self._findings else _none_found(self._request, code, told),
        )

    def _load(self) -> str:
        """Load the tier once, alone; the problem in three lines, empty where there is none."""
        code, told = self._child("loading", self._request.load_deadline_s)
        loaded = self._folder / LOADED
        if not loaded.exists():
            how = "it did not end in time" if code == -signal.SIGKILL else f"it ended with {code}"
            last = " ".join(told[-_TOLD_CHARS:].splitlines()[-1:])
            why = ": ".join(part for part in (how, last) if part)
            todo = "see what importing it and calling its factory do"
        else:
            found = json.loads(loaded.read_text())
            self._profile = found.get("profile", {})
            if "problem" not in found:
                return ""
            why, todo = found["problem"]
        return f"tier {self._request.factory} cannot be loaded\n{why}\n{todo}"

    def _child(self, module: str, deadline_s: float) -> tuple[int, str]:
        """Exit code and what was told on the way; the deadline ends it with all that it started."""
        request = self._request
        asked = {
            "factory": request.factory,
            "options": dict(request.options),
            "harness": request.harness,
            "select": request.select,
            "case_deadline_s": request.case_deadline_s + request.soak_s,
            "soak_s": request.soak_s,
            "done": sorted(self._findings),
            "path": [path or os.getcwd() for path in sys.path],  # noqa: PTH109 - as Python does
        }
        (self._folder / REQUEST).write_text(json.dumps(asked))
        told = self._folder / "told"
        environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        name = f"weightctl.adapters.conformance.{module}"
        argv = [sys.executable, "-m", name, str(self._folder)]
        with told.open("wb") as out:
            child = subprocess.Popen(  # noqa: S603 - ourselves
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
            try:
                code = self._waited(child, deadline_s)
            finally:
                _end(child)
        return code, told.read_text(errors="replace")

    def _waited(self, child: subprocess.Popen[bytes], deadline_s: float) -> int:
        """The exit code, that of a kill after the deadline; tells how far it is meanwhile."""
        for _ in range(math.ceil(deadline_s / _TELL_S)):
            with contextlib.suppress(subprocess.TimeoutExpired):
                return child.wait(_TELL_S)
            events = self._folder / EVENTS
            lines = events.read_text().splitlines() if events.exists() else []
            counts = [
                len(self._findings) + sum(line.startswith(f'{{"event": "{kind}"') for line in lines)
                for kind in ("end", "case")
            ]
            if counts[1]:
                self._tell(counts[0], max(counts[1], len(self._grades)))
        return -signal.SIGKILL

    def _read(self) -> str | None:
        """Take in the events; the case that was under way at the end, if any."""
        under_way: str | None = None
        for line in (self._folder / EVENTS).read_text().splitlines():
            event: dict[str, Any] = json.loads(line)
            match event:
                case {"event": "case", "case": case, "grade": grade}:
                    self._grades[case] = Grade(grade)
                case {"event": "begin", "case": case}:
                    under_way = case
                case {"event": "hint", "value": text}:
                    self._hints.append(text)
                case {"event": "profile", "value": profile}:
                    self._profile = profile
                case {"event": "end", "case": case, "outcome": outcome, "detail": detail}:
                    under_way = None
                    self._add(case, _verdict(outcome, detail), detail)
        return under_way

    def _open_cases(self) -> list[str]:
        return [case for case in self._grades if case not in self._findings]

    def _add(self, case: str, verdict: Verdict, detail: str) -> None:
        self._findings[case] = Finding(
            case=case, grade=self._grades[case], verdict=verdict, detail=_shortened(detail)
        )


def _none_found(request: Request, code: int, told: str) -> str:
    """Why no case was run, in three lines."""
    match code:
        case pytest.ExitCode.NO_TESTS_COLLECTED if request.select:
            why = f"no case has these words: {request.select!r}"
        case pytest.ExitCode.USAGE_ERROR if request.select:
            why = f"these are no words of cases: {request.select!r}"
        case _:
            why = " ".join(told[-_TOLD_CHARS:].split()) or "no case was found"
    todo = "see what the kit said"
    if request.select:
        todo = "select words of a rule with `_` for its spaces; between them `and`, `or`, `not`"
    return f"tier {request.factory} cannot be checked\n{why}\n{todo}"


def _verdict(outcome: str, detail: str) -> Verdict:
    match outcome:
        case "passed":
            return Verdict.HOLDS
        case "failed":
            return Verdict.BROKEN
        case _:
            return Verdict.UNTRIED if detail.startswith(UNTRIED) else Verdict.INAPPLICABLE


def _verdict_of(code: int) -> Verdict:
    """How a case went in which the child ended: faulthandler ends with 1, the deadline by KILL."""
    return Verdict.HUNG if code in (1, -signal.SIGKILL) else Verdict.DIED


def _without_runner(stacks: str) -> str:
    """The stacks without the frames of pytest, which are the same for each case."""
    lines = stacks.splitlines()
    return "\n".join(line for line in lines if not any(name in line for name in _RUNNER))


def _shortened(detail: str) -> str:
    """Both ends: a failure says last what is wrong, a stack says first where it stands."""
    if len(detail) <= 2 * _TOLD_CHARS:
        return detail
    return f"{detail[:_TOLD_CHARS]}\n[...]\n{detail[-_TOLD_CHARS:]}"


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the child and everything that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
