"""A real Master and real client hosts on this machine, to try things out and for tests.

Layer: a tier; blocking, no part of a running controller.  Everything runs on loopback with free
ports and short leases, in one folder, and is killed at the end.  Invariant: no process outlives
the `cluster` block.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

MIB = 1024 * 1024
LEASE_TTL_S = 0.5
CLUSTER_ID = "weightctl-lab"
HEARTBEAT_S = 1
_POLL_S = 0.05
WAIT_S = 60.0
"""For what has to happen soon, on a machine that may be busy."""

_HOST = """
import json, sys
from mooncake.store import MooncakeDistributedStore
store = MooncakeDistributedStore()
print(json.dumps(store.setup(**json.loads(sys.argv[1]))), flush=True)
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


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


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
        self.name = f"127.0.0.1:{free_port()}"
        self._cluster = cluster
        self._segment_bytes = segment_bytes
        self._offload = offload
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it on its folder, and wait until it is set up."""
        self.folder.mkdir(parents=True, exist_ok=True)
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
        environment = {
            "MOONCAKE_OFFLOAD_STORAGE_BACKEND_DESCRIPTOR": "file_per_key_storage_backend",
            "MOONCAKE_OFFLOAD_HEARTBEAT_INTERVAL_SECONDS": str(HEARTBEAT_S),
            "MOONCAKE_OFFLOAD_LOCAL_BUFFER_SIZE_BYTES": str(256 * MIB),
            "MC_STORE_CLUSTER_ID": CLUSTER_ID,
        }
        self.process = subprocess.Popen(  # noqa: S603 - our own interpreter and text
            [sys.executable, "-c", _HOST, json.dumps(setup)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **environment},
            text=True,
        )
        if _pipes(self.process)[1].readline().strip() != "0":
            raise RuntimeError(f"host {self.name} could not be set up")

    def kill(self) -> None:
        """Kill it; its Master learns that after the client TTL."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in _pipes(process):
                pipe.close()


class Cluster:
    """A Master with hosts; `cluster` starts and ends one."""

    def __init__(self, folder: Path, flags: Sequence[str]) -> None:
        self._folder = folder
        self._flags = flags
        self._rpc, self._metrics = free_port(), free_port()
        self.master = f"127.0.0.1:{self._rpc}"
        self.admin = f"127.0.0.1:{self._metrics}"
        self.hosts: list[Host] = []
        self.process: subprocess.Popen[bytes] | None = None

    def add_host(self, segment_mib: int, *, offload: bool = True) -> None:
        """Start one more host, with a folder of its own."""
        host = Host(self, self._folder / f"host{len(self.hosts)}", segment_mib * MIB, offload)
        self.hosts.append(host)
        host.start()

    def start_master(self) -> None:
        """Start the Master on its ports, and wait until it serves."""
        self.process = self._spawn(self._rpc, self._metrics)
        until("the Master serves", self._serves)

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
            )

    def _serves(self) -> bool:
        if self.process is not None and self.process.poll() is not None:
            raise RuntimeError(f"the Master ended; see {self._folder / 'master.log'}")
        with suppress(OSError):
            return bool(json.loads(self.get("/health"))["service_ready"])
        return False

    def get(self, path: str, *, method: str = "GET") -> str:
        """The body of an answer of the Master's HTTP interface."""
        return self._fetch(self.admin, path, method)

    def _fetch(self, address: str, path: str, method: str) -> str:
        request = urllib.request.Request(f"http://{address}{path}", method=method)
        with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310 - http only
            body: str = response.read().decode()
            return body

    def entry(self, key: str) -> Mapping[str, Any]:
        """What the Master says of one key, asked so that nothing is touched."""
        answer = json.loads(self.get(f"/batch_query_keys?keys={quote(key)}"))
        found: Mapping[str, Mapping[str, Any]] = answer["data"]
        return found[key]

    def empty(self) -> None:
        """Remove every object, whoever has put it, once no host is at work on one."""
        self.settle()
        self.get("/api/v1/remove_all?force=true", method="POST")
        until("every object has gone", lambda: not self.get("/get_all_keys").split())

    def settle(self) -> None:
        """Wait until every object has been offloaded."""
        until("every offload has ended", self._is_quiet)

    def _is_quiet(self) -> bool:
        keys = [key for key in self.get("/get_all_keys").splitlines() if "," not in key]
        if not keys:
            return True
        found = json.loads(self.get("/batch_query_keys?keys=" + ",".join(map(quote, keys))))["data"]
        return all(one["local_disk_values"] for one in found.values() if one["ok"])

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
            host.kill()
        self.stop_master()


