"""The real command line in real processes, over a state directory of the test's own."""

import atexit
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from tests.support.models import random_tensors, write_model
from weightctl.controller.api import client
from weightctl.controller.api.documents import KINDS
from weightctl.controller.cli.exit_codes import ExitCode

IDENTITY = "prod/model/v1@1"
WEIGHTCTL = (sys.executable, "-m", "weightctl.controller.cli.main")
INTERRUPTIBLE = ("env", "--default-signal=INT")
"""What a shell starts in the background ignores SIGINT, and so would all its children."""
PATIENCE_S = 240.0

TWO_TIERS = ("memory", "local_disk")
FOUR_TIERS = (*TWO_TIERS, "dfs", "nof")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One finished command."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """What it printed with `-o json`, held against its schema."""
        document = json.loads(self.out)
        return dict(checked(document))


def checked(document: Any) -> Any:
    """The document, after it has passed the schema of its kind, unknown fields refused."""
    shape = KINDS[document["kind"]]
    return TypeAdapter(shape, config=None).validate_python(document, strict=True)


class Cli:
    """Runs `weightctl` over `folder`; `tiers` are kinds of tiers, all below `folder`."""

    def __init__(self, folder: Path, tiers: Sequence[str] = TWO_TIERS, extra: str = "") -> None:
        self.folder = folder
        self.state_dir = folder / "state"
        self.config = folder / "weightctl.toml"
        lines = [f'state_dir = "{self.state_dir}"', extra]
        for kind in tiers:
            lines += ["[[tier]]", f'name = "{kind}"', f'kind = "{kind}"']
            lines += [f'path = "{folder / kind}"']
            if kind == "nof":
                lines += ["size_bytes = 67108864"]
        self.config.write_text("\n".join(lines), encoding="utf-8")
        self.model = folder / "model.safetensors"
        write_model(self.model, random_tensors())

    def command(self, *words: str) -> list[str]:
        """The whole command line; Ctrl-C ends it, also below a shell that ignores it."""
        return [*INTERRUPTIBLE, *WEIGHTCTL, *words, "--config", str(self.config)]

    def environ(self) -> dict[str, str]:
        """This process's environment, in which `tests/conftest.py` has left no setting."""
        return dict(os.environ)

    def run(self, *words: str, code: int = 0, **more: Any) -> Ran:
        """Run to the end; fails unless it ends with `code`."""
        done = subprocess.run(
            self.command(*words),
            env=self.environ() | more.pop("env", {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            **more,
        )
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return Ran(code=done.returncode, out=done.stdout, err=done.stderr)

    def json(self, *words: str, code: int = 0) -> dict[str, Any]:
        """Run with `-o json` and give the checked document."""
        return self.run(*words, "-o", "json", code=code).document

    def times_out(self, *words: str, told: str) -> Ran:
        """Wait in vain; longer where a slow machine has not yet found out what is to be `told`."""
        for timeout_s in (0.5, 5.0, 50.0):
            timed = ("--wait", "--timeout", f"{timeout_s}s")
            ran = self.run(*words, *timed, code=ExitCode.TIMEOUT)
            if re.search(told, ran.err):
                return ran
        raise AssertionError(f"nothing was told of {told}")

    def imported(self) -> dict[str, Any]:
        """Import the small model; the import's report."""
        return self.json("import", IDENTITY, str(self.model))

    def ready(self) -> None:
        """Be as after `imported` with two tiers; cheap, it is copied from one real import."""
        for name in ("state", *TWO_TIERS):
            shutil.copytree(_imported_once() / name, self.folder / name)

    @contextmanager
    def running(self, *, may_end: bool = False) -> Iterator[subprocess.Popen[bytes]]:
        """`weightctl run` until the block ends, when it must end cleanly if it still runs.

        may_end: it may end by itself, also before it has answered once.
        """
        with (self.folder / "run.log").open("ab") as log:
            child = subprocess.Popen(
                self.command("run"), env=self.environ(), stdin=subprocess.DEVNULL, stderr=log
            )
        try:
            self.wait_answers(child, may_end=may_end)
            yield child
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
                assert child.wait(PATIENCE_S) == 0, self.log()
        finally:
            child.kill()
            child.wait()

    def wait_answers(self, child: subprocess.Popen[bytes], *, may_end: bool = False) -> None:
        """Wait until the child listens on the control socket."""

        def answers() -> bool:
            if child.poll() is not None:
                assert may_end, self.log()
                return True
            connection = client.connect(str(self.state_dir))
            if connection is not None:
                connection.close()
            return connection is not None

        self.wait(answers, self.log)

    def wait(self, done: Callable[[], bool], why: Callable[[], str]) -> None:
        """Look until `done`; fails with `why` when patience is over."""
        until = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < until, why()
            time.sleep(0.02)

    def log(self) -> str:
        """What `weightctl run` has said."""
        return (self.folder / "run.log").read_text(encoding="utf-8")


@functools.cache
def _imported_once() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="weightctl-test-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    Cli(folder).imported()
    return folder


def tree(folder: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Everything below a folder: mode, owner, change time and content, by path."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (status.st_mode, status.st_ino, status.st_mtime_ns, content)
    return found
