"""Processes that end with the one that has started them, whatever ends it.

Layer: a tier; blocking, no part of a running controller.  All of them are in one process group,
whose leader waits for the end of a pipe that only the starter holds, and then kills the group.  Not
the kernel's signal to the children of who dies: that comes when a thread ends, too.  Invariant: a
process is in the group before it runs, and until then it holds the pipe itself.
"""

from __future__ import annotations

import subprocess

_WAIT = "trap '' HUP INT QUIT TERM; read -r _; kill -KILL 0"
"""A group whose starter has died gets SIGHUP when one in it is stopped."""


class Leash:
    """One such group; what is started with `process_group=leash.group` is in it."""

    def __init__(self) -> None:
        self._leader = subprocess.Popen(  # noqa: S603 - the system's shell, our own text
            ["/bin/sh", "-c", _WAIT], stdin=subprocess.PIPE, process_group=0
        )
        self.group = self._leader.pid

    def close(self) -> None:
        """Kill whatever is left in it."""
        self._leader.communicate()
