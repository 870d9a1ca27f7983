"""What holds a revision now, and until when.  Layer: api.

From the record, its leases and the policy alone; a plan, where one was made, adds what the tiers
say.  Pure: `now_ms` is wall-clock milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weightctl.controller.api import views
from weightctl.controller.core.plan import Reason
from weightctl.controller.core.queries import get_revision
from weightctl.controller.core.records import Availability, Operation
from weightctl.controller.errors import WeightError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weightctl.controller.api import documents as doc
    from weightctl.controller.core.damage import DamagedReplica
    from weightctl.controller.core.identity import Identity
    from weightctl.controller.core.plan import Plan
    from weightctl.controller.core.policy import Policy
    from weightctl.controller.core.records import RevisionMetadata
    from weightctl.controller.core.state import WeightState
    from weightctl.controller.runtime.conditions import Condition

NOBODY = "no controller runs: start `weightctl run`, or repeat the verb with --wait"
_VERBS = {
    Operation.EVICTING: "evict",
    Operation.REHYDRATING: "rehydrate",
    Operation.REPAIRING: "repair",
}
_SUMMARIES = {
    Availability.IMPORTING: "it is being imported and cannot be read yet",
    Availability.READY: "it is complete and readable",
    Availability.DEGRADED: "it is published, but not every member is readable",
    Availability.DELETING: "it is being deleted",
    Availability.DELETED: "it is a tombstone: deleted, and its name is never used again",
}


def explain(
    state: WeightState,
    identity: Identity,
    policy: Policy,
    *,
    now_ms: int,
    damage: Iterable[DamagedReplica] = (),
    rounds: Sequence[Plan] = (),
    attended: bool = True,
    unreadable: Sequence[str] = (),
    failing: Condition | None = None,
    import_idle_ms: int | None = None,
) -> doc.Explanation:
    """Every hold, the record's first.  Raises NOT_FOUND.

    `rounds`: the plan for now and those that would follow, where the tiers were asked; `attended`:
    some process carries out what is recorded; `unreadable`: members that no tier has any more;
    `failing`: what the last pass met, and `import_idle_ms`: how long it has not heard of the writer
    of an import, where a loop runs.
    """
    record = get_revision(state, identity=identity, now_ms=now_ms).metadata
    holds = [
        *_from_record(state, record, now_ms),
        *_from_import(record, policy, now_ms, import_idle_ms),
        *_from_policy(record, policy, now_ms),
        *_from_damage(damage),
        *_from_unreadable(unreadable),
        *_from_difference(record, rounds),
    ]
    known = {hold["reason"] for hold in holds}
    holds.extend(hold for hold in _from_plans(rounds) if hold["reason"] not in known)
    if failing is not None:
        holds.append(_hold(failing.reason, f"the last pass failed: {failing.message}"))
    if not attended and _is_unfinished(record):
        holds.append(_hold("NoController", NOBODY))
    return {
        "apiVersion": views.API_VERSION,
        "kind": "Explanation",
        **views.name(identity),
        "summary": _summary(record, rounds),
        "holds": holds,
        "observed": bool(rounds),
    }


def differs(record: RevisionMetadata, found: Plan) -> bool:
    """Whether a published revision was seen otherwise than it is recorded."""
    seen = (found.availability, found.residency)
    return None not in seen and seen != (record.availability, record.residency)


def _summary(record: RevisionMetadata, rounds: Sequence[Plan]) -> str:
    """What it is: as it was seen, where the tiers were asked and told enough; else as recorded."""
    availability, residency, seen = record.availability, record.residency.name, ""
    if rounds and _is_unsure(rounds[0]):
        seen = " as it is recorded: not every tier says what it holds now"
    elif rounds and differs(record, rounds[0]):
        availability, seen = rounds[0].availability or availability, " as observed now"
        residency = (rounds[0].residency or record.residency).name
    return f"{_SUMMARIES[availability]}; residency {residency}{seen}"


def _is_unsure(found: Plan) -> bool:
    """Whether a tier that gave no answer decides what the revision is."""
    silent = any(wait.reason is Reason.TIER_UNKNOWN for wait in found.waits)
    return silent and None in (found.availability, found.residency)


def _from_difference(record: RevisionMetadata, rounds: Sequence[Plan]) -> Iterable[doc.Hold]:
    if not rounds or record.operation is not Operation.NONE:
        return
    availability, residency = rounds[0].availability, rounds[0].residency
    if availability is not None and residency is not None and differs(record, rounds[0]):
        what = (
            f"observed {availability.name} {residency.name}, recorded {record.availability.name}"
            f" {record.residency.name}: the record follows at the loop's next look, within"
            " resync.published_s"
        )
        yield _hold(Reason.SUMMARY_DIFFERS.value, what)


def _from_record(state: WeightState, record: RevisionMetadata, now_ms: int) -> Iterable[doc.Hold]:
    for lease in state.active_leases(record.identity, now_ms):
        what = f"lease {lease.lease_id} of {lease.holder}: no delete, no eviction"
        yield _hold("LeaseLive", what, lease.expires_at_ms)
    operation = state.current_operation(record)
    if record.operation is not Operation.NONE and operation is not None:
        done = f"{operation.processed_members} of {operation.total_members} members"
        what = f"operation {operation.operation_id} {operation.operation.name}: {done}"
        yield _hold("OperationRunning", what)
    if record.availability is Availability.DELETING:
        yield _hold("DeleteRunning", "every replica in every tier has to be proven absent")


def _from_import(
    record: RevisionMetadata, policy: Policy, now_ms: int, idle_ms: int | None
) -> Iterable[doc.Hold]:
    """When it is taken for abandoned, as the loop that removes it counts."""
    if record.availability is not Availability.IMPORTING:
        return
    limit_ms = policy.import_abandon_ms
    silence = f"{limit_ms // 1000} s without a sign of the writer"
    if idle_ms is None:
        what, until_ms = f"after {silence} a running controller removes it", None
    elif idle_ms < limit_ms:
        what, until_ms = f"after {silence} it is removed: at the earliest then", now_ms - idle_ms
        until_ms += limit_ms
    else:
        what, until_ms = f"after {silence} the controller removes it at its next look", None
    yield _hold("ImportRunning", f"a writer is expected to finish it; {what}", until_ms)


def _from_policy(record: RevisionMetadata, policy: Policy, now_ms: int) -> Iterable[doc.Hold]:
    if record.operation is Operation.NONE and record.availability is not Availability.DELETING:
        return
    closed_ms = policy.closed_for_ms(now_ms)
    if closed_ms is None:
        yield _hold("Paused", "policy.paused is true")
    elif closed_ms:
        yield _hold("WindowClosed", "outside policy.windows", now_ms + closed_ms)


def _from_damage(damage: Iterable[DamagedReplica]) -> Iterable[doc.Hold]:
    by_tier: dict[str, list[str]] = {}
    for row in damage:
        by_tier.setdefault(row.tier, []).append(row.member_key)
    for tier, keys in by_tier.items():
        what = f"{tier}: {len(keys)} replicas were read back wrong, {keys[0]} first; repair"
        yield _hold(Reason.WRONG_DIGEST.value, what)


def _from_unreadable(keys: Sequence[str]) -> Iterable[doc.Hold]:
    if keys:
        what = (
            f"{len(keys)} members are in no tier any more, {keys[0]} first: somebody removed or"
            " evicted them; bring a tier back that has them, or import under a new generation"
        )
        yield _hold(Reason.NOTHING_READABLE.value, what)


def _from_plans(rounds: Sequence[Plan]) -> Iterable[doc.Hold]:
    """What is waited for now, and what the steps that come before it would end at."""
    waits = dict.fromkeys(wait for plan in (*rounds[:1], *rounds[-1:]) for wait in plan.waits)
    return (_hold(wait.reason.value, wait.what, wait.until_ms) for wait in waits)


def _is_unfinished(record: RevisionMetadata) -> bool:
    return record.operation is not Operation.NONE or record.availability is Availability.DELETING


def unattended(refusal: WeightError, record: RevisionMetadata) -> WeightError:
    """The refusal, with what to do where work is recorded and no process carries it out."""
    if not _is_unfinished(record):
        return refusal
    verb = _VERBS.get(record.operation, "delete")
    return WeightError(
        refusal.code,
        refusal.what,
        f"{refusal.why}; {NOBODY}",
        f"start `weightctl run`, or `weightctl {verb} {record.identity} --wait`",
    )


def _hold(reason: str, what: str, until_ms: int | None = None) -> doc.Hold:
    return {"reason": reason, "what": what, "untilMs": until_ms}
