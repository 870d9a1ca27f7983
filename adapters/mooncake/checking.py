"""How a cluster is set up, as far as it can be told without changing anything.  Layer: a tier.

For people who ask (`doctor`).  A Master does not say how it was started, so each check is of what
follows from that: what it counts, what it lists, what it answers.  Invariant: nothing is put and no
lease is taken; what cannot be told is no complaint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from weightctl.adapters.mooncake.client.codes import told
from weightctl.adapters.mooncake.client.engine import Engine
from weightctl.adapters.mooncake.master.serving import threaded
from weightctl.adapters.mooncake.proof.cold import silent_of
from weightctl.controller.errors import ReconcileError, TransientError
from weightctl.controller.ports import Check

if TYPE_CHECKING:
    from weightctl.adapters.mooncake.client.clients import CountedWorker
    from weightctl.adapters.mooncake.connection import Connection

TESTED = "0.3.13.post1"
"""The release of the client library that the tests run with."""
QUESTIONS = "master_query_task_requests_total"
DISK_BYTES = "master_total_file_capacity_bytes"
_CLIENT_S = 20.0
"""For a client to be set up: without a Master at `master` the library tries for 90 s."""
_TRIES = 4
_PAUSE_S = 1.0
NO_TASK = -1400
"""What a Master answers that was reached."""
_GIB = 1024**3


async def checks_of(connection: Connection, evidence_max_age_s: float) -> list[Check]:
    """Of what all tiers share; none while no Master serves, which each tier tells."""
    try:
        await connection.serving.health()
    except TransientError:
        return []
    return [
        *await _clients(connection),
        await _hosts(connection),
        _leases(connection, evidence_max_age_s),
    ]


# --- the library, and where it reaches a Master ---


async def _clients(connection: Connection) -> list[Check]:
    options, name = connection.options, _name(connection, "client")
    try:
        await _reach(connection)
        with anyio.fail_after(_CLIENT_S):
            async with connection.clients.reader() as worker:
                release = await worker.call(Engine.release)
                return [_release(name, release), await _one_master(connection, worker)]
    except TimeoutError:
        why = f"no client was set up at `master` ({options.master}) within {_CLIENT_S:g} s"
        return [Check(name=name, ok=False, detail=why, todo=_TODO_MASTER)]
    except ReconcileError as error:
        return [Check(name=name, ok=False, detail=f"{error.what}: {error.why}", todo=error.todo)]


_TODO_MASTER = "set `master` in [mooncake] to the Master's --rpc_address and --rpc_port"


async def _reach(connection: Connection) -> None:
    """Raise TransientError when nobody listens at `master`, which a client would try for long."""
    options = connection.options
    if options.master.startswith("etcd://"):
        return
    why = (await silent_of(connection, [options.master])).get(options.master)
    if why:
        what = f"nobody accepts a connection at `master` ({options.master})"
        raise TransientError(what, why, _TODO_MASTER)


def _release(name: str, release: str) -> Check:
    if release in ("", TESTED):
        return Check(name=name, ok=True, detail=f"the Mooncake client library {release or 'runs'}")
    return Check(
        name=name,
        ok=True,
        detail=f"the Mooncake client library is {release}; what weightctl relies on was tested"
        f" with {TESTED} and is undocumented",
        todo=f"install {TESTED}, or run weightctl's `make test-mooncake` with {release} first",
    )


async def _one_master(connection: Connection, worker: CountedWorker) -> Check:
    """Whether `admin` counts what is asked through `master`.

    Several times: a Master that is restarted in between counts from 0, and a client that was
    connected to the one before finds the new one only when it has failed.
    """
    options, name = connection.options, _name(connection, "addresses")
    code = NO_TASK
    for number in range(_TRIES):
        if number:
            await connection.context.clock.sleep(_PAUSE_S)
        before = await _count(connection, QUESTIONS)
        code = await worker.call(Engine.ask_for_nothing)
        after = await _count(connection, QUESTIONS)
        if code != NO_TASK:
            continue
        if before is None or after is None:
            return Check(name=name, ok=True, detail="the Master does not count what it is asked")
        if before != after:
            return Check(name=name, ok=True, detail="`master` and `admin` are one Master")
    if code != NO_TASK:
        why = f"`master` ({options.master}) did not answer a client: {told(code)}"
        return Check(name=name, ok=False, detail=why, todo=_TODO_MASTER)
    asked = ", ".join(options.admin) or f"the port {options.admin_port} of the leader"
    return Check(
        name=name,
        ok=False,
        detail=f"`admin` ({asked}) and `master` ({options.master}) are different Masters: what is"
        " asked through one is not counted by the other",
        todo="set `admin` or `admin_port` in [mooncake] to the --metrics_port of that same Master",
    )


async def _count(connection: Connection, name: str) -> float | None:
    """One number of the Master's; None when it has none of that name.  Raises TransientError."""
    serving = connection.serving
    return (await threaded(lambda: serving.admin.numbers(serving.health_now()))).get(name)


