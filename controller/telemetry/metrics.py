"""Every metric of the loop, declared in one place.  Layer: telemetry.

Labels are tiers of the configuration and fixed words; never an identity.  Worth an alarm: outcomes
that grow while `Done` does not, a stuck revision, a loop that is not ready, an old drift round.
"""

from collections.abc import Sequence

from weightctl.controller.telemetry.registry import SERIES_MAX, Counter, Gauge, Histogram, Sample

OUTCOMES = (
    "Done",
    "NoOp",
    "Busy",
    "Retry",
    "NoCapacity",
    "Corrupt",
    "Conflict",
    "Fenced",
    "Permanent",
    "Unknown",
)
RESULTS = ("finished", "again", "failed")
AVAILABILITIES = ("IMPORTING", "READY", "DEGRADED", "DELETING", "DELETED")
RESIDENCIES = ("UNKNOWN", "HOT", "COLD", "MIXED", "ABSENT")
CONDITIONS = ("Blocked", "Lost", "Failing", "Stuck")
SERVICES = ("workers", "leases", "unfinished", "drift", "metrics")
SECONDS = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0)


class LoopMetrics:
    """The loop's numbers; all series exist with zero from the start."""

    def __init__(self, tiers: Sequence[str], numbers: Sequence[str] = ()) -> None:
        """`numbers`: names of what tiers tell of their media."""
        tier = {"tier": tuple(tiers)}
        told = tuple(numbers)[: SERIES_MAX // (len(tiers) + 1) - 1]
        self.passes = Counter("weightctl_passes", "passes", "1", {"result": RESULTS})
        self.outcomes = Counter(
            "weightctl_outcomes", "items of primitives by outcome", "1", {"outcome": OUTCOMES}
        )
        self.moved_bytes = Counter("weightctl_moved_bytes", "bytes copied", "By", {})
        self.charged_bytes = Gauge("weightctl_tier_bytes", "bytes through a tier", "By", tier)
        self.expired_leases = Gauge("weightctl_leases_expired", "leases erased when dead", "1", {})
        self.restarts = Gauge(
            "weightctl_service_restarts", "services restarted", "1", {"service": SERVICES}
        )
        self.ready = Gauge("weightctl_ready", "1 while every service runs", "1", {})
        self.tier_problem = Gauge("weightctl_tier_silent", "1 while it does not answer", "1", tier)
        self.medium = Gauge(
            "weightctl_tier_medium", "told of its medium", "1", {**tier, "number": told}
        )
        self.due = Gauge("weightctl_queue_due", "keys that could be worked on now", "1", {})
        self.delayed = Gauge("weightctl_queue_delayed", "keys that wait for a time", "1", {})
        self.active = Gauge("weightctl_queue_active", "keys being worked on", "1", {})
        self.refused = Gauge("weightctl_queue_refused", "adds refused by a full queue", "1", {})
        self.oldest_wait = Gauge("weightctl_queue_oldest_wait", "longest wait", "s", {})
        self.conditions = Gauge(
            "weightctl_conditions", "revisions with a condition", "1", {"type": CONDITIONS}
        )
        self.availability = Gauge(
            "weightctl_availability", "revisions", "1", {"state": AVAILABILITIES}
        )
        self.residency = Gauge("weightctl_residency", "revisions", "1", {"state": RESIDENCIES})
        self.active_leases = Gauge("weightctl_leases", "live leases", "1", {})
        self.pending_operations = Gauge("weightctl_operations", "running operations", "1", {})
        self.oldest_operation = Gauge("weightctl_operation_age", "oldest running", "s", {})
        self.drift_age = Gauge("weightctl_drift_round_age", "since the last drift round", "s", {})
        self.pass_seconds = Histogram("weightctl_pass_duration", "of one pass", "s", SECONDS)

    def samples(self) -> list[Sample]:
        """Every series now."""
        metrics = (value for value in vars(self).values() if isinstance(value, Counter | Histogram))
        return [sample for metric in metrics for sample in metric.samples()]
