"""The oracles that watch a simulation while it runs: passes, primitives, what was told.

Each has a name that a violation carries. What concerns the removal of replicas is in `removal`,
what concerns written records in `conclusions`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from weightctl.adapters.conformance.faults import Call
from weightctl.adapters.conformance.reference import Name, Stored
from weightctl.adapters.conformance.simulation.conclusions import Conclusions
from weightctl.adapters.conformance.simulation.media import SimMedium
from weightctl.adapters.conformance.simulation.process import Process
from weightctl.adapters.conformance.simulation.removal import Removal
from weightctl.adapters.conformance.simulation.traces import PASS, Look, PassTrace
from weightctl.adapters.conformance.simulation.trust import Trust
from weightctl.controller.core.identity import Identity
from weightctl.controller.core.observation import (
    Member,
    Members,
    MemberState,
    ReplicaDetail,
    TierObservation,
)
from weightctl.controller.core.policy import Policy
from weightctl.controller.ports import Done, DropItem, Fence, InventoryItem, NoOp, Outcome
from weightctl.controller.store.loading import StoredEntry

if TYPE_CHECKING:
    from weightctl.adapters.conformance.simulation.world import World

PASSES_PER_INSTANT_MAX = 60
"""Passes over one revision without time passing; a fast loop may chain its bounded steps."""


class Judge:
    """Hears everything; `world.violate` is told what may not be."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.removal = Removal(world)
        self.conclusions = Conclusions(world)
        self.trust: dict[int, Trust] = {}
        self._active: Counter[tuple[int, str]] = Counter()
        self._instant: tuple[float, Counter[Identity]] = (0.0, Counter())

    def trust_of(self, process: Process) -> Trust:
        trust = self.trust.get(process.number)
        if trust is None:
            policy = self.world.policy
            trust = Trust(policy.settle_s, policy.mass_change_share, process.known_epochs)
            self.trust[process.number] = trust
        return trust

    # --- passes -----------------------------------------------------------------------------------

    def pass_begins(self, process: Process, trace: PassTrace) -> None:
        if trace.identity in process.passes:
            self.world.violate("one-pass", f"two passes over {trace.identity} at once")
        process.passes[trace.identity] = trace
        now_s = self.world.loop.time()
        if self._instant[0] != now_s:
            self._instant = (now_s, Counter())
        self._instant[1][trace.identity] += 1
        if self._instant[1][trace.identity] > PASSES_PER_INSTANT_MAX:
            self.world.violate("bounded", f"passes over {trace.identity} without a pause")
        self.world.passes += 1

    def pass_ends(self, process: Process, trace: PassTrace) -> None:
        process.passes.pop(trace.identity, None)

    def visible(self, process: Process, identity: Identity) -> None:
        """Invariant 5: what the process shows is what the disk holds."""
        if not process.alive or process.deposed:
            return
        state = process.store._engine.state
        record = state.metadata.get(identity)
        ledger = self.world.ledger
        if not ledger.may_show(identity, record):
            durable = ledger.records.get(identity)
            self.world.violate("durable-first", f"shown {record}, on disk {durable}")
        for lease in state.active_leases(identity, 0):
            if not ledger.may_show_lease(lease):
                self.world.violate("durable-first", f"shown {lease}, which is not on disk")

    def planned(self, process: Process, policy: Policy) -> None:
        """A plan has just been made, under what the operator wanted when it was begun."""
        trace = PASS.get()
        if trace is not None:
            trace.held = _held(policy, process.clock.wall_ms())

    # --- what was told ----------------------------------------------------------------------------

    def answered(
        self,
        process: Process,
        tier: str,
        members: Members,
        answer: TierObservation,
        detail: Sequence[int],
    ) -> None:
        trace, now_s = PASS.get(), self.world.loop.time()
        if len(answer.states) != len(members):
            return  # no answer at all (invariant 12)
        if trace is None:
            return  # a sweep for drift, or a writer: the loop concludes nothing from it
        for index in detail:
            found = answer.details.get(index)
            instance_id = found.instance_id if found else ""
            same = found is not None and _is_of(members.member(index), found)
            look = Look(now_s, answer.states[index], instance_id, answer.epoch, same)
            trace.looks[tier, members.keys[index]] = look
        whole = len(members) in (0, len(self.world.by_group[members.group_id].members))
        if tier in trace.answers or not whole:
            return  # the pass has its picture; this is a look before an act
        trace.answers[tier] = (members, answer, now_s)
        trace.wrong = trace.wrong or self.world.known_wrong(trace.identity)

    def matched(self, asked: int, told: Sequence[Outcome], taken: Sequence[Outcome]) -> None:
        """Invariant 12: one outcome for each asked item, and none that was not told."""
        surplus = len(told) > asked
        for index, outcome in enumerate(taken):
            answered = index < len(told) and not surplus
            if not answered and isinstance(outcome, Done | NoOp):
                self.world.violate("asked-answered", f"{outcome} for an item without an answer")
        if len(taken) != asked:
            self.world.violate("asked-answered", f"{len(taken)} outcomes for {asked} items")

    def pictured(self, process: Process, tier: str, group_id: str, answer: TierObservation) -> None:
        """The loop takes an answer into its picture, and decides whether to rely on it."""
        trace = PASS.get()
        if trace is None:
            return
        if tier not in trace.answers:
            if answer.states.count(MemberState.UNKNOWN) != len(answer.states):
                self.world.violate("asked-answered", f"{tier} gave no answer, yet {answer}")
            return
        members, _, at_s = trace.answers[tier]
        states = dict(zip(members.keys, answer.states, strict=True))
        trust = self.trust_of(process)
        trust.answered(tier, group_id, states, answer.epoch, at_s)
        trust.learn(self.world.disk.epochs())
        trace.unsettled[tier] = trust.problem(tier, group_id, at_s)

    def told(
        self,
        process: Process,
        tier: str,
        call: Call,
        members: Sequence[Member],
        outcomes: Sequence[Outcome],
    ) -> None:
        if len(outcomes) > len(members):
            return
        for member, outcome in zip(members, outcomes, strict=False):
            if isinstance(outcome, Done | NoOp):
                self.trust_of(process).made(
                    tier, member.group_id, member.key, readable=call is Call.STORE
                )

    def verified(
        self, process: Process, tier: str, members: Sequence[Member], outcomes: Sequence[Outcome]
    ) -> None:
        if len(outcomes) > len(members):
            return
        for member, outcome in zip(members, outcomes, strict=False):
            self.removal.read_back(process, tier, member, outcome)

    def listed(
        self,
        process: Process,
        tier: str,
        group_id: str | None,
        listed: Mapping[str, Sequence[InventoryItem]],
    ) -> None:
        trace = PASS.get()
        if trace is not None and group_id is not None:
            trace.inventories[tier] = (bool(listed.get(group_id)), self.world.loop.time())

    # --- primitives -------------------------------------------------------------------------------

    @contextmanager
    def sending(
        self,
        process: Process,
        tier: str,
        call: Call,
        members: Sequence[Member],
        fence: Fence | None,
    ) -> Iterator[None]:
        """A primitive leaves the process: invariants 4, 9 and 10."""
        trace = PASS.get()
        if trace is not None and trace.dry:
            self.world.violate("dry-run", f"a dry run asked {tier} to {call}")
        if trace is not None and fence is not None:
            self._check_fence(process, trace, fence, f"{call} at {tier}")
        place = (process.number, tier)
        if trace is not None:
            self._check_bounds(trace, tier, call, members)
            self._active[place] += 1
            if self._active[place] > self.world.concurrency:
                self.world.violate("bounded", f"{self._active[place]} batches at once at {tier}")
            if self.world.on_attempt is not None:
                self.world.on_attempt(trace.identity, len(members))
        changes = call is not Call.VERIFY
        trust, keys = self.trust_of(process), [member.key for member in members if changes]
        group_id = members[0].group_id if members else ""
        trust.begins(tier, group_id, keys, 1)
        try:
            yield
        finally:
            trust.begins(tier, group_id, keys, -1)
            if trace is not None:
                self._active[place] -= 1

    def _check_fence(self, process: Process, trace: PassTrace, fence: Fence, what: str) -> None:
        store = process.store
        record = store._engine.state.metadata.get(trace.identity)
        if record is None:
            self.world.violate("fence", f"{what} for a revision that is not known")
            return
        current = (store.holder, store.term, record.operation_id, record.metadata_generation)
        carried = (fence.holder, fence.term, fence.operation_id, fence.generation)
        if current != carried:
            self.world.violate("fence", f"{what} carries {carried}, current is {current}")

    def _check_bounds(
        self, trace: PassTrace, tier: str, call: Call, members: Sequence[Member]
    ) -> None:
        """What the operator holds back, and how much one pass may send.

        Not counted: a source that turned out wrong and is read back at once, and leftovers.
        """
        if trace.held:
            self.world.violate("paused", f"{call} at {tier}, planned while {trace.held}")
        if tier in trace.inventories:
            return
        keys = {member.key for member in members}
        if call is Call.VERIFY and keys <= trace.stored:
            return
        if keys <= trace.read_for_drops and call in (Call.VERIFY, Call.DROP):
            return  # one drop: what justifies it was read back for it alone
        if call is Call.VERIFY and self.world.specs[tier].nature.instance_is_reused:
            trace.read_for_drops |= keys
        if call is Call.STORE:
            trace.stored |= keys
        trace.sent_members += len(members)
        if call in (Call.STORE, Call.VERIFY):
            trace.sent_bytes += sum(member.size_bytes for member in members)
        group = self.world.subjects[trace.identity].members.values()
        policy, share = self.world.policy, self.world.settings.executor.passes_per_group
        if trace.sent_members > max(policy.pass_members_max, len(group) // share):
            self.world.violate("bounded", f"{trace.sent_members} members in one pass")
        largest = max(member.size_bytes for member in group)
        if trace.sent_bytes and trace.sent_bytes >= policy.pass_bytes_max + largest:
            self.world.violate("bounded", f"{trace.sent_bytes} bytes in one pass")

    def removing(self, process: Process, tier: str, call: Call, batch: Sequence[DropItem]) -> None:
        trace = PASS.get()
        if trace is None:
            return
        group_id = batch[0].member.group_id if batch else ""
        for problem in filter(None, trace.unsettled.values()):
            self.world.violate("settle", f"{call} at {tier} of {group_id}: {problem}")
        self.removal.sent(process, trace, tier, call, batch)

    # --- what has happened ------------------------------------------------------------------------

    def added(self, tier: str, name: Name, stored: Stored) -> None:
        self.world.changed(tier, name, "store")

    def served(self, tier: str, fence: Fence | None) -> None:
        medium: SimMedium = self.world.media[tier]
        if fence is not None:
            if fence.term < medium.served_term:
                self.world.violate("term", f"{tier} served term {fence.term} after a newer one")
            medium.served_term = max(medium.served_term, fence.term)

    def removed(self, tier: str, name: Name, stored: Stored) -> None:
        self.removal.happened(tier, name, stored)
        self.world.changed(tier, name, "remove")

    def committed(self, process: Process, entries: Sequence[StoredEntry]) -> None:
        self.world.ledger.begin()
        for entry in entries:
            before, upsert = self.world.ledger.absorb(entry, process.clock.highest_ms)
            if upsert is not None and before is not None:
                self.conclusions.written(process, before, upsert)


def _held(policy: Policy, wall_ms: int) -> str:
    """Why the operator wants nothing moved or dropped at that time; empty when it may be."""
    if policy.paused:
        return "paused"
    minute = wall_ms // 60_000 % 1440
    spans = [(window.start_minute, window.end_minute) for window in policy.windows]
    inside = [(minute - start) % 1440 < (end - start) % 1440 for start, end in spans]
    return "" if any(inside) or not spans else f"outside {spans}"


def _is_of(member: Member, told: ReplicaDetail) -> bool:
    """Whether a replica is told to be as long as its member, and to have its digest, if told."""
    return (told.size_bytes, told.sha256 or member.sha256) == (member.size_bytes, member.sha256)
