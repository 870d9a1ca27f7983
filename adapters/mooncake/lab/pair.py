"""Two real Masters with an etcd of their own, for tests of a failover.

Layer: a tier; blocking, no part of a running controller.  Invariant: as of `lab`.
"""

from __future__ import annotations

import json
import subprocess
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from weightctl.adapters.mooncake.lab.cluster import CLUSTER_ID, NO_ANSWER, STARTS, Cluster, until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


class Pair(Cluster):
    """Two Masters that elect a leader through an etcd of their own; `start_master` starts all.

    A leader that is held up for five seconds loses the lead, which no option changes: on a busy
    machine there may be more failovers than were asked for.
    """

    def __init__(self, folder: Path, flags: Sequence[str]) -> None:
        super().__init__(folder, flags)
        self._etcd: subprocess.Popen[bytes] | None = None
        self._masters: dict[str, subprocess.Popen[bytes]] = {}

    def start_master(self) -> None:
        """Start etcd and two Masters, and wait until one of them serves."""
        endpoint = self._start_etcd()
        self.master = f"etcd://{endpoint}"
        self._flags = (
            *self._flags,
            "--enable_ha=true",
            f"--etcd_endpoints={endpoint}",
            f"--cluster_id={CLUSTER_ID}",
        )
        for _ in range(2):
            self._start_one()
        self.admin = ",".join(self._masters)
        until("one Master serves", lambda: bool(self._leader()))

    def _start_etcd(self) -> str:
        """Start etcd with an empty folder; its address."""
        for number in range(STARTS):
            endpoint = f"127.0.0.1:{self.ports.draw()}"
            peer = f"http://127.0.0.1:{self.ports.draw()}"
            options = {
                "data-dir": str(self._folder / f"etcd{number}"),
                "listen-client-urls": f"http://{endpoint}",
                "advertise-client-urls": f"http://{endpoint}",
                "listen-peer-urls": peer,
                "initial-advertise-peer-urls": peer,
                "initial-cluster": f"default={peer}",
            }
            words = [f"--{name}={value}" for name, value in options.items()]
            with (self._folder / "etcd.log").open("ab") as log:
                self._etcd = started = subprocess.Popen(  # noqa: S603 - Debian's, our own options
                    ["etcd", *words],  # noqa: S607 - wherever it is installed
                    stdout=log,
                    stderr=log,
                    process_group=self.leash.group,
                )
            until("etcd answers or has ended", lambda: self._up(started, endpoint))  # noqa: B023
            if started.poll() is None:
                return endpoint
        raise RuntimeError(f"etcd ended; see {self._folder / 'etcd.log'}")

    def _start_one(self) -> None:
        for _ in range(STARTS):
            rpc, metrics = self.ports.draw(), self.ports.draw()
            address = f"127.0.0.1:{metrics}"
            self._masters[address] = started = self._spawn(rpc, metrics)
            until("a Master answers or has ended", lambda: self._up(started, address))  # noqa: B023
            if started.poll() is None:
                return
            del self._masters[address]
        raise RuntimeError(f"a Master ended; see {self._folder / 'master.log'}")

    def _up(self, process: subprocess.Popen[bytes], address: str) -> bool:
        if process.poll() is not None:
            return True
        with suppress(*NO_ANSWER):
            return bool(self.fetch(address, "/health"))
        return False

    def stop_master(self) -> None:
        """SIGKILL the leader."""
        process = self._masters.pop(self._led())
        process.kill()
        process.wait()

    def get(self, path: str, *, method: str = "GET") -> str:
        """As `Cluster.get`, from the leader."""
        return self.fetch(self._led(), path, method)

    def _led(self) -> str:
        """Metrics address of the Master that serves, as soon as one does."""
        leader = ""

        def serves() -> bool:
            nonlocal leader
            leader = self._leader()
            return bool(leader)

        until("one Master serves", serves)
        return leader

    def _leader(self) -> str:
        """Metrics address of the Master that serves; empty when none does."""
        for address in self._masters:
            with suppress(*NO_ANSWER):
                if json.loads(self.fetch(address, "/health"))["service_ready"]:
                    return address
        return ""

    def close(self) -> None:
        """End everything, at once."""
        for host in self.hosts:
            host.close()
        for process in [*self._masters.values(), *([self._etcd] if self._etcd else [])]:
            process.kill()
            process.wait()
        self.leash.close()
        self.ports.close()

    def health(self) -> dict[str, dict[str, Any]]:
        """What each Master says of itself, by its metrics address."""
        return {address: json.loads(self.fetch(address, "/health")) for address in self._masters}


@contextmanager
def pair(folder: Path, *flags: str, hosts: int = 2) -> Iterator[Pair]:
    """Two Masters with hosts that end with the block; needs Debian's etcd-server."""
    with closing(Pair(folder, ("--enable_offload=true", *flags))) as made:
        made.start_master()
        for _ in range(hosts):
            made.add_host(256)
        yield made
