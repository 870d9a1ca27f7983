"""What tests of a real Mooncake need; the cluster itself is the adapter's own lab.

`needs_wheel` marks them. Where no Master can be started they are skipped with the reason, and fail
in CI (see `require_wheel`, which tests/conftest.py calls).
"""

import itertools
import shutil
import subprocess
import sys
from contextlib import suppress
from functools import cache

import pytest

from tests.support.mounts import cannot
from weightctl.adapters.mooncake.lab.cluster import (
    CLUSTER_ID,
    HEARTBEAT_S,
    LEASE_TTL_S,
    MIB,
    Cluster,
    cluster,
    until,
    why_not,
)
from weightctl.adapters.mooncake.lab.pair import Pair, pair

PATIENT = "--client_ttl=120"
"""A Master or a host that is held up does not lose what is in memory."""
SOON_MISSED = "--client_ttl=10"
"""A dead host is forgotten soon, and one that a busy machine holds up is not."""
SOON_DISCARDED = ("--put_start_discard_timeout_sec=2", "--put_start_release_timeout_sec=12")
"""What a dead client began may be begun anew soon; a slow one has longer to end it."""
SUITE_FLAGS = (PATIENT, *SOON_DISCARDED)
needs_wheel = pytest.mark.mooncake

_PUT = """
import sys
from mooncake.store import MooncakeDistributedStore
store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 32 << 20, "tcp", "", sys.argv[1]) == 0
assert store.put(sys.argv[2], b"probe") == 0
store.close()
"""
_PROBE_S = 3 * HEARTBEAT_S
_why_not = cache(why_not)


def require_wheel() -> None:
    """Skip, or fail in CI, where the wheel is missing or cannot be loaded."""
    if reason := _why_not():
        cannot(reason)


def require_etcd() -> None:
    """Skip, or fail in CI, where two Masters cannot elect a leader."""
    if shutil.which("etcd") is None:
        cannot("Debian's etcd-server is not installed")


def await_offloads(real: Cluster) -> None:
    """Wait until what is put is offloaded again, after a host or the Master was started.

    A host tells of its memory before it tells of its disk: a put in between is never offloaded.
    """
    numbers = itertools.count()

    def offloads() -> bool:
        key = f"probe-{next(numbers)}"
        command = [sys.executable, "-c", _PUT, real.master, key]
        subprocess.run(command, check=False, capture_output=True)
        with suppress(TimeoutError):
            until("it is offloaded", lambda: bool(real.entry(key)["local_disk_values"]), _PROBE_S)
            return True
        return False

    until("something is offloaded", offloads)


__all__ = [
    "CLUSTER_ID",
    "LEASE_TTL_S",
    "MIB",
    "PATIENT",
    "SOON_DISCARDED",
    "SOON_MISSED",
    "SUITE_FLAGS",
    "Cluster",
    "Pair",
    "await_offloads",
    "cluster",
    "needs_wheel",
    "pair",
    "require_etcd",
    "require_wheel",
    "until",
]
