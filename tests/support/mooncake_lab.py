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
    cluster,
    until,
    why_not,
)
from weightctl.adapters.mooncake.lab_pair import Pair, pair

PATIENT = "--client_ttl=120"
"""A Master or a host that is held up does not lose what is in memory."""
SOON_DISCARDED = ("--put_start_discard_timeout_sec=2", "--put_start_release_timeout_sec=12")
"""What a dead client began may be begun anew soon; a slow one has longer to end it."""
SUITE_FLAGS = (PATIENT, *SOON_DISCARDED)
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
    "PATIENT",
    "SOON_DISCARDED",
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