@contextmanager
def cluster(
    folder: Path, *flags: str, hosts: int = 2, segment_mib: int = 256, offload: bool = True
) -> Iterator[Cluster]:
    """A cluster that ends with the block; without `offload` its hosts keep nothing on disk."""
    made = Cluster(folder, (f"--enable_offload={str(offload).lower()}", *flags))
    try:
        made.start_master()
        for _ in range(hosts):
            made.add_host(segment_mib, offload=offload)
        yield made
    finally:
        made.close()


class Pair(Cluster):
    """Two Masters that elect a leader through an etcd of their own; `start_master` starts all."""

    def __init__(self, folder: Path, flags: Sequence[str]) -> None:
        super().__init__(folder, flags)
        self._etcd_port = free_port()
        self._etcd: subprocess.Popen[bytes] | None = None
        self._masters: dict[str, subprocess.Popen[bytes]] = {}
        self.master = f"etcd://127.0.0.1:{self._etcd_port}"

    def start_master(self) -> None:
        """Start etcd and two Masters, and wait until one of them serves."""
        client, peer = (f"http://127.0.0.1:{port}" for port in (self._etcd_port, free_port()))
        options = {
            "data-dir": str(self._folder / "etcd"),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
        }
        words = [f"--{name}={value}" for name, value in options.items()]
        with (self._folder / "etcd.log").open("ab") as log:
            self._etcd = subprocess.Popen(  # noqa: S603 - Debian's program, our own options
                ["etcd", *words],  # noqa: S607 - wherever it is installed
                stdout=log,
                stderr=log,
            )
        self._flags = (
            *self._flags,
            "--enable_ha=true",
            f"--etcd_endpoints=127.0.0.1:{self._etcd_port}",
            f"--cluster_id={CLUSTER_ID}",
        )
        for _ in range(2):
            rpc, metrics = free_port(), free_port()
            self._masters[f"127.0.0.1:{metrics}"] = self._spawn(rpc, metrics)
        self.admin = ",".join(self._masters)
        until("one Master serves", lambda: bool(self._leader()))

    def stop_master(self) -> None:
        """SIGKILL the leader."""
        leader = self._leader()
        until("there is a leader to kill", lambda: bool(self._leader()))
        process = self._masters.pop(leader)
        process.kill()
        process.wait()

    def get(self, path: str, *, method: str = "GET") -> str:
        """As `Cluster.get`, from the leader."""
        return self._fetch(self._leader(), path, method)

    def _leader(self) -> str:
        """Metrics address of the Master that serves; empty when none does."""
        for address in self._masters:
            with suppress(OSError):
                if json.loads(self._fetch(address, "/health", "GET"))["service_ready"]:
                    return address
        return ""

    def close(self) -> None:
        """End everything, at once."""
        for host in self.hosts:
            host.kill()
        for process in [*self._masters.values(), *([self._etcd] if self._etcd else [])]:
            process.kill()
            process.wait()


@contextmanager
def pair(folder: Path, *flags: str, hosts: int = 2) -> Iterator[Pair]:
    """Two Masters with hosts that end with the block; needs Debian's etcd-server."""
    made = Pair(folder, ("--enable_offload=true", *flags))
    try:
        made.start_master()
        for _ in range(hosts):
            made.add_host(256)
        yield made
    finally:
        made.close()


def _pipes(process: subprocess.Popen[str]) -> list[IO[str]]:
    return [pipe for pipe in (process.stdin, process.stdout) if pipe is not None]
