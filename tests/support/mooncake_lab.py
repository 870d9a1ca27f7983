"""The marker of tests that need the wheel; the cluster itself is the adapter's own lab."""

import pytest

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

needs_wheel = pytest.mark.skipif(bool(reason := why_not()), reason=reason)

__all__ = [
    "CLUSTER_ID",
    "LEASE_TTL_S",
    "MIB",
    "Cluster",
    "Pair",
    "cluster",
    "needs_wheel",
    "pair",
    "until",
]