# --- hosts ---


async def _hosts(connection: Connection) -> Check:
    name = _name(connection, "hosts")
    try:
        hosts = await connection.segments.hosts()
    except TransientError as error:
        return Check(name=name, ok=False, detail=f"{error.what}: {error.why}", todo=error.todo)
    if not hosts:
        why = "the Master knows no host with memory, so nothing can be put"
        return Check(name=name, ok=False, detail=why, todo="start a host, or wait until it is back")
    strange = sorted(set(connection.options.segments) - {one.name for one in hosts})
    if strange:
        there = ", ".join(sorted({one.name for one in hosts}))
        why = f"`segments` names {', '.join(strange)}, which no host has; there are {there}"
        todo = "correct `segments` in [mooncake]: what is put on such a one lands anywhere"
        return Check(name=name, ok=False, detail=why, todo=todo)
    memory = _size(sum(one.capacity_bytes for one in hosts))
    return Check(name=name, ok=True, detail=f"segments: {len(hosts)}, together {memory}")


async def disks(connection: Connection, capacity_bytes: int) -> list[Check]:
    """Whether any host has told of a disk to offload to, and of enough; for that tier."""
    name = _name(connection, "disks")
    try:
        if not await connection.segments.hosts():
            return []
        total = await _count(connection, DISK_BYTES)
    except TransientError:
        return []
    if total is None:
        return [Check(name=name, ok=True, detail="the Master does not tell how large they are")]
    if total <= 0:
        return [
            Check(
                name=name,
                ok=False,
                detail="no host has told the Master of a disk, so no cold copy is ever made: the"
                " Master or its hosts run without offload",
                todo="start the Master with --enable_offload=true, then the hosts with"
                " --enable_offload=true (`enable_ssd_offload` of `setup()`); a host that has just"
                " started tells of its disk a little later than of its memory",
            )
        ]
    shown, declared = _size(int(total)), _size(capacity_bytes)
    if total < capacity_bytes:
        why = f"capacity_bytes is {declared}, and the hosts' disks have {shown} together"
        todo = "lower it, or start the hosts that are away"
        return [Check(name=name, ok=False, detail=why, todo=todo)]
    return [Check(name=name, ok=True, detail=f"the hosts' disks have {shown} together")]


# --- leases ---


def _leases(connection: Connection, evidence_max_age_s: float) -> Check:
    """Whether what was read for a drop still counts when the lease of that reading ends."""
    name, lease_s = _name(connection, "leases"), connection.options.lease_ttl_s
    if lease_s < evidence_max_age_s:
        return Check(name=name, ok=True, detail=f"they last {lease_s:g} s (lease_ttl_s)")
    return Check(
        name=name,
        ok=False,
        detail=f"reading takes a lease of {lease_s:g} s (lease_ttl_s), and what was read justifies"
        f" a drop for {evidence_max_age_s:g} s only (policy.evidence_max_age_s): no eviction ends",
        todo="lower the Master's --default_kv_lease_ttl and lease_ttl_s with it, or raise"
        " policy.evidence_max_age_s",
    )


def _name(connection: Connection, what: str) -> str:
    return f"cluster {connection.options.cluster}: {what}"


def _size(size_bytes: int) -> str:
    return f"{size_bytes / _GIB:.4g} GiB"
