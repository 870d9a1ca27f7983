"""`weightctl run` and its verbs while the workers of its dfs tier hang in the kernel.

The order of the tiers makes an import take MooseFS, or, while that is away, the disk.
"""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.moosefs.lab import MASTER, Lab
from tests.support.cli import IDENTITY, PATIENCE_S, Cli
from weightctl.controller.store.lock import holder_of

NEAR = "prod/near/v1@1"
WAITING = ("--wait", "--timeout", "200s")
TIERS = """
[observer]
deadline_s = 1
[resync]
working_s = 1
[[tier]]
name = "memory"
kind = "memory"
path = "{folder}/memory"
[[tier]]
name = "far"
kind = "dfs"
path = "{root}"
deadline_s = 1
[[tier]]
name = "disk"
kind = "local_disk"
path = "{folder}/disk"
"""


@pytest.fixture
def cli(tmp_path: Path, lab: Lab) -> Cli:
    tiers = TIERS.format(folder=tmp_path, root=lab.mount / tmp_path.name)
    return Cli(tmp_path, (), extra=tiers)


@contextmanager
def frozen(lab: Lab, server: str) -> Iterator[None]:
    lab.freeze(server)
    try:
        yield
    finally:
        lab.thaw(server)


def hanging(parent: int) -> set[int]:
    """Workers of that controller that are killed or wait in the kernel and cannot be ended."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            command = (stat.parent / "cmdline").read_bytes()
            state, ppid = stat.read_text().rpartition(")")[2].split()[:2]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(ppid) == parent and state == "D" and (b"worker_main" in command or not command):
            found.add(int(stat.parent.name))
    return found


def still_hangs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state == "D"


def left_hanging(cli: Cli, child: subprocess.Popen[bytes]) -> set[int]:
    """What hangs once the controller has met the fault."""
    cli.wait(lambda: bool(hanging(child.pid)), cli.log)
    return hanging(child.pid)


def everything_answers(cli: Cli) -> None:
    assert cli.json("plan", IDENTITY)["verdict"] in {"waiting", "work"}
    assert len(cli.json("list", "prod/model")["items"]) >= 1
    assert cli.json("get", IDENTITY)["availability"] == "READY"
    assert "far" in cli.run("explain", IDENTITY).out
    assert len(cli.json("tiers")["items"]) == 3
    assert cli.run("doctor", code=1).out


def test_nothing_waits_for_workers_that_hang_and_a_new_controller_starts_beside_them(
    cli: Cli, lab: Lab
) -> None:
    with cli.running() as child:
        cli.imported()
        assert cli.json("evict", IDENTITY, *WAITING)["residency"] == "COLD"
        with frozen(lab, MASTER):
            cli.run("rehydrate", IDENTITY)
            hung = left_hanging(cli, child)
            everything_answers(cli)
            cli.run("import", NEAR, str(cli.model))
            assert cli.json("evict", NEAR, *WAITING)["residency"] == "COLD"
            child.send_signal(signal.SIGTERM)
            assert child.wait(PATIENCE_S) == 0
            assert any(map(still_hangs, hung))
            assert holder_of(cli.state_dir) == 0
            everything_answers(cli)
            with cli.running() as second:
                assert cli.json("rehydrate", NEAR, *WAITING)["residency"] == "HOT"
                second.kill()
                second.wait()
            with cli.running():
                cli.run("load", NEAR, str(cli.folder / "near"))
        with cli.running():
            assert cli.json("rehydrate", IDENTITY, *WAITING)["residency"] == "HOT"
            cli.run("load", IDENTITY, str(cli.folder / "far"))
            assert cli.json("delete", IDENTITY, "--yes", *WAITING)["availability"] == "DELETED"
