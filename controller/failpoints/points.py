"""What is armed, how often it was reached, and what happens then.  Layer: failpoints.

    WEIGHTCTL_FAILPOINTS="tier.local_disk.store.before:3=kill, journal.append.after=stop:5"

Each part is NAME[:N]=ACTION and acts once, when NAME is reached for the N-th time (the first by
default); `log` without a number acts each time.  A NAME may hold the wildcards of the shell.
`@PATH` takes the parts from a file, which is read again whenever it was replaced, so that a running
process can be armed; its counts then start anew.  A name that nothing has is refused at the start.
"""

from __future__ import annotations

import difflib
import errno
import logging
import os
import re
import signal
import subprocess
import threading
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from weightctl.controller.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

TIER_CALLS = (
    "observe",
    "store",
    "drop",
    "quarantine",
    "open",
    "verify",
    "inventory",
    "capacity",
)
COMMITS = ("create", "term", "append", "fold", "replace")
"""Every kind of transaction of the journal."""
UNCERTAIN = ("append.after", "fold.after", "replace.after")
"""Commits of which it can be said that nobody knows their outcome."""
FILE_CALLS = ("open", "link", "mkdir", "remove", "rename", "rmdir", "truncate")
"""Calls that change a folder, and opening a file to write."""
TIER_ERRORS = (
    "transient",
    "throttled",
    "busy",
    "capacity",
    "integrity",
    "terminal",
    "fenced",
    "unknown",
)
ACTIONS = ("kill", "stop", "kill-children", "error", "log")

_PART = re.compile(r"(?P<name>[^:=\s]+)(:(?P<number>\d+))?=(?P<action>[a-z-]+)(:(?P<more>\w+))?")
_LOG = logging.getLogger("weightctl.failpoints")


def known_names(tiers: Sequence[str]) -> list[str]:
    """The names of all failpoints of a process with these tiers."""
    sides = ("before", "after")
    calls = [f"tier.{tier}.{call}" for tier in tiers for call in TIER_CALLS]
    calls += [f"journal.{commit}" for commit in COMMITS]
    return [
        *(f"{call}.{side}" for call in calls for side in sides),
        *(f"tier.{tier}.piece" for tier in tiers),
        *(f"file.{call}" for call in FILE_CALLS),
    ]


@dataclass(slots=True, kw_only=True)
class _Armed:
    pattern: str
    number: int
    """Which time it acts, from 1; 0: each time."""
    action: str
    more: str
    reached: int = 0


class Failpoints:
    """The armed failpoints of this process; safe to reach from any thread."""

    def __init__(self, text: str, names: Sequence[str]) -> None:
        """`text` is the variable's value.  Raises ConfigError for what cannot be meant."""
        self._names = names
        self._guard = threading.Lock()
        self._file = Path(text[1:]) if text.startswith("@") else None
        self._version = (0, 0)
        self._armed: list[_Armed] = []
        if self._file is None:
            self._armed = _parsed(text, names)
        else:
            self._armed = _parsed(self._read(self._file), names)
        _LOG.warning("FAILPOINTS ARE ON, this process may be made to fail: %s", text)

    def reach(self, name: str) -> str:
        """Do what is armed for this place; the word after `error:` when it is to fail, else ''."""
        with self._guard:
            self._reload()
            due = [armed for armed in self._armed if _is_due(armed, name)]
        failure = ""
        for armed in due:
            _LOG.warning("failpoint %s: %s", name, armed.action)
            failure = _act(armed) or failure
        return failure

    def _read(self, file: Path) -> str:
        try:
            status = file.stat()
            self._version = (status.st_ino, status.st_mtime_ns)
            return file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise _refused(f"@{file}", str(error), "give a file that can be read") from error

    def _reload(self) -> None:
        """Take the file's parts when it is another one; nothing is armed by a wrong one."""
        if self._file is None:
            return
        try:
            status = self._file.stat()
            if (status.st_ino, status.st_mtime_ns) == self._version:
                return
            self._armed = []
            self._armed = _parsed(self._read(self._file), self._names)
        except (OSError, ConfigError) as error:
            _LOG.error("failpoints not armed: %s", " ".join(str(error).split()))
            self._armed = []


def _parsed(text: str, names: Sequence[str]) -> list[_Armed]:
    return [_part(part, names) for part in map(str.strip, text.split(",")) if part]


def _part(part: str, names: Sequence[str]) -> _Armed:
    match = _PART.fullmatch(part)
    if match is None:
        raise _refused(part, "it is not NAME[:N]=ACTION", "write it like journal.append.after=kill")
    name, action, more = match["name"], match["action"], match["more"] or ""
    matched = [known for known in names if fnmatchcase(known, name)]
    if not matched:
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.0)
        raise _refused(part, f"no failpoint is called {name}", f"did you mean {near[0]}?")
    if action not in ACTIONS:
        near = difflib.get_close_matches(action, ACTIONS, n=1, cutoff=0.0)
        raise _refused(part, f"no action is called {action}", f"did you mean {near[0]}?")
    if not _fits(action, more, matched):
        raise _refused(part, f"{action} does not take {more!r} there", "see the list of actions")
    default = 0 if action == "log" else 1
    number = int(match["number"] or default)
    return _Armed(pattern=name, number=number, action=action, more=more)


def _fits(action: str, more: str, matched: Sequence[str]) -> bool:
    """Whether what follows the action's colon can be meant at each of the places."""
    if action == "stop":
        return not more or more.isdecimal()
    if action != "error":
        return not more
    return all(_may_fail(name, more) for name in matched)


def _may_fail(name: str, more: str) -> bool:
    family, _, place = name.partition(".")
    match family:
        case "tier":
            return more in TIER_ERRORS
        case "file":
            return more in errno.errorcode.values()
    return not more and place in UNCERTAIN


def _is_due(armed: _Armed, name: str) -> bool:
    if not fnmatchcase(name, armed.pattern):
        return False
    armed.reached += 1
    return armed.number in (0, armed.reached)


def _act(armed: _Armed) -> str:
    match armed.action:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            _stop(armed.more)
        case "kill-children":
            _kill_children()
        case "error":
            return armed.more or "error"
    return ""


def _stop(seconds: str) -> None:
    """Stop this process; for `seconds`, or until somebody continues it."""
    if seconds:
        later = f"(sleep {seconds}; kill -CONT {os.getpid()}) >/dev/null 2>&1 &"
        subprocess.run(["/bin/sh", "-c", later], check=True)  # noqa: S603 - two checked numbers
    os.kill(os.getpid(), signal.SIGSTOP)


def _kill_children() -> None:
    for listed in Path("/proc/self/task").glob("*/children"):
        for child in listed.read_text().split():
            os.kill(int(child), signal.SIGKILL)


def _refused(part: str, why: str, todo: str) -> ConfigError:
    return ConfigError(f"failpoint {part!r}", f"{ConfigError.reason}: {why}", todo)
