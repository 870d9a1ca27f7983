"""A real Master and real client hosts on this machine, to try things out and for tests.

Layer: a tier; blocking, no part of a running controller.  Everything runs on loopback with free
ports and short leases, in one folder, and is killed at the end.  A port may be taken between its
choice and its use, so what cannot be started is started again, on others where it had none before.
Invariant: no process outlives the `cluster` block, or who has entered it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import closing, contextmanager, suppress
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote

from weightctl.adapters.mooncake.lab.leash import Leash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

MIB = 1024 * 1024
LEASE_TTL_S = 0.5
CLUSTER_ID = "weightctl-lab"
HEARTBEAT_S = 1
_POLL_S = 0.05
WAIT_S = 180.0
"""For what has to happen soon, on a machine that may be busy."""
ANSWER_S = 60.0
"""For one answer of a Master that is not known to hang."""
PORTS = range(20_000, 32_000)
"""Below those that systems give out by themselves, beside those that Mooncake's clients choose."""
NO_ANSWER = (OSError, HTTPException)
"""Of a Master that is not up yet, or not any more."""
STARTS = 5

_HOST = """
import json, sys
from mooncake.store import MooncakeDistributedStore
store = MooncakeDistributedStore()
print("loaded", flush=True)
print(json.dumps(store.setup(**json.loads(sys.stdin.readline()))), flush=True)
sys.stdin.read()
store.close()
"""


def package() -> Path | None:
    """The folder of the wheel's package, or None when it is not installed."""
    found = find_spec("mooncake")
    if found is None or not found.submodule_search_locations:
        return None
    return Path(next(iter(found.submodule_search_locations)))


def why_not() -> str:
    """Why there can be no real cluster here; empty when there can."""
    folder = package()
    if folder is None:
        return "the Mooncake wheel is not installed: see adapters/mooncake/README.md"
    asked = subprocess.run(
        [sys.executable, "-c", "import mooncake.store"], capture_output=True, text=True, check=False
    )
    if asked.returncode:
        last = asked.stderr.strip().splitlines()[-1:]
        return f"the Mooncake wheel cannot be loaded: {' '.join(last)}"
    return ""


class Ports:
    """Ports that nobody uses now, and nobody else who asks in this way gets until the end."""

    def __init__(self) -> None:
        self._kept: list[socket.socket] = []

    def draw(self) -> int:
        """One port.  Raises OSError when none can be had."""
        first = os.getpid() * 101  # processes that begin together begin apart
        for number in range(len(PORTS)):
            port = PORTS[(first + number) % len(PORTS)]
            # A datagram port of the same number keeps it; nothing here uses those.
            kept = socket.socket(type=socket.SOCK_DGRAM)
            try:
                kept.bind(("127.0.0.1", port))
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
            except OSError:
                kept.close()
                continue
            self._kept.append(kept)
            return port
        raise OSError(f"none of the ports {PORTS.start} to {PORTS.stop} is free")

    def close(self) -> None:
        """Give all of them back."""
        for kept in self._kept:
            kept.close()


def until(what: str, holds: Callable[[], bool], wait_s: float = WAIT_S) -> None:
    """Poll until something holds.  Raises TimeoutError when it does not for long."""
    for _ in range(int(wait_s / _POLL_S)):
        if holds():
            return
        time.sleep(_POLL_S)
    raise TimeoutError(f"not within {wait_s:g} s: {what}")


