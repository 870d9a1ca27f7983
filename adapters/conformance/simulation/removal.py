"""Invariants 1, 2 and 3 as oracles: the last copy, leases, the manifest.

Two kinds. One judges what the loop knew when it sent a removal: the proof must be complete in what
it was told and had made durable. The other judges the truth when a replica is really gone: a good
one must be left, unless the world destroyed the proven copy after it was read back, which no
controller survives.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from weightctl.adapters.conformance.faults import Call
from weightctl.adapters.conformance.reference import Name, Stored
from weightctl.adapters.conformance.simulation.media import is_good
from weightctl.adapters.conformance.simulation.process import Process
from weightctl.adapters.conformance.simulation.traces import PASS, PassTrace
from weightctl.controller.core.observation import Member, MemberState
from weightctl.controller.core.records import Availability, DataType, Operation
from weightctl.controller.ports import Corrupt, Done, DropItem, Outcome
from weightctl.controller.store.evidence import EvidenceRow

if TYPE_CHECKING:
    from weightctl.adapters.conformance.simulation.world import World

_SLACK_S = 0.01
PUBLISHED = (Availability.READY, Availability.DEGRADED)


class Removal:
    """Judges drops and quarantines."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self._read: dict[tuple[int, str, str, str], tuple[float, bool, str]] = {}
        """By process, tier, key and instance: when it was read back, how, in which epoch."""
        self.exempt = 0
        """Removals after which the world had destroyed the proven copy."""

    def read_back(self, process: Process, tier: str, member: Member, outcome: Outcome) -> None:
        if isinstance(outcome, Done | Corrupt) and outcome.instance_id:
            key = (process.number, tier, member.key, outcome.instance_id)
            trace = PASS.get()
            told = None if trace is None else trace.answers.get(tier)
            epoch = "" if told is None else told[1].epoch
            self._read[key] = (self.world.loop.time(), isinstance(outcome, Done), epoch)

    # --- when it is sent --------------------------------------------------------------------------

    def sent(
        self,
        process: Process,
        trace: PassTrace,
        tier: str,
        call: Call,
        batch: Sequence[DropItem],
    ) -> None:
        world = self.world
        what = f"{call} at {tier} of {[item.member.key[-12:] for item in batch]}"
        leases = world.ledger.live_leases(trace.identity, process.clock.wall_ms())
        if leases and not process.deposed:
            world.violate("lease", f"{what} under {leases}")
        record = process.store._engine.state.metadata[trace.identity]
        if record.availability is Availability.DELETING:
            self._of_deleted(trace, tier, batch, what)
        elif record.availability not in PUBLISHED or record.operation is Operation.NONE:
            world.violate("last-copy", f"{what} while {record.availability!r} is idle")
        elif call is Call.DROP:
            if record.operation is not Operation.EVICTING:
                world.violate("last-copy", f"{what} during {record.operation!r}")
            rows = world.disk.evidence(trace.identity)
            for item in batch:
                self._proven(process, trace, tier, item, rows)
        else:
            for item in batch:
                self._wrong(tier, item)
                self._not_the_only_one(trace, tier, item)

    def _proven(
        self,
        process: Process,
        trace: PassTrace,
        tier: str,
        item: DropItem,
        rows: Sequence[EvidenceRow],
    ) -> None:
        member, world = item.member, self.world
        what = f"drop of {member.key[-12:]} ({item.instance_id}) from {tier}"
        named = (member.key, tier, item.instance_id)
        found = [
            row for row in rows if (row.member_key, row.dropped_tier, row.dropped_instance) == named
        ]
        problems = [self._problem(process, trace, tier, member, row) for row in found]
        if not found:
            world.violate("evidence", f"{what}: no durable evidence")
        elif all(problems):
            world.violate("evidence", f"{what}: {problems[-1]}")
        dropped = trace.looks.get((tier, member.key))
        if dropped is None or dropped.instance_id != item.instance_id:
            world.violate("evidence", f"{what}: not the instance that was looked at")

    def _problem(
        self, process: Process, trace: PassTrace, tier: str, member: Member, row: EvidenceRow
    ) -> str:
        """Why the copy that a row names does not justify a drop by this pass; empty if it does."""
        world = self.world
        if row.evidence_tier == tier or world.specs[row.evidence_tier].hot:
            return f"evidence in {row.evidence_tier}"
        if not world.specs[row.evidence_tier].nature.persistent:
            return f"evidence in {row.evidence_tier}, which forgets when its process ends"
        look = trace.looks.get((row.evidence_tier, member.key))
        seen = None if look is None else (look.state, look.instance_id, look.epoch)
        expected = (MemberState.COMPLETE, row.evidence_instance, row.evidence_epoch)
        if seen != expected:
            return f"this pass saw {seen}, evidence is {expected}"
        if look is not None and not look.as_recorded:
            return "this pass saw another size or digest than the member's"
        key = (process.number, row.evidence_tier, member.key, row.evidence_instance)
        read_s, good, epoch = self._read.get(key, (float("-inf"), False, ""))
        age_s = world.loop.time() - read_s
        if epoch != row.evidence_epoch:
            return f"evidence of epoch {epoch!r}, not {row.evidence_epoch!r}"
        if not good or age_s > world.policy.evidence_max_age_s + world.patience_s:
            return f"evidence {good} is {age_s:.1f} s old"
        if world.specs[row.evidence_tier].nature.instance_is_reused and read_s < trace.started_s:
            return f"{row.evidence_tier} shows another copy as the same, and was not read since"
        return ""

    def _wrong(self, tier: str, item: DropItem) -> None:
        """Some process has read exactly this instance back wrong; that is remembered for good."""
        named = (tier, item.member.key, item.instance_id)
        reads = [good for (_, *read), (_, good, _) in self._read.items() if tuple(read) == named]
        if all(reads):
            what = f"quarantine of {item.member.key[-12:]} ({item.instance_id}) at {tier}"
            self.world.violate("evidence", f"{what}: it was not read back wrong")

    def _not_the_only_one(self, trace: PassTrace, tier: str, item: DropItem) -> None:
        """Something else is left that can be read, as far as this pass was told."""
        for name, (members, answer, _) in trace.answers.items():
            told = answer.states[members.keys.index(item.member.key)]
            if name != tier and told == MemberState.COMPLETE:
                return
        what = f"quarantine of {item.member.key[-12:]} ({item.instance_id}) at {tier}"
        self.world.violate("last-copy", f"{what}: it is all there is")

    def _of_deleted(
        self, trace: PassTrace, tier: str, batch: Sequence[DropItem], what: str
    ) -> None:
        if all(item.member.data_type is not DataType.METADATA for item in batch):
            return
        for name in self.world.media:
            told = trace.answers.get(name)
            if told is None:
                self.world.violate("manifest-last", f"{what}: {name} was not asked")
                continue
            members, answer, _ = told
            for index, state in enumerate(answer.states):
                manifest = members.data_types[index] == DataType.METADATA
                if not manifest and state != MemberState.ABSENT:
                    said = f"{name} said {MemberState(state)!r} of a payload"
                    self.world.violate("manifest-last", f"{what}: {said}")

    # --- when it has happened ---------------------------------------------------------------------

    def happened(self, tier: str, name: Name, stored: Stored) -> None:
        """A replica has left sight by a primitive."""
        world = self.world
        subject = world.by_group.get(name[0])
        member = None if subject is None else subject.members.get(name[1])
        if subject is None or member is None:
            return
        record = world.ledger.records.get(subject.identity)
        if record is None or record.availability not in PUBLISHED:
            return
        visible = Stored(stored.instance_id, stored.content, stored.sha256)
        if not is_good(visible, member) or world.good_copies(member):
            return
        if self._destroyed_since(subject.identity, tier, stored, member):
            self.exempt += 1
            return
        world.violate("last-copy", f"{member.key} lost its last good copy at {tier}")

    def _destroyed_since(self, identity: object, tier: str, stored: Stored, member: Member) -> bool:
        """Whether the copy that was named as evidence was good and fell to the world later."""
        world = self.world
        name = (member.group_id, member.key)
        for row in world.disk.evidence(identity):
            if (row.member_key, row.dropped_tier, row.dropped_instance) != (
                member.key,
                tier,
                stored.instance_id,
            ):
                continue
            medium = world.media[row.evidence_tier]
            destroyed_s = medium.destroyed_s.get((name, row.evidence_instance))
            reads = [
                read_s
                for (_, where, key, instance), (read_s, good, _) in self._read.items()
                if good
                and (where, key, instance)
                == (
                    row.evidence_tier,
                    member.key,
                    row.evidence_instance,
                )
            ]
            if destroyed_s is not None and reads and destroyed_s >= min(reads) - _SLACK_S:
                return True
        return False
