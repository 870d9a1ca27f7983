"""Dropping memory replicas that an earlier client put: parking.  Layer: a tier; on the loop.

The Master lets only the client that put an object clear a replica of it, and after a restart the
controller is a new client.  But any client may have a replica moved, and may unmount a segment of
its own: so the replicas are moved to a passing segment of the controller, the lot, which is then
drained of everything else and unmounted with a grace, in which they can still be read.  The hosts'
memory is free again after the Master's `put_start_release_timeout`.  Invariant: what `lot` cannot
prove to be free of others' objects stays mounted, and the drop waits.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from weightctl.adapters.mooncake.master.replicas import MEMORY, is_there, state_of
from weightctl.adapters.mooncake.options import MIB
from weightctl.adapters.mooncake.parking.drain import Drains
from weightctl.adapters.mooncake.parking.lot import OWN_BYTES, Lot
from weightctl.controller.core.observation import MemberState
from weightctl.controller.ports import Done, Outcome, Permanent, Retry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weightctl.adapters.mooncake.connection import Connection
    from weightctl.controller.core.observation import Member

_log = logging.getLogger(__name__)
_NO_DRAIN = (
    "cannot drop: not the owner. An earlier client put it and only that one may clear it; to park"
    " it without harm to others' objects a Master is needed that knows drain jobs, and this one"
    " does not: delete the revision and import it again"
)


async def park(connection: Connection, members: Sequence[Member]) -> list[Outcome]:
    """Drop every memory replica of the members; a few at a time, the rest is Retry.

    Takes as long as the Master's leases.  Raises ReconcileError.
    """
    outcomes: list[Outcome] = []
    chosen: list[Member] = []
    room = connection.options.parking_bytes
    for member in members:
        needed = member.size_bytes + OWN_BYTES
        if needed > connection.options.parking_bytes:
            outcomes.append(Permanent(detail=_too_large(connection, member)))
        elif needed > room:
            outcomes.append(Retry(detail="cannot drop yet: not the owner; parked after the others"))
        else:
            room -= needed
            outcomes.append(Retry(detail="cannot drop yet: not the owner; parking did not end"))
            chosen.append(member)
    if chosen and not await _can(connection):
        return [Permanent(detail=_NO_DRAIN)] * len(members)
    if chosen:
        parked = await _park(connection, chosen)
        for index, member in enumerate(members):
            outcomes[index] = parked.get(member.key, outcomes[index])
    return outcomes


def foretold(connection: Connection, keys: Sequence[str]) -> str:
    """How the memory replicas of these would be dropped by this process, for people."""
    owner, book = connection.clients.last_owner_name, connection.book
    rows = [book.get(key) for key in keys]
    cleared = sum(row is not None and row.owner == owner for row in rows)
    told = []
    if cleared:
        told.append(f"of {cleared} objects is cleared at once, by the client that has put them")
    if cleared < len(keys):
        room = connection.options.parking_bytes // MIB
        told.append(
            f"of {len(keys) - cleared} objects is parked, because this process has not put them:"
            " it is moved over the network onto a passing segment of weightctl's, up to"
            f" {room} MiB at a time, which goes after {connection.options.lease_ttl_s:g} s"
        )
    return f"memory {' and '.join(told)}" if told else ""


def _too_large(connection: Connection, member: Member) -> str:
    return (
        f"cannot drop: not the owner. An earlier client put it and only that one may clear it; to"
        f" park it, parking_bytes must exceed its {member.size_bytes} bytes"
        f" (now {connection.options.parking_bytes}): raise it and restart"
    )


async def _can(connection: Connection) -> bool:
    health = await connection.serving.health()
    drains = Drains(health.address, connection.options.deadline_s)
    return await to_thread.run_sync(drains.can)


async def _park(connection: Connection, members: Sequence[Member]) -> dict[str, Outcome]:
    """By key what was seen after the lot has gone, or why it has not."""
    async with connection.parking:
        before = connection.lot
        if before is not None and not {one.key for one in members} & before.members.keys():
            await _gone(connection, before)
        lot = connection.lot
        if lot is None:
            lot = connection.lot = Lot(connection, members)
            lot.start()
            size_bytes = sum(one.size_bytes for one in members)
            _log.info("parks %d objects (%d bytes) to drop them", len(members), size_bytes)
        await _gone(connection, lot)
    entries, _ = await connection.look.entries([member.key for member in members])
    found: dict[str, Outcome] = {}
    for member in members:
        entry = entries.get(member.key)
        if is_there(entry) and state_of(entry, MEMORY, member.size_bytes) is MemberState.ABSENT:
            found[member.key] = Done()
        else:
            found[member.key] = Retry(detail=f"cannot drop yet: not the owner; parking: {lot.why}")
    return found


async def _gone(connection: Connection, lot: Lot) -> None:
    """Wait for it, as long as each of its steps may take; it goes on when nobody waits any more."""
    options = connection.options
    with anyio.move_on_after(2 * options.appear_s + options.lease_ttl_s):
        await lot.ended.wait()
