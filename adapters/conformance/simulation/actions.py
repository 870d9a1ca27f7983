"""What users, readers and writers do in a simulation; what the world does is in `disasters`.

Users take what they can get: a refusal, a dead process or a lost answer is the end of the attempt
and never an error of the simulation.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio

from weightctl.adapters.conformance.simulation.disasters import DISASTERS
from weightctl.adapters.conformance.simulation.process import Process
from weightctl.adapters.conformance.simulation.script import Action
from weightctl.adapters.conformance.simulation.subjects import Subject, source_of, subject_of
from weightctl.adapters.conformance.simulation.traces import PASS, PassTrace
from weightctl.controller.api.supposing import repair_target
from weightctl.controller.core.group import GroupSnapshot
from weightctl.controller.core.observation import MemberState
from weightctl.controller.core.plan import Leases
from weightctl.controller.core.records import Availability, Residency, RevisionMetadata
from weightctl.controller.errors import ErrorCode, WeightctlError, WeightError
from weightctl.controller.ports import Fence, StoreItem
from weightctl.controller.runtime.observer import ObserverOptions
from weightctl.controller.runtime.survey import Question, observe_and_plan

if TYPE_CHECKING:
    from weightctl.adapters.conformance.simulation.world import World

PATIENCE_S = 50.0
ATTEMPTS = 6
"""Of a writer whose requests come to nothing."""
HOT, COLD = Residency.HOT, Residency.COLD


async def perform(world: "World", action: Action) -> None:
    """Carry out one action, as far as the world lets it."""
    with anyio.move_on_after(PATIENCE_S):
        try:
            await world.actions[action.name](world, action)
        except Exception as refused:
            if not isinstance(refused, WeightctlError) and "injected" not in str(refused):
                raise
            world.note(f"{action.name} {action.of}: {type(refused).__name__}")
        finally:
            world.acting -= 1


async def _leader(world: "World") -> Process:
    return await world.some_leader()


async def _record(world: "World", action: Action) -> tuple[Process, Subject, RevisionMetadata]:
    leader, subject = await _leader(world), subject_of(world, action)
    record = (await leader.store.get(identity=subject.identity)).metadata
    if action.amount < 0.05:  # somebody who knows only an older generation
        older = max(record.metadata_generation - 1, 1)
        record = replace(record, metadata_generation=older)
    return leader, subject, record


# --- writers --------------------------------------------------------------------------------------


async def import_revision(world: "World", action: Action) -> None:
    """A writer that tries until its revision is there, or somebody says no.

    Amount 1: stores into a cold tier too; 2: dies after storing; 3: after registering.
    """
    for _ in range(ATTEMPTS):
        try:
            await _import_once(world, action)
        except WeightError as refused:
            if refused.code in (ErrorCode.CONFLICT, ErrorCode.STALE_GENERATION):
                raise
            world.note(f"import of {action.of} again")
        except (WeightctlError, OSError, RuntimeError) as failed:
            world.note(f"import of {action.of} again: {type(failed).__name__}")
        else:
            return
        await asyncio.sleep(2.0)


async def _import_once(world: "World", action: Action) -> None:
    """Register, store, commit."""
    leader, subject = await _leader(world), subject_of(world, action)
    store = leader.store
    subject.heard_s = world.loop.time()
    record = await store.begin_import(
        identity=subject.identity,
        expected_payload_count=subject.reference.payload_count,
        expected_logical_bytes=subject.reference.logical_bytes,
    )
    subject.heard_s = world.loop.time()
    await store.directory.register(subject.identity, list(subject.members.values()))
    if action.amount == 3:
        return
    tiers = [tier for tier in leader.tiers if tier.profile.hot][:1]
    if action.amount == 1:
        tiers += [tier for tier in leader.tiers if not tier.profile.hot][:1]
    fence = Fence(holder=store.holder, term=store.term, operation_id=0, generation=1)
    batch = [
        StoreItem(member=member, open_source=source_of(subject.data[key]))
        for key, member in subject.members.items()
    ]
    for tier in tiers:
        await tier.store(batch, fence)
    if action.amount == 2:
        return
    group = await _look(leader, subject)
    for _ in range(2):
        if not all(group.readable):
            await tiers[0].store(batch, fence)
            group = await _look(leader, subject)
    await store.commit_import(
        identity=subject.identity,
        expected_metadata_generation=record.metadata_generation,
        manifest=subject.reference,
        group=group,
    )


async def _look(leader: Process, subject: Subject) -> GroupSnapshot:
    """Which members can be read somewhere now."""
    members = await leader.store.directory.members(subject.group_id)
    readable = bytearray(len(members))
    for tier in leader.tiers:
        seen = await tier.observe(members)
        for index, state in enumerate(seen.states[: len(members)]):
            readable[index] |= state == MemberState.COMPLETE
    return GroupSnapshot(members=members, readable=bytes(readable))


# --- users ----------------------------------------------------------------------------------------


async def _start(world: "World", action: Action, target: Residency) -> None:
    leader, subject, record = await _record(world, action)
    await leader.store.start_residency_operation(
        identity=subject.identity,
        expected_metadata_generation=record.metadata_generation,
        target_residency=target,
        member_count=len(subject.members),
    )


async def evict(world: "World", action: Action) -> None:
    await _start(world, action, COLD)


async def rehydrate(world: "World", action: Action) -> None:
    await _start(world, action, HOT)


async def repair(world: "World", action: Action) -> None:
    leader, subject, record = await _record(world, action)
    await leader.store.start_repair(
        identity=subject.identity,
        expected_metadata_generation=record.metadata_generation,
        target_residency=repair_target(record, None),
        member_count=len(subject.members),
        copies_short=True,
    )


async def delete(world: "World", action: Action) -> None:
    leader, subject, record = await _record(world, action)
    importing = record.availability is Availability.IMPORTING
    subject.aborted = subject.aborted or importing
    remove = leader.store.abort_import if importing else leader.store.delete_revision
    await remove(identity=subject.identity, expected_metadata_generation=record.metadata_generation)


async def lease(world: "World", action: Action) -> None:
    leader, subject, record = await _record(world, action)
    taken = await leader.store.acquire_lease(
        identity=subject.identity,
        expected_metadata_generation=record.metadata_generation,
        holder=f"reader-{int(action.amount * 10)}",
        ttl_ms=1000 + int(action.amount * 20_000),
    )
    subject.leases.append(taken.lease_id)


async def renew(world: "World", action: Action) -> None:
    leader, subject = await _leader(world), subject_of(world, action)
    for lease_id in subject.leases[-1:]:
        await leader.store.renew_lease(lease_id=lease_id, ttl_ms=int(action.amount * 20_000) + 1)


async def release(world: "World", action: Action) -> None:
    leader, subject = await _leader(world), subject_of(world, action)
    if subject.leases:
        lease_id = subject.leases.pop()
        world.ledger.released.add(lease_id)
        await leader.store.release_lease(lease_id=lease_id)


async def reader(world: "World", action: Action) -> None:
    """Takes a lease, renews it while it works, and then gives it back, leaks or loses it."""
    leader, subject, record = await _record(world, action)
    taken = await leader.store.acquire_lease(
        identity=subject.identity,
        expected_metadata_generation=record.metadata_generation,
        holder=f"worker-{int(action.amount * 10)}",
        ttl_ms=2000,
    )
    for _ in range(int(action.amount * 10)):
        await asyncio.sleep(1.0)
        await (await _leader(world)).store.renew_lease(lease_id=taken.lease_id, ttl_ms=2000)
    match int(action.amount * 100) % 3:
        case 0:
            world.ledger.released.add(taken.lease_id)
            world.acted["reader gives back"] += 1
            await (await _leader(world)).store.release_lease(lease_id=taken.lease_id)
        case 1:
            world.acted["reader leaks"] += 1
        case _:
            await asyncio.sleep(6.0)
            world.acted["reader loses"] += 1
            await (await _leader(world)).store.renew_lease(lease_id=taken.lease_id, ttl_ms=2000)


async def plan(world: "World", action: Action) -> None:
    """Ask the loop, and plan without a loop, what would be done."""
    leader, subject, record = await _record(world, action)
    await leader.controller.explain(subject.identity)
    PASS.set(PassTrace(subject.identity, world.loop.time(), dry=True))
    question = Question(
        record=record,
        operation=leader.store.operation(identity=subject.identity),
        members=await leader.store.directory.members(subject.group_id),
        leases=Leases(count=len(leader.store.leases(identity=subject.identity))),
        damage=leader.store.damage.rows(subject.group_id),
    )
    await observe_and_plan(
        question,
        leader.tiers,
        policy=world.policy,
        clock=leader.clock,
        options=ObserverOptions(deadline_s=2.0),
    )


async def wake(world: "World", action: Action) -> None:
    """Somebody has the loop look now."""
    leader, subject = await _leader(world), subject_of(world, action)
    leader.controller.wake(subject.identity)


ACTIONS: dict[str, Callable[["World", Action], Awaitable[None]]] = {
    "import": import_revision,
    "evict": evict,
    "rehydrate": rehydrate,
    "repair": repair,
    "delete": delete,
    "lease": lease,
    "renew": renew,
    "release": release,
    "reader": reader,
    "plan": plan,
    "wake": wake,
    **DISASTERS,
}
