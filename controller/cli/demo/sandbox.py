"""A temporary state directory with all four tiers, and the loop in a child process.  Layer: cli.

Everything is below one folder, apart from the memory tier, which lies in a tmpfs; both are removed
at the end, whatever happened, and so is the child.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from weightctl.controller.api import client
from weightctl.controller.cli.watching import run_watched
from weightctl.controller.clock import SystemClock
from weightctl.controller.config.loading import load
from weightctl.controller.config.places import memory_path
from weightctl.controller.errors import WeightctlError
from weightctl.controller.store.reading import read_state, unmoved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from weightctl.controller.api import documents as doc
    from weightctl.controller.core.identity import Identity
    from weightctl.controller.core.records import ResidencyOperation, RevisionMetadata

BANDWIDTH = 96 * 1024**2
"""Of each tier: slow enough that there is a middle of an operation to be killed in."""
START_S = 180.0
LOOK_S = 0.02
_LOG_LINES = 20

_CONFIG = """\
state_dir = "{folder}/state"

[policy]
tier_preference = ["local_disk", "dfs", "nof"]
cold_copies = 3
settle_s = 0.5
pass_members_max = 1

[import]
payload_bytes = {payload_bytes}

[[tier]]
name = "memory"
kind = "memory"
path = "{memory}"
[tier.limits]
bandwidth_bytes_per_s = {bandwidth}

[[tier]]
name = "local_disk"
kind = "local_disk"
path = "{folder}/local_disk"
[tier.limits]
bandwidth_bytes_per_s = {bandwidth}

[[tier]]
name = "dfs"
kind = "dfs"
path = "{folder}/dfs"
[tier.limits]
bandwidth_bytes_per_s = {bandwidth}

[[tier]]
name = "nof"
kind = "nof"
path = "{folder}/nof.img"
size_bytes = {device_bytes}
[tier.limits]
bandwidth_bytes_per_s = {bandwidth}
"""


class DemoError(WeightctlError):
    """Something is not as the demo says it should be."""

    reason = "DemoFailed"


class Sandbox:
    """The state directory, its configuration, and the child that runs the loop."""

    def __init__(self, folder: Path, memory: Path, size_bytes: int) -> None:
        self.folder = folder
        self._memory = memory
        self.config = folder / "weightctl.toml"
        self.state_dir = str(folder / "state")
        self._log = folder / "run.log"
        self._child: subprocess.Popen[bytes] | None = None
        self._clock = SystemClock()
        self.starts = 0
        self.config.write_text(
            _CONFIG.format(
                folder=folder,
                memory=memory,
                payload_bytes=max(1024 * 1024, size_bytes // 12),
                bandwidth=BANDWIDTH,
                device_bytes=2 * size_bytes + 256 * 1024**2,
            ),
            encoding="utf-8",
        )

    # --- the child --------------------------------------------------------------------------------

    def start(self) -> None:
        """Start `weightctl run` and wait until it answers.  Raises DemoError."""
        environ = {key: value for key, value in os.environ.items() if key[:10] != "WEIGHTCTL_"}
        command = [sys.executable, "-m", "weightctl.controller.cli.main", "run"]
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [*command, "--config", str(self.config)],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.starts += 1
        self.wait(self._answers, "`weightctl run` did not start", START_S)

    def _answers(self) -> bool:
        if self._child is not None and self._child.poll() is not None:
            raise self._failed(f"`weightctl run` ended with {self._child.returncode}")
        connection = client.connect(self.state_dir)
        if connection is not None:
            connection.close()
        return connection is not None

    def kill(self) -> None:
        """SIGKILL: no handler runs, nothing is flushed."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()

    @contextmanager
    def held_still(self) -> Iterator[None]:
        """The loop does nothing for the length of the block."""
        if self._child is None:
            raise self._failed("`weightctl run` was not started")
        self._child.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._child.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """SIGTERM, and wait for a clean end.  Raises DemoError when it is not clean."""
        if self._child is None:
            return
        self._child.send_signal(signal.SIGTERM)
        code = self._child.wait(START_S)
        if code != 0:
            raise self._failed(f"`weightctl run` ended with {code} after SIGTERM")

    # --- asking -----------------------------------------------------------------------------------

    def ask(
        self,
        verb: str,
        params: Mapping[str, Any],
        emit: Callable[[dict[str, Any]], None] = lambda _: None,
    ) -> dict[str, Any]:
        """One request to the child.  Raises RemoteError for a refusal."""
        connection = client.connect(self.state_dir)
        if connection is None:
            raise self._failed("`weightctl run` does not answer")
        return cast("dict[str, Any]", client.request(connection, verb, params, emit))

    def survey(self, verb: str, params: Mapping[str, Any]) -> doc.Plan:
        """One request to nobody: answered from the records and the tiers as they lie there."""
        from weightctl.controller import wiring

        config = load(environ={}, file=str(self.config))
        survey = unmoved(lambda: run_watched(lambda: wiring.survey(config, verb, params), config))
        return cast("doc.Plan", survey)

    def records(self, identity: Identity) -> tuple[RevisionMetadata, ResidencyOperation | None]:
        """The revision as it is on disk, read beside the child.  Raises KeyError."""

        def read() -> tuple[RevisionMetadata, ResidencyOperation | None]:
            with read_state(self.state_dir) as stored:
                record = stored.state.metadata[identity]
                return record, stored.state.current_operation(record)

        return unmoved(read)

    def wait(self, done: Callable[[], bool], what: str, deadline_s: float) -> None:
        """Look until `done`.  Raises DemoError at the deadline."""
        until_s = self._clock.monotonic_s() + deadline_s
        while not done():
            if self._clock.monotonic_s() > until_s:
                raise self._failed(f"{what} within {deadline_s:g} s")
            time.sleep(LOOK_S)

    def _failed(self, what: str) -> DemoError:
        lines = self._log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
        return DemoError(what, "\n".join(["its last lines:", *lines]), f"see {self._log} (--keep)")

    # --- the end ----------------------------------------------------------------------------------

    def clear(self) -> None:
        """Remove everything."""
        self.kill()
        shutil.rmtree(self._memory, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def sandbox(size_bytes: int, *, keep: bool) -> Iterator[Sandbox]:
    """A sandbox for a model of that size."""
    folder = Path(tempfile.mkdtemp(prefix="weightctl-demo-"))
    made = Sandbox(folder, Path(memory_path(str(folder))), size_bytes)
    try:
        yield made
    finally:
        if keep:
            made.kill()
        else:
            made.clear()
