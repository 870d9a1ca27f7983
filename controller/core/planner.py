"""The planner: from a situation to a plan.  Layer: core (pure).

One function, `plan`, serves the loop and the dry run.  It keeps these rules: a memory replica goes
only where a verified cold copy exists; UNKNOWN is never taken for ABSENT; the manifest goes last; a
plan that does not fit moves nothing; while leases are live, a tier has not settled or the window is
closed, nothing is dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weightctl.controller.core import aggregate as agg
from weightctl.controller.core.draft import Draft
from weightctl.controller.core.losses import lost_mask
from weightctl.controller.core.observation import MemberState
from weightctl.controller.core.plan import Plan, Reason, Situation, StepKind
from weightctl.controller.core.records import Availability, Operation, Residency
from weightctl.controller.core.validity import endings

if TYPE_CHECKING:
    from collections.abc import Callable

# Verdicts on one member, values of the classification tables.
_DONE, _STORE, _VERIFY, _DROP, _WAIT, _LOST = range(6)

_HOT_OR_COLD = agg.HOT | agg.COLD
_PENDING = agg.HOT_PENDING | agg.COLD_PENDING


def plan(situation: Situation) -> Plan:
    """What would be done now, and why.  Pure: the same situation, the same plan."""
    draft = Draft(situation)
    availability = situation.record.availability
    if availability is Availability.IMPORTING:
        _plan_importing(draft)
    elif availability is Availability.DELETING:
        _plan_deleting(draft)
    elif availability is not Availability.DELETED:
        _plan_published(draft)
    return draft.finish()


def _plan_importing(draft: Draft) -> None:
    situation = draft.situation
    limit = situation.policy.import_abandon_ms
    if situation.import_idle_ms >= limit:
        draft.record_step(StepKind.ABORT_IMPORT, Reason.IMPORT_ABANDONED)
        return
    until = situation.now_ms + limit - situation.import_idle_ms
    draft.wait(Reason.IMPORT_RUNNING, "the writer has been heard of", until_ms=until)


def _plan_deleting(draft: Draft) -> None:
    masks = draft.masks
    everywhere = masks.union(view.profile.name for view in draft.situation.views)
    payloads = masks.everyone & ~masks.manifest
    if everywhere & payloads or draft.undecided(payloads):
        wanted, reason = payloads, Reason.PAYLOAD_OF_DELETED
    else:
        wanted, reason = masks.manifest, Reason.MANIFEST_OF_DELETED
    if draft.may_drop():
        for view in draft.situation.views:
            draft.drop(view.profile.name, masks.present(view.profile.name) & wanted, reason)
    draft.wait_undecided(masks.everyone)
    absent = masks.everyone & ~everywhere & ~draft.undecided(masks.everyone)
    draft.progress(absent)
    if absent == masks.everyone and not draft.waits:
        draft.record_step(StepKind.FINISH_DELETE, Reason.ABSENCE_OBSERVED)


def _plan_published(draft: Draft) -> None:
    record, situation = draft.situation.record, draft.situation
    facts, manifest = situation.facts, record.manifest
    draft.observe(
        complete_group=facts.match(manifest, situation.members),
        count_right=facts.count_right(manifest),
    )
    operation = record.operation
    if operation is Operation.NONE:
        _plan_idle(draft)
        return
    _quarantine(draft)
    if operation is Operation.EVICTING:
        _plan_evicting(draft)
    elif operation is Operation.REHYDRATING:
        _plan_rehydrating(draft)
    else:
        _plan_repairing(draft)


def _plan_idle(draft: Draft) -> None:
    record = draft.situation.record
    seen = (draft.availability, draft.residency)
    lost = lost_mask(draft.situation, draft.masks)
    draft.progress(draft.masks.everyone & ~lost)
    if None in seen:
        draft.wait_undecided(draft.masks.everyone)
        return
    if seen != (record.availability, record.residency):
        draft.record_step(StepKind.PUBLISH, Reason.SUMMARY_DIFFERS)
    draft.lose(lost)


def _quarantine(draft: Draft) -> None:
    """Take wrong replicas out of sight, but never one that is all there is."""
    masks = draft.masks
    readable = masks.flagged(_HOT_OR_COLD)
    for view in draft.situation.views:
        wrong = masks.state(view.profile.name, MemberState.CORRUPT) & readable
        if wrong and draft.may_drop():
            draft.quarantine(view.profile.name, wrong)


def _evict(flags: int) -> int:
    if flags & agg.HOT:
        if flags & agg.COLD_VERIFIED:
            return _DROP
        if flags & agg.COLD:
            return _VERIFY
        return _WAIT if flags & (agg.COLD_PENDING | agg.UNANSWERED) else _STORE
    if flags & agg.HOT_PENDING:
        return _WAIT
    if flags & agg.COLD:
        return _DONE
    return _WAIT if flags & agg.COLD_PENDING else _LOST


def _hopeless(draft: Draft, unverified: int) -> int:
    """Of these, the members none of whose cold copies can be read back and that a cold tier lacks.

    A tier that gives no answer may hold a sound copy: it is waited for.
    """
    masks = draft.masks
    given_up = lacking = 0
    for tier in draft.cold:
        given_up |= masks.given_up(tier)
        lacking |= masks.state(tier, MemberState.ABSENT)
    found = unverified & given_up & lacking
    if found:
        for tier in draft.cold:
            found &= ~masks.hoped(tier)
        found &= ~masks.flagged(agg.COLD_PENDING | agg.UNANSWERED)
    return found


def _plan_evicting(draft: Draft) -> None:
    masks = draft.masks
    verdict = masks.classify(_evict)
    draft.store(verdict(_STORE), draft.cold, Reason.COLD_COPY_MISSING)
    unverified = verdict(_VERIFY)
    draft.store(_hopeless(draft, unverified), draft.cold, Reason.COLD_COPY_UNVERIFIED)
    draft.verify(unverified, draft.cold, Reason.COLD_COPY_UNVERIFIED)
    dropped = verdict(_DROP)
    if dropped and draft.may_drop():
        for name in draft.hot:
            gone = masks.readable(name) & dropped
            draft.drop(name, gone, Reason.COLD_COPY_VERIFIED)
    _close(draft, verdict, Residency.COLD)


def _rehydrate(flags: int) -> int:
    if flags & agg.HOT:
        return _DONE
    if flags & agg.HOT_PENDING:
        return _WAIT
    if flags & agg.COLD:
        return _STORE
    return _WAIT if flags & agg.COLD_PENDING else _LOST


def _plan_rehydrating(draft: Draft) -> None:
    verdict = draft.masks.classify(_rehydrate)
    draft.store(verdict(_STORE), draft.hot, Reason.MEMORY_COPY_MISSING)
    _close(draft, verdict, Residency.HOT)


def _repair_source(flags: int) -> int:
    """Where a further copy of a member that lacks one would come from."""
    if flags & (agg.HOT_VERIFIED | agg.COLD_VERIFIED):
        return _STORE
    if flags & _HOT_OR_COLD:
        return _VERIFY
    return _WAIT if flags & _PENDING else _LOST


def _plan_repairing(draft: Draft) -> None:
    """Read every replica back, set wrong ones aside, then restore what is short; only adds.

    A replica that cannot be read, however often it is tried, counts for none; once its member has
    all that is wanted elsewhere, it is left for what it is.
    """
    situation, masks = draft.situation, draft.masks
    operation = situation.operation
    target = Residency.HOT if operation is None else operation.target_residency
    takers = draft.takers(draft.cold)
    copies = min(situation.policy.cold_copies, len(takers))
    if copies < situation.policy.cold_copies:
        what = f"{situation.policy.cold_copies} cold copies wanted, {len(takers)} cold tiers"
        draft.wait(Reason.NO_TIER, what)
    short_cold = masks.fewer_than(copies, draft.cold)
    short_hot = masks.fewer_than(1, draft.hot) if target is Residency.HOT else 0
    short = short_cold | short_hot
    source = masks.classify(_repair_source)
    unread = {
        name: masks.state(name, MemberState.COMPLETE) & ~(masks.given_up(name) & ~short)
        for name in (view.profile.name for view in situation.views)
    }
    done = masks.everyone & ~short
    for mask in unread.values():
        done &= ~mask

    def verdict(wanted: int) -> int:
        return done if wanted == _DONE else source(wanted) & short

    draft.store(verdict(_STORE) & short_cold, draft.cold, Reason.COPIES_BELOW_POLICY)
    draft.store(verdict(_STORE) & short_hot, draft.hot, Reason.MEMORY_COPY_MISSING)
    for name, mask in unread.items():
        draft.read_back(name, mask, Reason.COPY_UNVERIFIED)
    _close(draft, verdict, target)


def _close(draft: Draft, verdict: Callable[[int], int], target: Residency) -> None:
    """What all residency operations share: progress, waits, losses, and the finish."""
    draft.progress(verdict(_DONE))
    draft.wait_undecided(verdict(_WAIT))
    draft.lose(verdict(_LOST))
    if draft.steps or draft.waits or draft.lost_members:
        return
    kind = draft.situation.record.operation
    if None in (draft.availability, draft.residency):
        draft.wait_undecided(draft.masks.everyone)
    elif draft.availability is Availability.READY and draft.residency in endings(kind, target):
        draft.record_step(StepKind.FINISH, Reason.TARGET_OBSERVED)
    elif draft.availability is not Availability.READY:
        draft.wait(Reason.GROUP_INCOMPLETE, "the directory does not match the manifest reference")
    else:
        draft.wait(Reason.OTHER_REPLICAS, f"residency is {draft.residency!r}, not {target!r}")
