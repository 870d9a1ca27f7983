"""Policy and bounds of the simulated loop: small, so that a small world reaches them all."""

from weightctl.controller.core.backoff import Backoff
from weightctl.controller.core.policy import Policy
from weightctl.controller.runtime.admission import TierLimits
from weightctl.controller.runtime.observer import ObserverOptions
from weightctl.controller.runtime.settings import ExecutorOptions, ResyncOptions, RuntimeSettings
from weightctl.controller.runtime.workqueue import QueueOptions


def policy_of(cold_copies: int, pass_bytes_max: int) -> Policy:
    """What the operator of a simulated world wants."""
    return Policy(
        cold_copies=cold_copies,
        evidence_max_age_s=25.0,
        settle_s=4.0,
        mass_change_share=0.4,
        import_abandon_ms=40_000,
        pass_members_max=3,
        pass_bytes_max=pass_bytes_max,
    )


def settings_of(concurrency: int) -> RuntimeSettings:
    """The loop's bounds."""
    return RuntimeSettings(
        slots=3,
        queue=QueueOptions(backoff=Backoff(base_s=0.2, max_s=8.0)),
        observer=ObserverOptions(deadline_s=2.0, capacity_age_s=0.5),
        executor=ExecutorOptions(
            batch_members_max=2, batches_at_once=2, deadline_s=6.0, slowest_bytes_per_s=1e9
        ),
        resync=ResyncOptions(working_s=10.0, published_s=20.0, leases_s=3.0, chunk=2),
        tiers={
            name: TierLimits(concurrency=concurrency) for name in ("mem", "disk", "far", "pool")
        },
        wait_max_s=20.0,
        park_s=20.0,
        stuck_after_s=60.0,
        drain_s=5.0,
    )


PARKED_ROUNDS = 2
SILENCE_S = 90.0
"""The longest pause that a silent tier is given, and the round in which it is asked again."""
LEASE_S = 25.0
"""The longest lease of a simulated reader, and its erasure."""
UNIT_S = 3.0
"""For one unit of what is left to do: a few calls that take long, and the round that follows."""
QUIET_ROUNDS = 3


def liveness_s(policy: Policy, settings: RuntimeSettings, left: int) -> float:
    """Within how long everything is at rest after the last fault, when `left` units are to do.

    Each of the waits that a plan may name, one after the other, and then the work itself.
    """
    resync, backoff = settings.resync, settings.queue.backoff
    waits_s = (
        SILENCE_S,
        LEASE_S,
        policy.import_abandon_ms / 1000,
        2 * policy.settle_s,
        policy.evidence_max_age_s,
        settings.wait_max_s,
        PARKED_ROUNDS * settings.park_s,
        resync.working_s,
        2 * resync.published_s,
        2 * backoff.max_s,  # of the queue, and of a revision that was set back
    )
    return sum(waits_s) + UNIT_S * left


def rest_s(settings: RuntimeSettings) -> float:
    """How long nothing may be written then."""
    return QUIET_ROUNDS * settings.resync.published_s
