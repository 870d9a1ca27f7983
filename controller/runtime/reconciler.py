"""One pass over one revision.  Layer: runtime.

read the record -> observe -> plan -> record what was observed -> act -> say when to come again.
A pass keeps nothing for the next one: whatever ends it at any await, the next pass starts from what
is durable and what it sees.  Errors are classed here; only a broken invariant and cancellation
leave it.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from weightctl.controller.core.damage import DamagedReplica
from weightctl.controller.core.forecast import forecast
from weightctl.controller.core.identity import Identity
from weightctl.controller.core.observation import Members
from weightctl.controller.core.plan import Leases, Plan, Step, StepKind, Verdict
from weightctl.controller.core.records import Availability, Residency, RevisionMetadata
from weightctl.controller.errors import (
    ErrorCode,
    FencedError,
    WeightctlError,
    WeightError,
)
from weightctl.controller.ports import Clock
from weightctl.controller.runtime.conditions import ConditionBoard
from weightctl.controller.runtime.deletion import Deletion
from weightctl.controller.runtime.drift import DriftWatch, is_idle
from weightctl.controller.runtime.executor import Executor
from weightctl.controller.runtime.headway import Headway, distance
from weightctl.controller.runtime.observer import Observer
from weightctl.controller.runtime.outcomes import Tally
from weightctl.controller.runtime.runner import Again, Failed, Finished, Next
from weightctl.controller.runtime.settings import RuntimeSettings
from weightctl.controller.runtime.supervisor import broken_invariant
from weightctl.controller.runtime.survey import Answer, Question, Survey
from weightctl.controller.store.store import WeightMetadataStore
from weightctl.controller.telemetry.logs import event

_LOG = logging.getLogger("weightctl.runtime")
_WAIT_MIN_S = 0.05
_STALE = (ErrorCode.STALE_GENERATION, ErrorCode.BUSY, ErrorCode.CONFLICT, ErrorCode.NOT_READY)
"""Refusals that mean that the record has moved on: read it again."""
_WELL = ("Done", "NoOp", "Corrupt", "Busy")


@dataclass(frozen=True, slots=True, kw_only=True)
class PassReport:
    """What one pass saw and did, for those who watch a revision."""

    identity: Identity
    record: RevisionMetadata
    plan: Plan | None
    tally: Tally
    following: Next
    problem: str = ""

    @property
    def converged(self) -> bool:
        """Whether the wanted state of the record was observed and nothing is left to do."""
        if self.record.availability is Availability.DELETED:
            return True
        return (
            is_idle(self.record) and self.plan is not None and _is_at_rest(self.record, self.plan)
        )


def _is_at_rest(record: RevisionMetadata, plan: Plan) -> bool:
    """Whether the loop has nothing to do: it brings nothing back that an idle revision lost, and
    what comes back is drift, which is looked for anyway.
    """
    lost = is_idle(record) and plan.verdict is Verdict.LOST
    return lost or plan.verdict is Verdict.CONVERGED


class Reconciler:
    """Runs passes; at most one per revision at a time is the caller's duty (the queue's)."""

    def __init__(
        self,
        store: WeightMetadataStore,
        observer: Observer,
        survey: Survey,
        executor: Executor,
        *,
        clock: Clock,
        settings: RuntimeSettings,
        drift: DriftWatch,
        board: ConditionBoard,
        report: Callable[[PassReport], None],
    ) -> None:
        self._store = store
        self._observer = observer
        self._survey = survey
        self._executor = executor
        self._deletion = Deletion(store, observer, executor, clock)
        self._clock = clock
        self._settings = settings
        self._drift = drift
        self._board = board
        self._report = report
        self._headway = Headway(clock, settings.queue.backoff)
        self._sweeps = Headway(clock, settings.queue.backoff)

    async def reconcile(self, identity: Identity) -> Next:
        """One pass.  Raises InvariantViolationError only."""
        generation = 0
        try:
            record = (await self._store.get(identity=identity)).metadata
            generation = record.metadata_generation
            report = await self._pass(record)
        except WeightError as error:
            return self._refused(identity, error, generation)
        except FencedError:
            return Failed(generation=generation)
        except Exception as error:
            if (broken := broken_invariant(error)) is not None:
                raise broken from error
            reason = error.reason if isinstance(error, WeightctlError) else "InternalError"
            event(_LOG, logging.WARNING, "pass failed", error=error, revision=identity)
            self._board.failed(identity, reason, repr(error), generation)
            return Failed(generation=generation)
        self._report(report)
        return report.following

    async def ask(self, identity: Identity) -> Answer:
        """The dry run: what a pass would do now.  Raises WeightError NOT_FOUND."""
        record = (await self._store.get(identity=identity)).metadata
        return await self._survey.answer(await self._question(record))

    def _refused(self, identity: Identity, error: WeightError, generation: int) -> Next:
        if error.code is ErrorCode.NOT_FOUND:
            self._forget(identity)
            return Finished()
        if error.code not in _STALE:
            self._board.failed(identity, error.code.name, str(error), generation)
        return Failed(generation=generation)

    async def _question(self, record: RevisionMetadata) -> Question:
        identity = record.identity
        leases = self._store.leases(identity=identity)
        nearest_ms = min((lease.expires_at_ms for lease in leases), default=None)
        idle_ms = 0
        if record.availability is Availability.IMPORTING:
            idle_ms = int(self._store.import_idle_s(identity=identity) * 1000)
        return Question(
            record=record,
            operation=self._store.operation(identity=identity),
            members=await self._members(record),
            leases=Leases(count=len(leases), nearest_expiry_ms=nearest_ms),
            import_idle_ms=idle_ms,
            damage=self._damage(record),
            known_tiers=self._store.tier_epochs.names(),
        )

    def _damage(self, record: RevisionMetadata) -> Sequence[DamagedReplica]:
        return self._store.damage.rows(record.manifest.payload_group_id)

    async def _members(self, record: RevisionMetadata) -> Members:
        return await self._store.directory.members(record.manifest.payload_group_id)

    # --- the pass ---------------------------------------------------------------------------------

    async def _pass(self, record: RevisionMetadata) -> PassReport:
        if record.availability is Availability.DELETED:
            self._observer.forget_group(record.manifest.payload_group_id)
            self._forget(record.identity)
            return self._reported(record, None, Tally(), Finished())
        if pause_s := max(self._headway.pause_s(record), self._sweeps.pause_s(record)):
            return self._reported(record, None, Tally(), Again(after_s=pause_s, progressed=False))
        if self._damage(record):  # a cheap look cannot tell the damaged copy from another one
            self._drift.forget(record.identity)
        if is_idle(record) and not self._drift.unknown((record,)):
            return self._reported(record, None, Tally(), Finished())
        answer = await self._survey.answer(await self._question(record))
        await self._store.damage.forget(record.manifest.payload_group_id, answer.seen.refuted)
        await self._keep_epochs()
        self._judge(record, answer)
        if self._records_only(answer.plan):
            await self._write_record(record, answer)
            self._headway.acted(record)
            return self._reported(record, answer.plan, Tally(), Again())
        looked_at = record.metadata_generation
        record = await self._record_progress(record, answer.plan)
        tally = await self._act(record, answer)
        if tally.changed:
            self._headway.acted(record)
        following = self._following(record, answer.plan, tally)
        self._note_failures(record.identity, tally, looked_at)
        settled = is_idle(record) and _is_at_rest(record, answer.plan)
        if settled and not self._damage(record):
            self._drift.remember(record, answer.seen)
        return self._reported(record, answer.plan, tally, following)

    def _judge(self, record: RevisionMetadata, answer: Answer) -> None:
        """Say what the plan shows, and whether the revision has come nearer to what is wanted."""
        plan = answer.plan
        if _is_at_rest(record, plan):
            self._headway.forget(record.identity)
            self._board.clear(record.identity)
            return
        hindrances = frozenset(wait.reason for wait in plan.waits)
        way = (plan,) if hindrances else forecast(answer.situation, plan)
        moved = self._headway.look(record, distance(way), hindrances, plan.steps)
        self._board.planned(record.identity, plan, record.metadata_generation, moved=moved)

    def _forget(self, identity: Identity) -> None:
        """The revision is gone."""
        self._board.clear(identity)
        self._drift.forget(identity)
        self._headway.forget(identity)
        self._sweeps.forget(identity)

    async def _act(self, record: RevisionMetadata, answer: Answer) -> Tally:
        """Carry out the plan's steps for the record as it is after the progress was recorded."""
        if not answer.plan.steps:
            return Tally()
        situation = replace(answer.situation, record=record)
        work = self._executor.begin(situation, answer.seen)
        await self._executor.carry_out(work, answer.plan)
        return work.tally

    async def _keep_epochs(self) -> None:
        for tier, epoch in self._observer.gate.unsaved().items():
            await self._store.tier_epochs.set(tier, epoch)
            self._observer.gate.saved(tier, epoch)

    def _records_only(self, plan: Plan) -> bool:
        return bool(plan.steps) and not any(step.mask for step in plan.steps)

    async def _write_record(self, record: RevisionMetadata, answer: Answer) -> None:
        for step in answer.plan.steps:
            await self._write_step(record, answer, step)

    async def _write_step(self, record: RevisionMetadata, answer: Answer, step: Step) -> None:
        identity, generation = record.identity, record.metadata_generation
        plan = answer.plan
        match step.kind:
            case StepKind.PUBLISH:
                if plan.availability is not None and plan.residency is not None:
                    await self._store.publish_observation(
                        identity=identity,
                        expected_metadata_generation=generation,
                        availability=plan.availability,
                        residency=plan.residency,
                    )
            case StepKind.FINISH:
                if plan.residency is not None:
                    await self._store.finish_operation(
                        operation_id=record.operation_id, observed_residency=plan.residency
                    )
            case StepKind.ABORT_IMPORT:
                await self._store.abort_import(
                    identity=identity, expected_metadata_generation=generation
                )
            case StepKind.FINISH_DELETE:
                await self._finish_delete(record, answer)
            case _:
                pass

    async def _finish_delete(self, record: RevisionMetadata, answer: Answer) -> None:
        leftovers = await self._deletion.finish(record, answer)
        if leftovers:
            self._sweeps.look(record, leftovers)
            self._sweeps.acted(record)
            self._headway.forget(record.identity)

    async def _record_progress(self, record: RevisionMetadata, plan: Plan) -> RevisionMetadata:
        """Make durable what was observed under an operation; gives the record as it is then."""
        operation = self._store.operation(identity=record.identity)
        if operation is None:
            return record
        availability = plan.availability or record.availability
        residency = plan.residency or record.residency
        if (availability, residency) == (Availability.READY, Residency.ABSENT):
            availability, residency = record.availability, record.residency
        seen = (availability, residency, max(plan.processed_members, operation.processed_members))
        if seen == (record.availability, record.residency, operation.processed_members):
            return record
        await self._store.update_progress(
            operation_id=operation.operation_id,
            processed_members=plan.processed_members,
            total_members=max(plan.total_members, operation.total_members),
            cursor=plan.cursor,
            availability=availability,
            residency=residency,
        )
        current = (await self._store.get(identity=record.identity)).metadata
        if current.operation_id != operation.operation_id:
            raise FencedError(f"the pass over {record.identity}", "its operation has ended")
        return current

    # --- when to come again -----------------------------------------------------------------------

    def _following(self, record: RevisionMetadata, plan: Plan, tally: Tally) -> Next:
        generation = record.metadata_generation
        if tally.fenced:
            return Failed(generation=generation)
        if tally.changed:
            return Again()
        if tally.busy_until_ms is not None and not tally.failures:
            return self._until(tally.busy_until_ms)
        if tally.permanent and not tally.failures and not tally.first_failures:
            return Again(after_s=self._settings.park_s, progressed=False)
        if plan.steps:
            # What a tier says of its return is a guess: it is asked again within the longest wait.
            at_least_s = min(tally.retry_after_s, self._settings.wait_max_s)
            return Failed(generation=generation, at_least_s=at_least_s)
        if _is_at_rest(record, plan):
            return Finished()
        if plan.verdict is Verdict.LOST:
            return Again(after_s=self._probe_s(record.identity), progressed=False)
        known = [wait.until_ms for wait in plan.waits if wait.until_ms is not None]
        if known:
            return self._until(min(known))
        return Failed(generation=generation)

    def _probe_s(self, identity: Identity) -> float:
        """Seconds until what is lost is looked for again: as long as it has been lost by now."""
        settings = self._settings
        soonest_s = min(settings.resync.working_s, settings.park_s)
        return min(max(self._board.idle_s(identity), soonest_s), settings.park_s)

    def _until(self, until_ms: int) -> Again:
        """At a known time, but never much later than the longest trusted wait."""
        wait_s = (until_ms - self._clock.wall_ms()) / 1000
        bounded_s = min(max(wait_s, _WAIT_MIN_S), self._settings.wait_max_s)
        return Again(after_s=bounded_s, progressed=False)

    def _note_failures(self, identity: Identity, tally: Tally, generation: int) -> None:
        troubled = tally.failures or tally.permanent or tally.fenced
        if not troubled:
            self._board.recovered(identity, generation)
            return
        reason = next(name for name in tally.reasons if name not in _WELL)
        message = "; ".join(tally.details)
        self._board.failing(identity, reason, message, generation)

    def _reported(
        self, record: RevisionMetadata, plan: Plan | None, tally: Tally, following: Next
    ) -> PassReport:
        return PassReport(
            identity=record.identity, record=record, plan=plan, tally=tally, following=following
        )