class Host:
    """One client host: a segment of memory and a folder for offloaded objects."""

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        segment_bytes: int,
        offload: bool,  # noqa: FBT001
    ) -> None:
        self.folder = folder
        self.name = f"127.0.0.1:{cluster.ports.draw()}"
        self._cluster = cluster
        self._segment_bytes = segment_bytes
        self._offload = offload
        self.process: subprocess.Popen[str] | None = None
        self._spare: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it on its folder, and wait until it is set up."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for _ in range(STARTS):  # the client draws ports of its own, which may be taken
            self.process, self._spare = self._spare or self._loaded(), None
            asked, _ = _pipes(self.process)
            asked.write(json.dumps(self._setup()) + "\n")
            asked.flush()
            if _line(self.process) == "0":
                return
            self.kill()
        raise RuntimeError(f"host {self.name} could not be set up in {STARTS} tries")

    def prepare(self) -> None:
        """Let the next start take only as long as the set-up itself."""
        self._spare = self._loaded()

    def _loaded(self) -> subprocess.Popen[str]:
        """A process that waits to be set up."""
        environment = {
            "MOONCAKE_OFFLOAD_STORAGE_BACKEND_DESCRIPTOR": "file_per_key_storage_backend",
            "MOONCAKE_OFFLOAD_HEARTBEAT_INTERVAL_SECONDS": str(HEARTBEAT_S),
            "MOONCAKE_OFFLOAD_LOCAL_BUFFER_SIZE_BYTES": str(256 * MIB),
            "MC_STORE_CLUSTER_ID": CLUSTER_ID,
        }
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and text
            [sys.executable, "-c", _HOST],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **environment},
            text=True,
            process_group=self._cluster.leash.group,
        )
        if _line(process) != "loaded":
            _end(process)
            raise RuntimeError(why_not() or f"host {self.name} could not be started")
        return process

    def _setup(self) -> dict[str, object]:
        setup: dict[str, object] = {
            "local_hostname": self.name,
            "metadata_server": "P2PHANDSHAKE",
            "global_segment_size": self._segment_bytes,
            "local_buffer_size": 32 * MIB,
            "protocol": "tcp",
            "rdma_devices": "",
            "master_server_addr": self._cluster.master,
        }
        if self._offload:
            setup |= {"enable_ssd_offload": True, "ssd_offload_path": str(self.folder)}
        return setup

    def kill(self) -> None:
        """Kill it; its Master learns that after the client TTL."""
        process, self.process = self.process, None
        if process is not None:
            _end(process)

    def close(self) -> None:
        """End it for good."""
        self.kill()
        if self._spare is not None:
            _end(self._spare)


