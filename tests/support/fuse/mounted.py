"""A `Disk` mounted on a folder, in a process of its own, and the orders for it.

    with mounted(folder) as lab:
        lab.arm(Fault(ops=CHANGING, at=7, error=errno.EIO))

The calls block for less than a millisecond; on a loop they go to a thread.  Whatever happens inside
the block, the mount is gone and the process has ended after it.
"""

import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.fuse.disk import Change
from tests.support.fuse.faults import Fault
from tests.support.mounts import require_mounts, unmount

ROOT = Path(__file__).parents[3]
_PATIENCE_S = 240.0


class Lab:
    """Orders to the serving process."""

    def __init__(self, control: socket.socket, process: "subprocess.Popen[bytes]") -> None:
        self._control = control
        self._process = process
        self._lock = threading.Lock()

    def arm(self, fault: Fault | None) -> int:
        """Meet later requests with this fault; how many of its kinds the last one has counted."""
        return int(self._ask("arm", fault))

    def met(self) -> list[str]:
        """The operations that the armed fault has met."""
        return list(self._ask("met"))

    def let_go(self) -> int:
        """End the fault and answer what hangs."""
        return int(self._ask("let_go"))

    def mark(self, value: object) -> None:
        """Note in the log what is known now."""
        self._ask("mark", value)

    def log(self) -> list[Change]:
        """All changes and marks since the log was begun."""
        return list(self._ask("log"))

    def begin(self) -> None:
        """Begin a new log; what it needs of the past must be made again."""
        self._ask("begin")

    def _ask(self, name: str, *arguments: object) -> Any:
        raw = pickle.dumps((name, arguments))
        with self._lock:
            self._control.sendall(len(raw).to_bytes(8, "little") + raw)
            return self.hear()

    def hear(self) -> Any:
        head = self._control.recv(8, socket.MSG_WAITALL)
        if len(head) < len(bytes(8)):
            raise AssertionError(f"the file system's process ended: {self._process.poll()}")
        raw = self._control.recv(int.from_bytes(head, "little"), socket.MSG_WAITALL)
        return pickle.loads(raw)


@contextmanager
def mounted(folder: Path) -> Iterator[Lab]:
    """Mount a new, empty disk over `folder`, which is made."""
    require_mounts()
    folder.mkdir(parents=True, exist_ok=True)
    ours, theirs = socket.socketpair()
    argv = [sys.executable, "-m", "tests.support.fuse.server", str(folder), str(theirs.fileno())]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / '.devroot'}:{ROOT}"}
    with ours, theirs:
        process = subprocess.Popen(argv, pass_fds=[theirs.fileno()], env=environment, cwd=ROOT)
        theirs.close()
        lab = Lab(ours, process)
        try:
            lab.hear()
            yield lab
        finally:
            with suppress(OSError):
                ours.shutdown(socket.SHUT_RDWR)
            _end(process, folder)


def _end(process: "subprocess.Popen[bytes]", folder: Path) -> None:
    try:
        process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    unmount(folder)
