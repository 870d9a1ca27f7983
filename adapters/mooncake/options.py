"""Options of the Mooncake tiers.  Layer: a tier; pure.

Invariant: the tiers of one cluster share one connection, so the options of the connection are a
value of their own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weightctl.adapters.shared.options import TierOptions
from weightctl.adapters.shared.ownership import ADOPT
from weightctl.controller.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

MIB = 1024 * 1024
RATE_MIN = 16 * MIB
PARKING_MIN = 16 * MIB
SECONDS_MIN = {"deadline_s": 0.1, "transfer_s": 1.0}
"""Below them nothing can succeed."""
_ADDRESS = re.compile(r"[A-Za-z0-9_.\-]+:\d{1,5}")
ADMIN_PORT = 9003
"""The Masters' own default of `--metrics_port`."""
_PORT_MAX = 65_535
_ETCD = "etcd://"
_CLUSTER = re.compile(r"[A-Za-z0-9_\-]{1,64}")
_FORCE = "force_leased"
"""What operators will look for; see `_no_force`."""
_OPTIONS = (
    "admin", "admin_port", "master", "cluster", "metadata", "protocol", "devices", "hostname",
    "segments", "deadline_s", "transfer_s", "lease_ttl_s", "patience_s", "appear_s",
    "claim_s", "parking_bytes", "verify_bytes_per_s", "capacity_bytes", ADOPT, _FORCE,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """How a Master is reached; what a person may set, and the library that speaks to it."""

    admin: tuple[str, ...]
    """Metrics addresses, host:port, of every Master; empty for that of the one etcd names."""
    admin_port: int = ADMIN_PORT
    """Metrics port of every Master, where `admin` is empty."""
    master: str
    """RPC address, host:port, or etcd://... for a cluster with several Masters."""
    cluster: str = "mooncake"
    """The Master's `cluster_id`; also names the book in the state directory."""
    metadata: str = "P2PHANDSHAKE"
    protocol: str = "tcp"
    devices: str = ""
    hostname: str = "127.0.0.1"
    """Address of this host as the other clients reach it."""
    segments: tuple[str, ...] = ()
    """Segments that new objects are put on, in turn; anywhere when empty."""
    deadline_s: float = 3.0
    """For one HTTP answer and one call of the Master."""
    transfer_s: float = 120.0
    """For one call of the library; a client that needs longer is killed."""
    lease_ttl_s: float = 10.0
    """The Master's `default_kv_lease_ttl`; it cannot be asked."""
    patience_s: float = 0.0
    """How long a drop itself waits for a lease to run out before it says Busy."""
    appear_s: float = 30.0
    """How long a store waits for a replica that Mooncake makes by itself."""
    claim_s: float = 10.0
    """How long a cluster in a new epoch is watched before it is taken: a host brings back whose it
    is with its disk, at its next offload heartbeat."""
    parking_bytes: int = 256 * MIB
    """Size of the passing segment through which replicas of an earlier client are dropped."""
    verify_bytes_per_s: int = 1024 * MIB
    """What may be read to be verified, by all tiers of the connection together."""
    adopt: bool = False
    """Take the cluster over from another store, once."""
    library: str = "mooncake.store"

    @property
    def place(self) -> str:
        """Names the Master, the same for the endpoints of an etcd in any order."""
        if not self.master.startswith(_ETCD):
            return self.master
        return _ETCD + ";".join(sorted(self.master.removeprefix(_ETCD).split(";")))


@dataclass(frozen=True, slots=True, kw_only=True)
class MooncakeOptions:
    """One tier: its kind, its connection, and its declared size where nobody can be asked."""

    kind: str
    connection: ConnectionOptions
    capacity_bytes: int | None = None


def parse(name: str, kind: str, options: Mapping[str, object]) -> MooncakeOptions:
    """Check the options of the tier `name`.  Raises ConfigError."""
    given = TierOptions(name, options, _OPTIONS)
    if given.flag(_FORCE):
        raise _no_force(name)
    cluster = given.text("cluster", "mooncake")
    if not _CLUSTER.fullmatch(cluster):
        raise _refused(name, "cluster", f"{cluster!r} is not a plain word")
    master = given.text("master")
    if not master.startswith(_ETCD):
        _check_address(name, "master", master, "is neither host:port nor etcd://...")
    admin, admin_port = _admin(name, given, options, master)
    connection = ConnectionOptions(
        admin=admin,
        admin_port=admin_port,
        master=master,
        cluster=cluster,
        metadata=given.text("metadata", "P2PHANDSHAKE"),
        protocol=given.text("protocol", "tcp"),
        devices="" if "devices" not in options else given.text("devices"),
        hostname=given.text("hostname", "127.0.0.1"),
        segments=_segments(name, given, options),
        deadline_s=_seconds(name, given, "deadline_s", 3.0),
        transfer_s=_seconds(name, given, "transfer_s", 120.0),
        lease_ttl_s=given.seconds("lease_ttl_s", 10.0),
        patience_s=given.seconds("patience_s", 0.001),
        appear_s=given.seconds("appear_s", 30.0),
        claim_s=given.seconds("claim_s", 10.0),
        parking_bytes=_parking(name, given),
        verify_bytes_per_s=_rate(name, given),
        adopt=given.flag(ADOPT),
    )
    size = given.size_bytes("capacity_bytes")
    if kind in {"mooncake-local-disk", "mooncake-disk"} and size is None:
        raise _refused(name, "capacity_bytes", "the Master does not tell how large its disks are")
    if kind in {"mooncake-memory", "mooncake-nof"} and size is not None:
        raise _refused(name, "capacity_bytes", "this tier's size is what the Master says")
    return MooncakeOptions(kind=kind, connection=connection, capacity_bytes=size)


def _admin(
    name: str, given: TierOptions, options: Mapping[str, object], master: str
) -> tuple[tuple[str, ...], int]:
    """The metrics addresses, none where etcd names the Master, and the port where it does."""
    port = options.get("admin_port", ADMIN_PORT)
    if not isinstance(port, int) or isinstance(port, bool) or not 0 < port <= _PORT_MAX:
        raise _refused(name, "admin_port", f"{port!r} is no port")
    if "admin" not in options:
        if not master.startswith(_ETCD):
            return (f"{master.rpartition(':')[0]}:{port}",), ADMIN_PORT
        for endpoint in master.removeprefix(_ETCD).split(";"):
            told = "is not host:port; etcd://host:port;host:port names several"
            _check_address(name, "master", endpoint, told)
        return (), port
    if "admin_port" in options:
        raise _refused(name, "admin_port", "`admin` says the whole addresses already")
    admin = _split(given.text("admin"))
    for address in admin:
        _check_address(name, "admin", address, "is not host:port")
    if not admin:
        raise _refused(name, "admin", "it names no Master")
    return admin, ADMIN_PORT


def _check_address(name: str, option: str, address: str, told: str) -> None:
    if not _ADDRESS.fullmatch(address):
        raise _refused(name, option, f"{address!r} {told}")
    port = int(address.rpartition(":")[2])
    if not 0 < port <= _PORT_MAX:
        raise _refused(name, option, f"{address!r}: {port} is no port, which is 1 to {_PORT_MAX}")


def _segments(name: str, given: TierOptions, options: Mapping[str, object]) -> tuple[str, ...]:
    if "segments" not in options:
        return ()
    segments = _split(given.text("segments"))
    if not segments:
        raise _refused(name, "segments", "it names no segment: leave it out for any")
    return segments


def _seconds(name: str, given: TierOptions, option: str, default: float) -> float:
    seconds, least = given.seconds(option, default), SECONDS_MIN[option]
    if seconds < least:
        raise _refused(name, option, f"{seconds:g} is less than {least:g}, the least")
    return seconds


def _parking(name: str, given: TierOptions) -> int:
    size = given.size_bytes("parking_bytes") or 256 * MIB
    if size < PARKING_MIN:
        raise _refused(name, "parking_bytes", f"{size} is less than {PARKING_MIN}, the least")
    return size


def _rate(name: str, given: TierOptions) -> int:
    rate = given.size_bytes("verify_bytes_per_s") or 1024 * MIB
    if rate < RATE_MIN:
        why = f"{rate} is less than {RATE_MIN}: what takes longer than its deadline is no answer"
        raise _refused(name, "verify_bytes_per_s", why)
    return rate


def _no_force(name: str) -> ConfigError:
    """No switch for it, however guarded: the client library has no way that spares readers.

    `tests/contract/test_mooncake_force.py` shows what it does, and fails when that has changed.
    """
    return ConfigError(
        f"tier {name!r}: option {_FORCE!r} cannot be used",
        "MissingCapability: when this Mooncake release removes a leased object by force, it gives"
        " its memory away at once, and a reader that holds the lease is told that its read has"
        " succeeded with the bytes of another object",
        "leave it out: a deletion waits for the leases and goes on by itself; stop the readers to"
        " end it sooner",
    )


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _refused(name: str, option: str, why: str) -> ConfigError:
    return ConfigError(
        f"tier {name!r}: option {option!r} cannot be used",
        why,
        "see adapters/mooncake/README.md for the options",
    )