class Cluster:
    """A Master with hosts; `cluster` starts and ends one."""

    def __init__(self, folder: Path, flags: Sequence[str]) -> None:
        self._folder = folder
        self._flags = flags
        self.ports = Ports()
        self._rpc, self._metrics = self.ports.draw(), self.ports.draw()
        self.master = f"127.0.0.1:{self._rpc}"
        self.admin = f"127.0.0.1:{self._metrics}"
        self.hosts: list[Host] = []
        self.process: subprocess.Popen[bytes] | None = None
        self.leash = Leash()

    def add_host(self, segment_mib: int, *, offload: bool = True) -> None:
        """Start one more host, with a folder of its own."""
        host = Host(self, self._folder / f"host{len(self.hosts)}", segment_mib * MIB, offload)
        self.hosts.append(host)
        host.start()

    def start_master(self) -> None:
        """Start the Master on its ports, and wait until it serves.

        They are its own from then on: its hosts and clients know them.
        """
        for _ in range(STARTS):
            self.process = self._spawn(self._rpc, self._metrics)
            until("the Master serves or has ended", self._serves_or_ended)
            if self.process.poll() is None:
                return
            time.sleep(HEARTBEAT_S)  # who has taken a port may give it back
        raise RuntimeError(f"the Master ended; see {self._folder / 'master.log'}")

    def _spawn(self, rpc: int, metrics: int) -> subprocess.Popen[bytes]:
        folder = package()
        if folder is None:
            raise RuntimeError(why_not())
        flags = [
            "--rpc_address=127.0.0.1",
            f"--rpc_port={rpc}",
            "--metrics_host=127.0.0.1",
            f"--metrics_port={metrics}",
            f"--default_kv_lease_ttl={int(LEASE_TTL_S * 1000)}",
            "--promotion_on_hit=true",
            "--promotion_admission_threshold=1",
            "--promotion_max_per_heartbeat=64",
            "--logtostderr=1",
            *self._flags,
        ]
        with (self._folder / "master.log").open("ab") as log:
            return subprocess.Popen(  # noqa: S603 - the wheel's own program
                [str(folder / "mooncake_master"), *flags],
                stdout=log,
                stderr=log,
                cwd=self._folder,
                process_group=self.leash.group,
            )

    def _serves_or_ended(self) -> bool:
        if self.process is None or self.process.poll() is not None:
            return True
        with suppress(*NO_ANSWER):
            return bool(json.loads(self.get("/health"))["service_ready"])
        return False

    def get(self, path: str, *, method: str = "GET") -> str:
        """The body of an answer of the Master's HTTP interface."""
        return self.fetch(self.admin, path, method)

    def fetch(self, address: str, path: str, method: str = "GET") -> str:
        """As `get`, from the Master with that metrics address."""
        request = urllib.request.Request(f"http://{address}{path}", method=method)
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:  # noqa: S310 - http only
            body: str = answer.read().decode()
            return body

    def entry(self, key: str) -> Mapping[str, Any]:
        """What the Master says of one key, asked so that nothing is touched."""
        answer = json.loads(self.get(f"/batch_query_keys?keys={quote(key)}"))
        found: Mapping[str, Mapping[str, Any]] = answer["data"]
        return found[key]

    def empty(self) -> None:
        """Remove every object, whoever has put it, once no host is at work on one."""
        self.settle()
        self.remove_all()

    def used_bytes(self) -> int:
        """What all objects take of the hosts' memory.

        That of one which was begun, and put anew meanwhile, is listed no more and taken until the
        Master releases it (`--put_start_release_timeout_sec`).
        """
        segments = json.loads(self.get("/get_segments_detail"))["segments"]
        return sum(one["allocator_used_bytes"] for one in segments)

    def remove_all(self) -> None:
        """Remove every object, also what a client began and did not end: that may take a while.

        Such an object stays until its Master releases it (`--put_start_release_timeout_sec`).
        """

        def gone() -> bool:
            self.get("/api/v1/remove_all?force=true", method="POST")
            return not self.get("/get_all_keys").split()

        until("every object has gone", gone)

    def settle(self) -> None:
        """Wait until every object has been offloaded."""
        until("every offload has ended", self._is_quiet)

    def _is_quiet(self) -> bool:
        keys = [key for key in self.get("/get_all_keys").splitlines() if "," not in key]
        if not keys:
            return True
        found = json.loads(self.get("/batch_query_keys?keys=" + ",".join(map(quote, keys))))["data"]
        return all(
            one["local_disk_values"] or one["disk_values"] for one in found.values() if one["ok"]
        )

    def stop_master(self) -> None:
        """SIGKILL, as a crash."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()

    def freeze(self) -> None:
        """SIGSTOP: the Master's connections stay and nothing is answered."""
        self._signal(signal.SIGSTOP)
        if self.process is not None:  # until then a thread of it may still answer
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def thaw(self) -> None:
        """Undo `freeze`."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(number)

    def close(self) -> None:
        """End everything, at once."""
        for host in self.hosts:
            host.close()
        self.stop_master()
        self.leash.close()
        self.ports.close()


@contextmanager
def cluster(
    folder: Path, *flags: str, hosts: int = 2, segment_mib: int = 256, offload: bool = True
) -> Iterator[Cluster]:
    """A cluster that ends with the block; without `offload` its hosts keep nothing on disk."""
    with closing(Cluster(folder, (f"--enable_offload={str(offload).lower()}", *flags))) as made:
        made.start_master()
        for _ in range(hosts):
            made.add_host(segment_mib, offload=offload)
        yield made


def _pipes(process: subprocess.Popen[str]) -> list[IO[str]]:
    return [pipe for pipe in (process.stdin, process.stdout) if pipe is not None]


def _line(process: subprocess.Popen[str]) -> str:
    """The one line that is to come next; empty when none does."""
    answers = _pipes(process)[1]
    came, _, _ = select.select([answers], [], [], WAIT_S)
    return answers.readline().strip() if came else ""


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for pipe in _pipes(process):
        with suppress(OSError):  # what it was still to be told
            pipe.close()
