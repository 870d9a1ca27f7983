"""Dropping memory replicas that an earlier client put: parking.  Layer: a tier; on the loop.

The Master lets only the client that put an object clear a replica of it, and after a restart the
controller is a new client.  But any client may have a replica moved, and may unmount a segment of
its own: the replicas are moved to a passing segment of the controller, which is then unmounted with
a grace, in which they can still be read and nothing new comes onto it.  Only objects with a
complete cold replica are moved there; whatever others put onto the segment meanwhile is moved away
before it goes.  The hosts' memory is free again after the Master's `put_start_release_timeout`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

from weightctl.adapters.mooncake.engine import Engine
from weightctl.adapters.mooncake.replicas import MEMORY, has_cold, in_memory, is_there, state_of
from weightctl.controller.core.observation import MemberState
from weightctl.controller.errors import TransientError
from weightctl.controller.ports import Done, Outcome, Permanent, Retry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weightctl.adapters.mooncake.admin import Segment
    from weightctl.adapters.mooncake.connection import Connection
    from weightctl.controller.core.observation import Member

POLL_S = 0.1
UNIT_BYTES = 16 * 1024 * 1024
"""Segments have a size in these."""
_OWN_BYTES = 64 * 1024
"""Room that the Master's allocator may lose around an object."""
_UNMOUNT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lot:
    """The passing segment."""

    ids: list[str]
    name: str
    endpoint: str


async def park(connection: Connection, members: Sequence[Member]) -> list[Outcome]:
    """Drop every memory replica of the members; a few at a time, the rest is Retry.

    Takes as long as the Master's leases.  Raises ReconcileError.
    """
    outcomes: list[Outcome] = []
    chosen: list[Member] = []
    room = connection.options.parking_bytes
    for member in members:
        needed = member.size_bytes + _OWN_BYTES
        if needed > connection.options.parking_bytes:
            outcomes.append(Permanent(detail=_too_large(connection, member)))
        elif needed > room:
            outcomes.append(Retry(detail="cannot drop yet: not the owner; parked after the others"))
        else:
            room -= needed
            outcomes.append(Retry(detail="cannot drop yet: not the owner; parking did not end"))
            chosen.append(member)
    if chosen:
        async with connection.parking:
            gone = await _park(connection, chosen)
        for index, member in enumerate(members):
            if member.key in gone:
                outcomes[index] = Done()
    return outcomes


def _too_large(connection: Connection, member: Member) -> str:
    return (
        f"cannot drop: not the owner. An earlier client put it and only that one may clear it; to"
        f" park it, parking_bytes must exceed its {member.size_bytes} bytes"
        f" (now {connection.options.parking_bytes}): raise it and restart"
    )


