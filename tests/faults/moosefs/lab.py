"""MooseFS for tests: started once for a module, ended whatever happens (moosefs_lab.sh).

The laboratory stops when this process ends, however it ends: it waits for the end of its input.
"""

import math
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.mounts import cannot

SCRIPT = Path(__file__).with_name("moosefs_lab.sh")
TOOLS = ("mfsmaster", "mfschunkserver", "mfsmount", "ip", "nsenter")
PATIENCE_S = 240.0
"""Only ends what is hopeless; nothing that must succeed has less time."""
STEADY_S = 3.0
"""What serves for so long after a server was stopped or killed goes on serving."""
STOP, CONT, KILL = "STOP", "CONT", "KILL"
MASTER, CHUNKSERVER, CLIENT = "master", "chunkserver", "mnt"


def missing() -> str:
    """Why the laboratory cannot run here; empty when it can."""
    if os.geteuid() != 0:
        return "MooseFS needs root"
    if not Path("/dev/fuse").exists():
        return "MooseFS needs /dev/fuse"
    for tool in TOOLS:
        if shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
            return f"{tool} is not installed (moosefs-master moosefs-chunkserver moosefs-client)"
    probe = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
    return "" if probe.returncode == 0 else "no network namespace can be made here"


class Lab:
    """One file system; every method blocks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mount = folder / CLIENT
        self._disturbed = True

    def send(self, verb: str, *words: str) -> None:
        """Run a verb of the script."""
        done = subprocess.run(
            [str(SCRIPT), verb, str(self.folder), *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, f"{verb} {words}: {done.stdout}{done.stderr}"

    def freeze(self, server: str) -> None:
        """Stop it where it stands: it keeps its connections and answers nothing."""
        self._disturbed = True
        self.send("signal", server, STOP)

    def thaw(self, server: str) -> None:
        self.send("signal", server, CONT)

    def kill(self, server: str) -> None:
        self._disturbed = True
        self.send("signal", server, KILL)

    def run(self, server: str) -> None:
        """Start a server that has been killed, with what it had on its disk."""
        self.send("run", server)

    def wait_served(self) -> None:
        """Wait until a chunkserver has come back to the master, to stay.

        A master that was stopped says for a moment what it knew before, and only then takes the
        chunkserver for lost that it has not heard of since.
        """
        until_s, since_s = time.monotonic() + PATIENCE_S, math.inf
        steady_s = STEADY_S if self._disturbed else 0.0
        while True:
            now_s = time.monotonic()
            assert now_s < until_s, self.log()
            since_s = min(since_s, now_s) if os.statvfs(self.mount).f_blocks else math.inf
            if now_s - since_s >= steady_s:
                break
            time.sleep(0.05)
        self._disturbed = False

    def quota(self, folder: Path, size: str) -> None:
        """Let no more than that lie in `folder`."""
        self.send("tool", "mfssetquota", "-L", size, str(folder))

    def log(self) -> str:
        """What the servers and the client have said."""
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(f"{path.name}:\n{path.read_text()}" for path in logs)


@contextmanager
def laboratory(folder: Path) -> Iterator[Lab]:
    """Start MooseFS in `folder`, mounted at `folder`/mnt; where that cannot be, `cannot`."""
    if reason := missing():
        cannot(reason)
    lab = Lab(folder)
    command = [str(SCRIPT), "hold", str(folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        try:
            if not holder.stdout.readline():
                cannot(f"MooseFS did not start:\n{lab.log()}")
            yield lab
        finally:
            holder.stdin.close()
            holder.wait(PATIENCE_S)
