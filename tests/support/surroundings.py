"""What tests must not depend on and must not wait for: the operator's settings, a child that hangs.

`hermetic` gives the process, and with it every child, a home of its own without any setting of
weightctl.  `no_child_hangs` ends the children of a test that takes too long, so that whoever waits
for one sees it die; children of a fixture that several tests share are the fixture's.
"""

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PATIENCE_S = 600.0
"""Less than `faulthandler_timeout`, which ends the whole run."""
_HOMES = {
    "XDG_CONFIG_HOME": ".config",
    "XDG_CACHE_HOME": ".cache",
    "XDG_DATA_HOME": ".local/share",
    "XDG_STATE_HOME": ".local/state",
}
_started: set["Child"] = set()


def hermetic(home: Path) -> None:
    """Make `home` the only place in which this process and its children look for settings."""
    for name in [name for name in os.environ if name.startswith("WEIGHTCTL_")]:
        del os.environ[name]
    os.environ["HOME"] = str(home)
    for name, folder in _HOMES.items():
        os.environ[name] = str(home / folder)


class Child(subprocess.Popen[Any]):
    """A child that is known until it has been waited for."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        _started.add(self)

    def wait(self, timeout: float | None = None) -> int:
        code = super().wait(timeout)
        _started.discard(self)
        return code


def watch_children() -> None:
    """From now on every child of this process is known, whoever starts it."""
    subprocess.Popen = Child  # type: ignore[misc]


@contextmanager
def no_child_hangs(patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Kill what the block has started when it takes longer than that."""
    before = set(_started)

    def end() -> None:
        for child in _started - before:
            child.kill()

    alarm = threading.Timer(patience_s, end)
    alarm.daemon = True
    alarm.start()
    try:
        yield
    finally:
        alarm.cancel()
        _started.intersection_update(before)
