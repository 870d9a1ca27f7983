"""An engine for tests of the worker processes: it answers, fails, hangs and dies on request."""

import contextlib
import os
import time
from pathlib import Path

from weightctl.adapters.shared.worker_main import ANSWER_VALUE, pack_frame
from weightctl.controller.errors import BusyError, ConfigError, ThrottledError, WeightctlError

ERRORS: dict[str, WeightctlError] = {
    "throttled": ThrottledError(2.5, "what", "why", "todo"),
    "busy": BusyError(17, "what", "why"),
    "config": ConfigError("what"),
}


class Engine:
    """Every method runs in the worker."""

    def __init__(self, buffer: memoryview, *, greeting: str = "") -> None:
        self.buffer = buffer
        self.greeting = greeting

    def echo(self, value: object, *, times: int = 1) -> list[object]:
        return [value] * times

    def greet(self) -> str:
        return self.greeting

    def pid(self) -> int:
        return os.getpid()

    def fail(self, kind: str) -> None:
        raise ERRORS[kind]

    def burst(self) -> None:
        raise OSError(5, "not translated")

    def unsendable(self) -> object:
        return lambda: None

    def fill(self, offset: int, text: bytes) -> None:
        self.buffer[offset : offset + len(text)] = text

    def peek(self, offset: int, size_bytes: int) -> bytes:
        return bytes(self.buffer[offset : offset + size_bytes])

    def wait_for(self, path: str) -> str:
        """Ends when the file exists; this is how a test decides when a call ends."""
        while not Path(path).exists():
            time.sleep(0.001)
        return path

    def touch(self, path: str) -> None:
        Path(path).touch()

    def open_blocked(self, fifo: str) -> None:
        """Blocks in open(2) until the other end is opened."""
        with Path(fifo).open("rb"):
            return

    def die(self) -> None:
        os._exit(3)

    def surroundings(self) -> tuple[list[str], int, str]:
        """What its descriptors name, its session, its folder."""
        names = [str(name) for _, name in _descriptors()]
        return names, os.getsid(0), str(Path.cwd())

    def answer_before_and_twice(self, number: int, value: str) -> str:
        """Send the answer to request `number`, one to a far request, and then the usual one."""
        channel = next(fd for fd, name in _descriptors() if str(name).startswith("socket:"))
        os.write(channel, pack_frame(number, (ANSWER_VALUE, value)))
        os.write(channel, pack_frame(number + 1000, (ANSWER_VALUE, "nobody asked")))
        return "the same answer once more"


def _descriptors() -> list[tuple[int, Path]]:
    found = []
    for link in sorted(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(FileNotFoundError):  # the descriptor of this listing
            found.append((int(link.name), link.readlink()))
    return found


def broken(buffer: memoryview) -> Engine:
    """A factory that fails."""
    raise ConfigError("no engine", "it is broken on purpose", "mend it")
