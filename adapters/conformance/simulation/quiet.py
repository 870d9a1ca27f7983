"""Invariant 11 as an oracle: when the faults are over everything converges, then nothing moves.

After the last fault each effective primitive makes a well-founded measure of its revision smaller;
the revision is at rest within a bound computed from what is left to do; and then nothing is written
for several rounds. A revision that the world has truly robbed of its last copy may stay as it is.
"""

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import anyio

from weightctl.adapters.conformance.reference import Name
from weightctl.adapters.conformance.simulation.bounds import SILENCE_S, liveness_s, rest_s
from weightctl.adapters.conformance.simulation.media import is_good
from weightctl.adapters.conformance.simulation.subjects import Subject
from weightctl.controller.core.identity import Identity
from weightctl.controller.core.records import (
    Availability,
    Operation,
    Residency,
    RevisionMetadata,
)

if TYPE_CHECKING:
    from weightctl.adapters.conformance.simulation.world import World

PARKED_S = 90.0
"""A revision that is robbed of a member, or lacks room, still does what it can for the others; a
silent tier, parking and aging evidence may keep it from that for so long."""
_SETTLING_S = 2.0
"""What the last step has begun is written within so long."""
ATTEMPTS_PER_COPY = 8
PUBLISHED = (Availability.READY, Availability.DEGRADED)


async def come_to_rest(world: "World") -> None:
    """End all faults, then see the world converge and stay."""
    world.over_s = world.loop.time()
    bound_s = liveness_s(world.policy, world.settings, Measure(world).total())
    with anyio.move_on_after(bound_s) as waiting_for_old:
        await _end_faults(world)
        await world.until(
            lambda: not (world.background or world.acting or _passes_since(world, world.over_s))
        )
    if waiting_for_old.cancelled_caught:
        world.violate("stuck", f"after {bound_s:.0f} s {_at_work(world, world.over_s)}")
        return
    with anyio.move_on_after(SILENCE_S):  # who is not heard is stored beside, which is no progress
        await world.until(lambda: not any(_silent(world)))
        heard_s = world.loop.time()
        await world.until(lambda: not _passes_since(world, heard_s))
    measure = Measure(world)
    world.on_change, world.on_attempt = measure.changed, measure.attempted
    bound_s = max(bound_s, liveness_s(world.policy, world.settings, measure.total()))
    until_s = world.over_s + bound_s
    while waiting := unrest(world):
        if world.loop.time() > until_s:
            world.violate("convergence", "; ".join(waiting))
            return
        await asyncio.sleep(1.0)
    await stay_at_rest(world)


async def stay_at_rest(world: "World") -> None:
    """Nothing moves and no row changes.

    What epoch a tier has is written once it has settled: the first round sees it, the next, or the
    one after that, sees it again.
    """
    await asyncio.sleep(_SETTLING_S)
    began_s = world.loop.time()
    await asyncio.sleep(2 * world.settings.resync.published_s + world.policy.settle_s)
    changes = world.disk.changes
    await asyncio.sleep(rest_s(world.settings))
    if _passes_since(world, began_s):
        world.violate("stuck", f"at rest {_at_work(world, began_s)}")
    if world.moved_s > began_s:
        age_s = world.loop.time() - world.moved_s
        world.violate("quiet", f"something was written {age_s:.1f} s ago, after all was at rest")
    if world.disk.changes != changes:
        count = world.disk.changes - changes
        world.violate("quiet", f"{count} transactions changed rows after all was at rest")


async def _end_faults(world: "World") -> None:
    world.faulty = False
    world.note("the faults are over")
    for event in world.clogged.values():
        event.set()
    world.clogged.clear()
    for medium in world.media.values():
        medium.away = False
    for process in world.processes:
        process.clock.start_wall()
        if process.deposed:
            process.kill()
    leader = world.leader
    if leader is not None and not leader.store.healthy:
        leader.kill()
    leader = await world.some_leader()
    leader.set_policy(world.policy)


def _silent(world: "World") -> list[str]:
    """What tiers last failed to answer, as the leader tells."""
    leader = world.leader
    return ["nobody leads"] if leader is None else list(leader.controller.health().tiers.values())


def _passes_since(world: "World", since_s: float) -> list[Identity]:
    """Revisions with a pass still at work that began then or earlier."""
    return [
        trace.identity
        for process in world.processes
        if process.alive
        for trace in process.passes.values()
        if trace.started_s <= since_s
    ]


def _at_work(world: "World", since_s: float) -> str:
    passes = ", ".join(map(str, _passes_since(world, since_s)))
    requests = f"{world.acting} actions and {world.background} requests"
    return f"passes over [{passes}], {requests} have not ended"


def unrest(world: "World") -> list[str]:
    """What is not at rest, and why."""
    reasons = [_why(world, subject) for subject in world.subjects.values()]
    leases = [f"lease {lease_id} is not erased" for lease_id in world.ledger.leases]
    return [reason for reason in reasons if reason] + leases


