"""Invariants 3, 7 and 12 as oracles: what is written down follows from what was observed.

Each record that a pass writes is compared with the answers which that very pass was given. What was
not answered is neither done nor gone.
"""

from typing import TYPE_CHECKING

from weightctl.adapters.conformance.simulation.process import Process
from weightctl.adapters.conformance.simulation.traces import PassTrace
from weightctl.controller.core.observation import MemberState
from weightctl.controller.core.oplog import MetadataUpsert
from weightctl.controller.core.records import (
    Availability,
    Operation,
    Residency,
    RevisionMetadata,
)

if TYPE_CHECKING:
    from weightctl.adapters.conformance.simulation.world import World

PUBLISHED = (Availability.READY, Availability.DEGRADED)
_SLACK_S = 3.0
"""A sign of life is given before its call returns."""
YES, NO, OPEN = "yes", "no", "open"


class Conclusions:
    """Judges record writes of passes."""

    def __init__(self, world: "World") -> None:
        self.world = world

    def written(self, process: Process, before: RevisionMetadata, upsert: MetadataUpsert) -> None:
        after = upsert.metadata
        trace = process.passes.get(after.identity)
        if after.availability is Availability.DELETED:
            self._deleted(trace, after)
        elif before.availability in PUBLISHED and after.availability in PUBLISHED:
            ended = before.operation is not Operation.NONE and after.operation is Operation.NONE
            if ended:
                self._finished(trace, before, after)
            elif (before.availability, before.residency) != (after.availability, after.residency):
                self._summarised(trace, after)
        elif before.availability is Availability.IMPORTING and trace is not None:
            self._abandoned(process, before, after)

    def _abandoned(
        self, process: Process, before: RevisionMetadata, after: RevisionMetadata
    ) -> None:
        if after.availability is not Availability.DELETING:
            return
        subject = self.world.subjects[after.identity]
        heard_s = max(subject.heard_s, process.store._imports._opened_s)
        idle_s = self.world.loop.time() - heard_s
        limit_s = self.world.policy.import_abandon_ms / 1000 - _SLACK_S
        if idle_s < limit_s and not subject.aborted:
            self.world.violate("import-limit", f"{before.identity} aborted after {idle_s:.1f} s")

    # --- deletion ---------------------------------------------------------------------------------

    def _deleted(self, trace: PassTrace | None, after: RevisionMetadata) -> None:
        world, name = self.world, str(after.identity)
        if trace is None:
            world.violate("absence", f"{name} was finished outside a pass")
            return
        for tier in world.media:
            told = trace.answers.get(tier)
            if told is None:
                world.violate("absence", f"{name}: {tier} was not asked")
                continue
            _, answer, at_s = told
            gone = answer.epoch and answer.states.count(MemberState.ABSENT) == len(answer.states)
            if not gone:
                world.violate("absence", f"{name}: {tier} told {list(answer.states)}")
            listed, listed_s = trace.inventories.get(tier, (True, 0.0))
            if listed or listed_s < at_s:
                world.violate("absence", f"{name}: {tier} lists something, or was not asked")
        group_id = after.manifest.payload_group_id
        for tier, medium in world.media.items():
            if tier in trace.lied or world.touched_s.get((tier, group_id), 0.0) > trace.started_s:
                continue
            if any(group == group_id for group, _ in medium.stored):
                world.violate("absence", f"{name}: {tier} still holds something")

    # --- operations and summaries -----------------------------------------------------------------

    def _readable(self, trace: PassTrace, *, hot: bool) -> list[str]:
        """Per member: whether it can be read in some hot (or cold) tier, by what was told."""
        verdicts: list[str] = []
        for tier, spec in self.world.specs.items():
            if spec.hot is not hot or tier not in trace.answers:
                continue
            states = trace.answers[tier][1].states
            verdicts = verdicts or [NO] * len(states)
            for index, state in enumerate(states):
                if state == MemberState.COMPLETE:
                    verdicts[index] = YES
                elif state == MemberState.UNKNOWN and verdicts[index] == NO:
                    verdicts[index] = OPEN
        return verdicts

    def _finished(
        self, trace: PassTrace | None, before: RevisionMetadata, after: RevisionMetadata
    ) -> None:
        name = f"{after.identity} {before.operation!r}"
        if trace is None:
            self.world.violate("completion", f"{name} ended outside a pass")
            return
        hot, cold = self._readable(trace, hot=True), self._readable(trace, hot=False)
        running = self.world.ledger.operations[before.operation_id]
        repaired = before.operation is Operation.REPAIRING
        if repaired and running.target_residency is Residency.COLD:
            right = bool(cold) and all(verdict == YES for verdict in cold)
        elif after.residency is Residency.HOT:
            right = bool(hot) and all(verdict == YES for verdict in hot)
        else:
            right = bool(cold) and all(
                (warm, kept) == (NO, YES) for warm, kept in zip(hot, cold, strict=True)
            )
        if not right:
            self.world.violate("completion", f"{name} is {after.residency!r}: {hot} {cold}")

    def _summarised(self, trace: PassTrace | None, after: RevisionMetadata) -> None:
        name = f"{after.identity} {after.availability!r} {after.residency!r}"
        if trace is None:
            self.world.violate("summary", f"{name} was written outside a pass")
            return
        wrong = trace.wrong or self.world.known_wrong(after.identity)
        hot, cold = self._readable(trace, hot=True), self._readable(trace, hot=False)
        pairs = list(zip(hot, cold, strict=True))
        if after.availability is Availability.READY:
            right = all(YES in pair for pair in pairs)
        else:  # some member is certainly not readable, or was read back wrong
            right = any(OPEN not in pair and YES not in pair for pair in pairs)
            right = right or wrong
        if after.residency is Residency.ABSENT:
            right = right and all(pair == (NO, NO) for pair in pairs)
            right = right or wrong
        if after.residency is Residency.COLD:
            right = right and all(pair[0] != YES for pair in pairs)
            right = right or wrong
        if after.residency is Residency.HOT:
            right = right and all(pair[0] == YES for pair in pairs)
        if not right:
            self.world.violate("summary", f"{name}: hot {hot}, cold {cold}")
