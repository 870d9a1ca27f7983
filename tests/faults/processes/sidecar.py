"""A real `weightctl` over a folder: started, armed, asked, killed, stopped and continued."""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.cli import WEIGHTCTL, checked
from tests.support.models import Tensors, random_tensors, write_model
from weightctl.controller.api import client
from weightctl.controller.api.client import RemoteError
from weightctl.controller.errors import UnknownOutcomeError

PATIENCE_S = 400.0
READY = ": ready\n"
FOUR = ("memory", "local_disk", "dfs", "nof")
OVER_DFS = ("memory", "dfs")
OVER_NOF = ("memory", "nof")
DEVICE_BYTES = 32 * 1024 * 1024
PAYLOAD_BYTES = 16384

CONFIG = """\
state_dir = "{folder}/state"
[policy]
cold_copies = {copies}
settle_s = 0.3
import_abandon_ms = {abandon_ms}
tier_preference = {cold}
[import]
payload_bytes = {payload_bytes}
[resync]
working_s = 1
[lease]
ttl_ms = {lease_ms}
[observer]
deadline_s = {deadline_s}
[executor]
deadline_s = {deadline_s}
"""


class Died(Exception):
    """The process ended before it answered."""


class Sidecar:
    """One state directory with its tiers, and the process that runs on it, if any.

    Every process that is started here has failpoints from one file, empty unless `arm`ed.
    """

    def __init__(
        self,
        folder: Path,
        tiers: Sequence[str] = FOUR,
        *,
        abandon_ms: int = 300_000,
        deadline_s: float = 10.0,
        lease_ms: int = 6_000,
    ) -> None:
        self.folder = folder
        self.tiers = tuple(tiers)
        self.state_dir = folder / "state"
        self.config = folder / "weightctl.toml"
        self.model = folder / "model.safetensors"
        self.tensors: Tensors = random_tensors(rows=256)
        self.child: subprocess.Popen[bytes] | None = None
        self.starts = 0
        self._ready_before = 0
        self._points = folder / "failpoints"
        folder.mkdir(parents=True, exist_ok=True)
        write_model(self.model, self.tensors)
        self.config.write_text(
            self._configuration(abandon_ms, deadline_s, lease_ms), encoding="utf-8"
        )
        self.disarm()

    def _configuration(self, abandon_ms: int, deadline_s: float, lease_ms: int) -> str:
        cold = [kind for kind in self.tiers if kind != "memory"]
        text = CONFIG.format(
            folder=self.folder,
            copies=len(cold),
            cold=json.dumps(cold),
            payload_bytes=PAYLOAD_BYTES,
            abandon_ms=abandon_ms,
            deadline_s=deadline_s,
            lease_ms=lease_ms,
        )
        for kind in self.tiers:
            text += f'[[tier]]\nname = "{kind}"\nkind = "{kind}"\npath = "{self.folder / kind}"\n'
            if kind == "nof":
                text += f"size_bytes = {DEVICE_BYTES}\n"
            if kind in {"dfs", "nof"}:
                text += f"workers = 2\ndeadline_s = {deadline_s}\n"
        return text

    # --- failpoints -------------------------------------------------------------------------------

    def arm(self, text: str) -> None:
        """Arm the running process, or the next one."""
        draft = self._points.with_suffix(".new")
        draft.write_text(text, encoding="utf-8")
        draft.replace(self._points)

    def disarm(self) -> None:
        """Nothing is to fail any more."""
        self.arm("")

    # --- the process ------------------------------------------------------------------------------

    def environ(self) -> dict[str, str]:
        """This process's environment and the file of failpoints."""
        more = {"WEIGHTCTL_FAILPOINTS": f"@{self._points}", "PYTHONDONTWRITEBYTECODE": "1"}
        return {**os.environ, **more}

    def command(self, *words: str) -> list[str]:
        return [*WEIGHTCTL, *words, "--config", str(self.config)]

    def popen(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """A process with the failpoints; what it says goes to the log."""
        with (self.folder / "run.log").open("ab") as log:
            return subprocess.Popen(
                command, env=self.environ(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def start(self) -> None:
        """`weightctl run`, until it answers."""
        self._ready_before = self.log().count(READY)
        self.child = self.popen(self.command("run"))
        self.starts += 1
        self.wait(self._answers, "it does not start")

    def _answers(self) -> bool:
        self._must_run()
        if self.log().count(READY) == self._ready_before:  # a stopped one would be reached, too
            return False
        connection = client.connect(str(self.state_dir))
        if connection is not None:
            connection.close()
        return connection is not None

    def _must_run(self) -> None:
        assert self.child is not None
        if self.child.poll() is not None:
            raise Died(f"ended with {self.child.returncode} while starting\n{self.log()[-4000:]}")

    @property
    def alive(self) -> bool:
        """Whether the process runs, or is stopped."""
        return self.child is not None and self.child.poll() is None

    def send(self, number: signal.Signals) -> None:
        assert self.child is not None
        self.child.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self.child is not None:
            self.child.kill()
            self.child.wait(PATIENCE_S)

    def terminate(self) -> None:
        """SIGTERM; it must end well."""
        assert self.child is not None
        self.child.send_signal(signal.SIGTERM)
        assert self.child.wait(PATIENCE_S) == 0, self.log()[-4000:]

    def await_death(self) -> None:
        """Wait until the process has died by the SIGKILL that it was to give itself."""
        assert self.child is not None
        assert self.child.wait(PATIENCE_S) == -signal.SIGKILL, self.log()[-4000:]

    def workers(self) -> list[int]:
        """The pids of the process's children."""
        assert self.child is not None
        return children_of(self.child.pid)

    def log(self) -> str:
        path = self.folder / "run.log"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    # --- asking -----------------------------------------------------------------------------------

    def ask(self, verb: str, **params: Any) -> dict[str, Any]:
        """One request to the running process.  Raises RemoteError, or Died when it went away."""
        connection = client.connect(str(self.state_dir))
        if connection is None:
            raise Died(f"{verb}: nobody listens")
        try:
            return dict(checked(client.request(connection, verb, params, lambda _: None)))
        except UnknownOutcomeError as error:
            raise Died(str(error)) from error

    def run(self, *words: str, timeout_s: float = PATIENCE_S) -> "Ended":
        """A process of its own that does one verb, with the failpoints that are armed."""
        done = subprocess.run(
            self.command(*words, "-o", "json"),
            env=self.environ(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def wait(self, done: Any, what: str) -> None:
        """Look until `done()`; fails when patience is over."""
        until = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < until, f"{what}\n{self.log()[-4000:]}"
            time.sleep(0.01)


class Ended:
    """A verb's own process after its end."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.err = err
        self.document: dict[str, Any] = dict(checked(json.loads(out))) if out.strip() else {}

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL


class Asking(threading.Thread):
    """A request that is under way while something else happens to the process."""

    def __init__(self, sidecar: Sidecar, verb: str, params: Mapping[str, Any]) -> None:
        super().__init__(daemon=True)
        self._sidecar = sidecar
        self.verb = verb
        self.params = dict(params)
        self.document: dict[str, Any] | None = None
        self.refusal: RemoteError | None = None
        self.lost = False

    def run(self) -> None:
        try:
            self.document = self._sidecar.ask(self.verb, **self.params)
        except RemoteError as error:
            self.refusal = error
        except (Died, OSError):
            self.lost = True

    def ended(self) -> "Asking":
        self.join(PATIENCE_S)
        assert not self.is_alive(), f"{self.verb} {self.params} gets no answer"
        return self


def children_of(pid: int) -> list[int]:
    """Direct children of a process, of all its threads."""
    found: list[int] = []
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, listed.read_text().split())
        except OSError:
            continue
    return found


@contextmanager
def sidecar(folder: Path, tiers: Sequence[str] = FOUR, **more: Any) -> Iterator[Sidecar]:
    """A sidecar whose process is gone when the block ends, whatever happened."""
    made = Sidecar(folder, tiers, **more)
    try:
        yield made
    finally:
        made.kill()