async def _park(connection: Connection, members: Sequence[Member]) -> set[str]:
    """The keys of which no memory replica is left."""
    needed = sum(member.size_bytes + _OWN_BYTES for member in members)
    size_bytes = -(-needed // UNIT_BYTES) * UNIT_BYTES
    async with connection.owner() as (worker, _):
        ids = await worker.call(Engine.mount, size_bytes)
    mounted = True
    try:
        lot = await _find(connection, ids)
        await _move_in(connection, lot, members)
        await _move_out(connection, lot, members)
        await _unmount(connection, ids)
        mounted = False
        return await _watch(connection, lot, members)
    finally:
        if mounted:
            with anyio.move_on_after(_UNMOUNT_S, shield=True):
                await _unmount(connection, ids)


async def _find(connection: Connection, ids: Sequence[str]) -> _Lot:
    for segment in await connection.segments():
        if segment.segment_id in ids:
            return _Lot(ids=list(ids), name=segment.name, endpoint=segment.endpoint)
    raise TransientError("the parking segment", "the Master does not list it", "it is tried again")


async def _move_in(connection: Connection, lot: _Lot, members: Sequence[Member]) -> None:
    """Have every memory replica of the members moved onto the lot; each step is looked at first."""
    left = {member.key: member for member in members}
    clock = connection.context.clock
    until_s = clock.monotonic_s() + connection.options.appear_s
    tasks: dict[str, tuple[int, int]] = {}
    while left and clock.monotonic_s() < until_s:
        names = {segment.endpoint: segment.name for segment in await connection.segments()}
        entries, _ = await connection.entries(list(left))
        async with connection.owner() as (worker, _):
            for key, member in list(left.items()):
                entry = entries.get(key)
                if entry is None:
                    continue
                elsewhere = [
                    names[found.endpoint]
                    for found in in_memory(entry)
                    if found.endpoint != lot.endpoint and found.endpoint in names
                ]
                if not is_there(entry) or not elsewhere or not has_cold(entry, member.size_bytes):
                    del left[key]
                    continue
                if key in tasks:
                    status, _ = await worker.call(Engine.task, tasks[key])
                    if status in {"PENDING", "PROCESSING"}:
                        continue
                task, code = await worker.call(Engine.move, key, elsewhere[0], lot.name)
                if code == 0:
                    tasks[key] = task
        await clock.sleep(POLL_S)


async def _move_out(connection: Connection, lot: _Lot, members: Sequence[Member]) -> None:
    """Move away what must not go with the lot: others' objects, and ours without a cold copy.

    Raises TransientError when something cannot be moved: then the lot stays until it can.
    """
    ours = {member.key: member for member in members}
    clock = connection.context.clock
    until_s = clock.monotonic_s() + connection.options.appear_s
    while True:
        staying = await _staying(connection, lot, ours)
        if not staying:
            return
        if clock.monotonic_s() > until_s:
            raise TransientError(
                "the parking segment cannot be unmounted",
                f"{len(staying)} objects on it have no other copy and no host takes them",
                "free memory on the hosts",
            )
        targets = [one for one in await connection.segments() if _takes(one, lot)]
        async with connection.owner() as (worker, _):
            for key, target in zip(staying, targets * len(staying), strict=False):
                await worker.call(Engine.move, key, lot.name, target.name)
        await clock.sleep(POLL_S)


async def _staying(connection: Connection, lot: _Lot, ours: dict[str, Member]) -> list[str]:
    used = {one.name: one.used_bytes for one in await connection.segments()}.get(lot.name, 0)
    keys = list(ours)
    if used > sum(member.size_bytes for member in ours.values()):
        keys = await connection.all_keys()
    entries, _ = await connection.entries(keys)
    return [
        key
        for key, entry in entries.items()
        if any(found.endpoint == lot.endpoint for found in in_memory(entry))
        and not (key in ours and has_cold(entry, ours[key].size_bytes))
    ]


def _takes(segment: Segment, lot: _Lot) -> bool:
    return segment.status == "OK" and segment.name != lot.name


async def _unmount(connection: Connection, ids: list[str]) -> None:
    grace_s = math.ceil(connection.options.lease_ttl_s)
    async with connection.owner() as (worker, _):
        code = await worker.call(Engine.unmount, ids, grace_s)
    if code != 0:
        raise TransientError("the parking segment", f"unmounting answered {code}", "tried again")


async def _watch(connection: Connection, lot: _Lot, members: Sequence[Member]) -> set[str]:
    """Wait until the lot is gone; which members have no memory replica and a cold one then."""
    clock = connection.context.clock
    until_s = clock.monotonic_s() + connection.options.lease_ttl_s + connection.options.appear_s
    while clock.monotonic_s() < until_s:
        entries, _ = await connection.entries([member.key for member in members])
        on_lot = [
            key
            for key, entry in entries.items()
            for found in in_memory(entry)
            if found.endpoint == lot.endpoint
        ]
        if not on_lot:
            return {
                member.key
                for member in members
                if (entry := entries.get(member.key)) is not None
                and state_of(entry, MEMORY, member.size_bytes) is MemberState.ABSENT
            }
        await clock.sleep(POLL_S)
    return set()
