"""What tests of a real Mooncake need; the cluster itself is the adapter's own lab.

`needs_wheel` marks them. Where no Master can be started they are skipped with the reason, and fail
in CI (see `require_wheel`, which tests/conftest.py calls).
"""

import shutil
from functools import cache

import pytest

from tests.support.mounts import cannot
from weightctl.adapters.mooncake.lab import (
    CLUSTER_ID,
    LEASE_TTL_S,
    MIB,
    Cluster,
    Pair,
    cluster,
    pair,
    until,
    why_not,
)

# A frozen Master must not lose its hosts, and what a dead client began must go soon.
SUITE_FLAGS = (
    "--client_ttl=120",
    "--put_start_discard_timeout_sec=2",
    "--put_start_release_timeout_sec=4",
)
needs_wheel = pytest.mark.mooncake
_why_not = cache(why_not)


def require_wheel() -> None:
    """Skip, or fail in CI, where the wheel is missing or cannot be loaded."""
    if reason := _why_not():
        cannot(reason)


def require_etcd() -> None:
    """Skip, or fail in CI, where two Masters cannot elect a leader."""
    if shutil.which("etcd") is None:
        cannot("Debian's etcd-server is not installed")


__all__ = [
    "CLUSTER_ID",
    "LEASE_TTL_S",
    "MIB",
    "SUITE_FLAGS",
    "Cluster",
    "Pair",
    "cluster",
    "needs_wheel",
    "pair",
    "require_etcd",
    "require_wheel",
    "until",
]
