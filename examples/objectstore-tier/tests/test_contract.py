"""The contract of every tier, on this one."""

import os

from buckets import BucketHarness

from weightctl.adapters.conformance.suite.tier_suite import TierSuite


class TestObjectStore(TierSuite):
    harness_type = BucketHarness
    listed = 1001 if "EXTENDED" in os.environ else 40
    awaits = 12 if "EXTENDED" in os.environ else 4
    cycles = 1000 if "EXTENDED" in os.environ else 40  # a request to moto costs milliseconds
