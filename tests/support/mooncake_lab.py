"""A real Master and real client hosts on this machine, for tests that need the wheel.

Everything runs on loopback with free ports, in a folder of the test, and ends with it.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import pytest

MIB = 1024 * 1024
LEASE_TTL_S = 0.5
HEARTBEAT_S = 1
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


needs_wheel = pytest.mark.skipif(bool(reason := why_not()), reason=reason)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def until(what: str, holds: Callable[[], bool], wait_s: float = WAIT_S) -> None:
    """Poll until something holds; fails the test when it does not for long."""
    end = time.monotonic() + wait_s
    while not holds():
        if time.monotonic() > end:
            pytest.fail(f"not within {wait_s:g} s: {what}")
        time.sleep(0.05)


class Host:
    """One client host: a segment of memory and a folder for offloaded objects."""

    def __init__(self, cluster: "Cluster", folder: Path, segment_bytes: int) -> None:
        self.folder = folder
        self.name = f"127.0.0.1:{free_port()}"
        self._cluster = cluster
        self._segment_bytes = segment_bytes
        self.process: subprocess.Popen[str]
        self.start()

    def start(self) -> None:
        """Start it on its folder, and wait until it is set up."""
        self.folder.mkdir(parents=True, exist_ok=True)
        setup = {
            "local_hostname": self.name,
            "metadata_server": "P2PHANDSHAKE",
            "global_segment_size": self._segment_bytes,
            "local_buffer_size": 32 * MIB,
            "protocol": "tcp",
            "rdma_devices": "",
            "master_server_addr": self._cluster.master,
            "enable_ssd_offload": True,
            "ssd_offload_path": str(self.folder),
        }
        environment = {
            "MOONCAKE_OFFLOAD_STORAGE_BACKEND_DESCRIPTOR": "file_per_key_storage_backend",
            "MOONCAKE_OFFLOAD_HEARTBEAT_INTERVAL_SECONDS": str(HEARTBEAT_S),
            "MOONCAKE_OFFLOAD_LOCAL_BUFFER_SIZE_BYTES": str(64 * MIB),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", _HOST, json.dumps(setup)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **environment},
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == "0"

    def kill(self) -> None:
        """Kill it; its Master learns that after the client TTL."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


class Cluster:
    """A Master with hosts."""

    def __init__(self, folder: Path, *flags: str, hosts: int = 2, segment_mib: int = 256) -> None:
        self._folder = folder
        self._flags = flags
        self._rpc, self._metrics = free_port(), free_port()
        self.master = f"127.0.0.1:{self._rpc}"
        self.admin = f"127.0.0.1:{self._metrics}"
        self.process: subprocess.Popen[bytes]
        self.start_master()
        self.hosts = [
            Host(self, folder / f"host{number}", segment_mib * MIB) for number in range(hosts)
        ]

    def start_master(self) -> None:
        """Start the Master on its ports, and wait until it serves."""
        folder = package()
        assert folder is not None
        flags = [
            "--rpc_address=127.0.0.1",
            f"--rpc_port={self._rpc}",
            "--metrics_host=127.0.0.1",
            f"--metrics_port={self._metrics}",
            f"--default_kv_lease_ttl={int(LEASE_TTL_S * 1000)}",
            "--enable_offload=true",
            "--promotion_on_hit=true",
            "--promotion_admission_threshold=1",
            "--promotion_max_per_heartbeat=64",
            "--logtostderr=1",
            *self._flags,
        ]
        with (self._folder / "master.log").open("ab") as log:
            self.process = subprocess.Popen(
                [str(folder / "mooncake_master"), *flags],
                stdout=log,
                stderr=log,
                cwd=self._folder,
            )
        until("the Master serves", self._serves)

    def _serves(self) -> bool:
        assert self.process.poll() is None, "the Master ended; see master.log"
        with suppress(OSError):
            return bool(json.loads(self.get("/health"))["service_ready"])
        return False

    def get(self, path: str, *, method: str = "GET") -> str:
        """The body of an answer of the Master's HTTP interface."""
        request = urllib.request.Request(f"http://{self.admin}{path}", method=method)
        with urllib.request.urlopen(request, timeout=10) as response:
            body: str = response.read().decode()
            return body

    def entry(self, key: str) -> Mapping[str, object]:
        """What the Master says of one key, asked so that nothing is touched."""
        found: Mapping[str, object] = json.loads(self.get(f"/batch_query_keys?keys={quote(key)}"))[
            "data"
        ]
        entry = found[key]
        assert isinstance(entry, dict)
        return entry

    def empty(self) -> None:
        """Remove every object, whoever has put it, once no host is at work on one."""
        until("every offload has ended", self._is_quiet)
        self.get("/api/v1/remove_all?force=true", method="POST")
        until("every object has gone", lambda: not self.get("/get_all_keys").split())

    def _is_quiet(self) -> bool:
        keys = [key for key in self.get("/get_all_keys").splitlines() if "," not in key]
        if not keys:
            return True
        found = json.loads(self.get("/batch_query_keys?keys=" + ",".join(map(quote, keys))))["data"]
        return all(one["local_disk_values"] for one in found.values() if one["ok"])

    def stop_master(self) -> None:
        """SIGKILL, as a crash."""
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        """SIGSTOP: the Master's connections stay and nothing is answered."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Undo `freeze`."""
        self.process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End everything, at once."""
        for host in self.hosts:
            host.kill()
        self.stop_master()


@contextmanager
def cluster(folder: Path, *flags: str, hosts: int = 2, segment_mib: int = 256) -> Iterator[Cluster]:
    """A cluster that ends with the block."""
    made = Cluster(folder, *flags, hosts=hosts, segment_mib=segment_mib)
    try:
        yield made
    finally:
        made.close()
