"""The marker of tests that need the wheel; the cluster itself is the adapter's own lab."""

import pytest

from weightctl.adapters.mooncake.lab import LEASE_TTL_S, MIB, Cluster, cluster, until, why_not

needs_wheel = pytest.mark.skipif(bool(reason := why_not()), reason=reason)

__all__ = ["LEASE_TTL_S", "MIB", "Cluster", "cluster", "needs_wheel", "until"]