def _why(world: "World", subject: Subject) -> str:
    """Why the revision is not at rest; empty when it is."""
    record = world.ledger.records.get(subject.identity)
    if record is None:
        return ""
    name = f"{subject.identity}"
    if record.availability is Availability.DELETED:
        return ""
    if record.availability not in PUBLISHED:
        return f"{name} is {record.availability.name}"
    idle_s = world.loop.time() - max(world.moved_s, world.over_s)
    if record.operation is not Operation.NONE:
        robbed = any(not world.good_copies(member) for member in subject.members.values())
        held = idle_s > PARKED_S and (robbed or _has_no_room(world, subject, record))
        return "" if held else f"{name} is {record.operation.name}: {_told(world, subject)}"
    seen = _summary(world, subject)
    if seen == (record.availability, record.residency):
        return ""
    if idle_s > PARKED_S and world.known_wrong(subject.identity):
        return ""  # what was read back wrong counts as missing, for as long as that is known
    return f"{name} is written as {record.availability!r} {record.residency!r}, but is {seen}"


def _has_no_room(world: "World", subject: Subject, record: RevisionMetadata) -> bool:
    """Whether a repair wants copies in a tier that cannot hold them."""
    if record.operation is not Operation.REPAIRING:
        return False
    for tier, medium in world.media.items():
        lacking = [member for member in subject.members.values() if not medium.seen(member)]
        used = sum(len(stored.content) for _, stored in medium.every())
        needed = sum(member.size_bytes for member in lacking)
        if not world.specs[tier].hot and needed > medium.limit_bytes - used:
            return world.policy.cold_copies > 1
    return False


def _told(world: "World", subject: Subject) -> str:
    leader = world.leader
    if leader is None:
        return "nobody leads"
    conditions = leader.controller.conditions(subject.identity)
    return ", ".join(f"{c.type}={c.status} {c.reason} {c.message}" for c in conditions)


def _summary(world: "World", subject: Subject) -> tuple[Availability, Residency]:
    """What the tiers truly show, by the contract's rules (4.3)."""
    hot, cold = [], []
    for member in subject.members.values():
        where = [
            world.specs[tier].hot for tier, medium in world.media.items() if medium.seen(member)
        ]
        hot.append(True in where)
        cold.append(False in where)
    some = [warm or kept for warm, kept in zip(hot, cold, strict=True)]
    availability = Availability.READY if all(some) else Availability.DEGRADED
    if not any(some):
        return availability, Residency.ABSENT
    if all(hot):
        return availability, Residency.HOT
    if all(cold) and not any(hot):
        return availability, Residency.COLD
    return availability, Residency.MIXED


class Measure:
    """How far each revision is from its target; every effective step makes it smaller."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self._cold_tiers = sum(not spec.hot for spec in world.specs.values())
        self._attempts: Counter[Identity] = Counter()
        self._last: dict[tuple[str, Availability, int], int] = {}
        for subject in world.subjects.values():
            self._note(subject)

    def total(self) -> int:
        """What is left to do, over all revisions, whatever else is asked of them."""
        return sum(self._last.values()) + 4 * sum(
            len(subject.members) for subject in self.world.subjects.values()
        )

    def _note(self, subject: Subject) -> None:
        record = self.world.ledger.records.get(subject.identity)
        if record is not None:
            key = (subject.group_id, record.availability, record.operation_id)
            self._last[key] = self._of(subject, record)

    def changed(self, tier: str, name: Name, what: str) -> None:
        subject = self.world.by_group.get(name[0])
        record = None if subject is None else self.world.ledger.records.get(subject.identity)
        if subject is None or record is None:
            return
        key = (subject.group_id, record.availability, record.operation_id)
        now = self._of(subject, record)
        before = self._last.get(key)
        self._last[key] = now
        if before is not None and now >= before:
            step = f"{what} of {name[1][-12:]} at {tier}"
            self.world.violate("measure", f"{step}: {before} to {now} during {record.operation!r}")

    def attempted(self, identity: Identity, count: int) -> None:
        self._attempts[identity] += count
        members = len(self.world.subjects[identity].members)
        bound = ATTEMPTS_PER_COPY * members * len(self.world.media) + 40
        if self._attempts[identity] > bound:
            self.world.violate("bounded", f"{self._attempts[identity]} attempts for {identity}")

    def _of(self, subject: Subject, record: RevisionMetadata) -> int:
        held = [
            (tier, name, stored)
            for tier, medium in self.world.media.items()
            for name, stored in medium.every()
            if name[0] == subject.group_id
        ]
        if record.availability not in PUBLISHED:
            return len(held)
        copies: dict[str, list[bool]] = {key: [] for key in subject.members}
        bad = 0
        for tier, name, stored in held:
            member = subject.members.get(name[1])
            if member is None or stored.hidden:
                continue
            if is_good(stored, member):
                copies[name[1]].append(self.world.specs[tier].hot)
            else:
                bad += 1
        running = self.world.ledger.operations.get(record.operation_id)
        target = Residency.UNKNOWN if running is None else running.target_residency
        return bad + sum(
            self._missing(record.operation, target, where) for where in copies.values()
        )

    def _missing(self, operation: Operation, target: Residency, where: list[bool]) -> int:
        hot, cold = where.count(True), where.count(False)
        match operation:
            case Operation.EVICTING:
                return hot + (cold == 0)
            case Operation.REHYDRATING:
                return int(hot == 0)
            case Operation.REPAIRING:
                wanted = min(self.world.policy.cold_copies, self._cold_tiers)
                return max(wanted - cold, 0) + (hot == 0 and target is Residency.HOT)
            case _:
                return 0
