"""The child process of a check: pytest over the suite, its findings as lines of JSON.

Layer: conformance.  Runs as `python -m weightctl.adapters.conformance.session FOLDER`; FOLDER holds
`session.json`, what is to be checked.  Each line of `events.jsonl` is flushed as soon as it is
known, so that a child that hangs or dies still tells where.  A case that takes longer than its
deadline ends this process with the stacks of all threads on stderr.  Nothing here imports
the suite: pytest explains an `assert` only in what is imported after it has begun.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import json
import os
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

import pytest
import uvloop

from weightctl.adapters.conformance.grades import Grade
from weightctl.adapters.conformance.report import OPTIONAL

REQUEST = "session.json"
EVENTS = "events.jsonl"
_EARLY = 0.8
"""Of the deadline: when a thread can still tell what the tasks wait for."""
_AWAITS_MAX = 50
_FILE = '''"""Made by `weightctl adapter check`."""

from weightctl.adapters.conformance.suite.distinction import ContractOfDistinction
from weightctl.adapters.conformance.suite.harness import harness_over
from weightctl.adapters.conformance.suite.tier_suite import TierSuite


class TestTier(TierSuite, ContractOfDistinction):
    harness_type = harness_over({harness!r}, {factory!r}, {options!r})
    soak_s = {soak_s!r}
'''
_INI = """[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
asyncio_default_test_loop_scope = function
filterwarnings = default
python_files = test_tier.py
"""


def imports_from(path: list[str]) -> None:
    """Find modules where the one who asks finds them."""
    sys.path[:0] = [entry for entry in path if entry not in sys.path]


class Listener:
    """Tells each case's beginning and end."""

    def __init__(self, out: TextIO, told: int, deadline_s: float, done: frozenset[str]) -> None:
        self._out = out
        self._told = told
        """Where stacks go: a descriptor that pytest does not capture."""
        self._deadline_s = deadline_s
        self._done = done
        self._worst: dict[str, dict[str, object]] = {}

    def pytest_asyncio_loop_factories(
        self, config: pytest.Config, item: pytest.Item
    ) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
        """The loop that `weightctl run` uses."""
        del config, item
        return {"uvloop": uvloop.new_event_loop}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out what an earlier child has done; tell what there is, with its grade."""
        items[:] = [item for item in items if _name(item) not in self._done]
        for item in items:
            self._tell(event="case", case=_name(item), grade=_grade(item))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Watch one case with everything that belongs to it."""
        name = _name(item)
        self._tell(event="begin", case=name)
        faulthandler.dump_traceback_later(self._deadline_s, exit=True, file=self._told)
        early = threading.Timer(self._deadline_s * _EARLY, _tell_awaits, [self._told])
        early.daemon = True
        early.start()
        try:
            return (yield)
        finally:
            early.cancel()
            faulthandler.cancel_dump_traceback_later()
            found = self._worst.pop(name, {"outcome": "passed", "detail": ""})
            self._tell(event="end", case=name, **found)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the worst of set-up, call and tear-down."""
        name = _named(report.nodeid)
        if report.failed:
            self._worst[name] = {"outcome": "failed", "detail": report.longreprtext}
        elif report.skipped and name not in self._worst:
            reason = _reason(report)
            self._worst[name] = {"outcome": "skipped", "detail": reason}
            if reason.startswith(OPTIONAL):
                self._tell(event="hint", value=reason)
        for title, text in report.user_properties:
            if title in {"hint", "profile"} and report.when == "call":
                self._tell(event=title, value=text)

    def _tell(self, **event: object) -> None:
        print(json.dumps(event), file=self._out, flush=True)


def _tell_awaits(told: int) -> None:
    """Where each task waits, which no thread's stack shows."""
    lines = ["tasks, each with what it awaits, outermost first:"]
    for task in [one for one in gc.get_objects() if isinstance(one, asyncio.Task)]:
        if not task.done():
            lines.append(f"  {task.get_name()}")
            lines += _awaits(task.get_coro())
    os.write(told, "\n".join([*lines, ""]).encode())


def _awaits(waiting: Any) -> Iterator[str]:  # noqa: ANN401 - coroutines, generators, futures
    for _ in range(_AWAITS_MAX):
        for kind in ("cr", "ag", "gi"):
            frame = getattr(waiting, f"{kind}_frame", None)
            if frame is not None:
                code = frame.f_code
                yield f"    {code.co_filename}:{frame.f_lineno} in {code.co_name}"
            if hasattr(waiting, f"{kind}_frame"):
                follows = "gi_yieldfrom" if kind == "gi" else f"{kind}_await"
                waiting = getattr(waiting, follows)
                break
        else:
            return


def _name(item: pytest.Item) -> str:
    return _named(item.nodeid)


def _named(nodeid: str) -> str:
    """Without the file and the loop's name, which is the same for all."""
    return nodeid.partition("::")[2].replace("[uvloop]", "").replace("uvloop-", "")


def _grade(item: pytest.Item) -> int:
    """The grade of the class in which the case stands."""
    assert isinstance(item, pytest.Function)  # noqa: S101 - the suite has no other cases
    for found in type(item.instance).__mro__:
        if item.originalname in vars(found):
            return int(getattr(found, "grade", Grade.BRONZE))
    return int(Grade.BRONZE)


def _reason(report: pytest.TestReport) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def main(folder: Path) -> int:
    """Run what `session.json` asks for; pytest's exit code."""
    request: dict[str, Any] = json.loads((folder / REQUEST).read_text())
    test, ini = folder / "test_tier.py", folder / "pytest.ini"
    test.write_text(
        _FILE.format(
            **{name: request[name] for name in ("factory", "options", "harness", "soak_s")}
        )
    )
    ini.write_text(_INI)
    imports_from(request["path"])
    with (folder / EVENTS).open("a") as out:
        listener = Listener(out, os.dup(2), request["case_deadline_s"], frozenset(request["done"]))
        argv = ["-c", str(ini), "--rootdir", str(folder), "-p", "no:cacheprovider", "-q"]
        argv += ["--tb=short", "-p", "pytest_asyncio.plugin", "--import-mode=importlib"]
        argv += ["--basetemp", str(folder / "media"), "-k", request["select"], str(test)]
        return int(pytest.main(argv, plugins=[listener]))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
