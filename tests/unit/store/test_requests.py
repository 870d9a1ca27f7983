"""The requests through the store: the service's rows of the acceptance table, and the gate."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.stores import (
    GATED,
    begin,
    commit,
    deleted,
    many,
    opened,
    published,
    refused,
    seen,
)
from tests.support.virtual_time import VirtualClock
from tests.support.weights import ID, LOGICAL_BYTES, MEMBERS, PAYLOADS, identity, reference
from tests.unit.acceptance_rows import row
from weightctl.controller.core.identity import Identity, payload_group_id
from weightctl.controller.core.records import Availability, Operation, Residency, Snapshot
from weightctl.controller.errors import ErrorCode
from weightctl.controller.store.gate import CapabilityGate
from weightctl.controller.store.store import WeightMetadataStore

Call = Callable[[WeightMetadataStore], Awaitable[Any]]


def commits(generation: int, of: Identity = ID) -> Call:
    return lambda store: store.commit_import(
        identity=of, expected_metadata_generation=generation, manifest=reference(of)
    )


async def commit_seen(store: WeightMetadataStore, of: Identity) -> object:
    """Commit with a fresh look at the group as it is now."""
    return await store.commit_import(
        identity=of,
        expected_metadata_generation=1,
        manifest=reference(of),
        group=seen(await store.directory.members(payload_group_id(of))),
    )


def acquires(generation: int = 2, holder: str = "loader", ttl_ms: int = 100) -> Call:
    return lambda store: store.acquire_lease(
        identity=ID, expected_metadata_generation=generation, holder=holder, ttl_ms=ttl_ms
    )


def starts(generation: int = 2, target: Residency = Residency.COLD) -> Call:
    return lambda store: store.start_residency_operation(
        identity=ID,
        expected_metadata_generation=generation,
        target_residency=target,
        member_count=MEMBERS,
    )


def deletes(generation: int = 2) -> Call:
    return lambda store: store.delete_revision(identity=ID, expected_metadata_generation=generation)


ON_IMPORTING = [
    row(95, "commit-with-an-empty-group", lambda s: commit_seen(s, ID), ErrorCode.NOT_FOUND),
    pytest.param(commits(1, identity("none")), ErrorCode.NOT_FOUND, id="commit-unknown"),
    row(96, "acquire", acquires(1), ErrorCode.NOT_READY),
    row(96, "renew-unknown", lambda s: s.renew_lease(lease_id=9, ttl_ms=1), ErrorCode.NOT_FOUND),
    row(96, "start", starts(1), ErrorCode.NOT_READY),
    row(96, "query-unknown", lambda s: s.query_operation(operation_id=9), ErrorCode.NOT_FOUND),
    row(
        98,
        "list-limit-1001",
        lambda s: s.list_revisions(namespace="n", resource_id="r", limit=1001),
        ErrorCode.INVALID_ARGUMENT,
    ),
]


@pytest.mark.parametrize("call, code", ON_IMPORTING)
async def test_request_beside_an_importing_revision(
    tmp_path: Path, call: Call, code: ErrorCode
) -> None:
    async with opened(tmp_path) as store:
        record = await begin(store, ID)
        await refused(code, lambda: call(store))
        assert (await store.get(identity=ID)).metadata is record
        assert store.last_sequence == 1


@pytest.mark.acceptance(94)
async def test_begin_retry_is_equal_and_reads_see_the_importing_record(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        record = await begin(store, ID)
        assert await begin(store, ID) == record
        assert (await store.get(identity=ID)).metadata == record
        page = await store.list_revisions(namespace=ID.namespace, resource_id=ID.resource_id)
        assert [view.metadata for view in page.revisions] == [record]


@pytest.mark.acceptance(96)
async def test_release_of_an_unknown_lease_is_a_success(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.release_lease(lease_id=9)


@pytest.mark.acceptance(97)
async def test_abort_then_cleanup_then_delete_of_the_tombstone(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await begin(store, ID)
        aborted = await store.abort_import(identity=ID, expected_metadata_generation=1)
        assert aborted.availability is Availability.DELETING
        done = await store.finish_delete(identity=ID, expected_metadata_generation=2)
        assert (done.availability, done.residency) == (Availability.DELETED, Residency.ABSENT)
        again = await store.delete_revision(identity=ID, expected_metadata_generation=3)
        assert again == done


@pytest.mark.acceptance(71)
async def test_commit_with_a_generation_ahead_is_stale(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await begin(store, ID)
        await refused(ErrorCode.STALE_GENERATION, lambda: commits(2)(store))


@pytest.mark.acceptance(72)
async def test_life_of_a_lease(tmp_path: Path) -> None:
    clock = VirtualClock(wall_ms=1000)
    async with opened(tmp_path, clock) as store:
        await published(store, ID)
        lease = await acquires()(store)
        assert await acquires()(store) == lease
        clock.jump(0.05)
        renewed = await store.renew_lease(lease_id=lease.lease_id, ttl_ms=100)
        assert renewed.expires_at_ms == lease.expires_at_ms + 50
        view = await store.get(identity=ID)
        assert (view.active_lease_count, view.nearest_lease_expiry_ms) == (1, 1150)
        assert store.leases(identity=ID) == (renewed,)
        for _ in range(2):
            await store.release_lease(lease_id=lease.lease_id)
        assert (await store.get(identity=ID)).active_lease_count == 0


@pytest.mark.acceptance(73)
async def test_lease_blocks_start_and_delete(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await published(store, ID)
        await acquires()(store)
        await refused(ErrorCode.BUSY, lambda: starts()(store))
        await refused(ErrorCode.BUSY, lambda: deletes()(store))


async def test_operation_is_visible_while_it_runs_and_queryable_for_ever(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await published(store, ID)
        started = await starts()(store)
        assert store.operation(identity=ID) == started
        assert store.operation(identity=identity("none")) is None
        done = await store.finish_operation(
            operation_id=started.operation_id, observed_residency=Residency.COLD
        )
        assert store.operation(identity=ID) is None
        await store.delete_revision(identity=ID, expected_metadata_generation=4)
        await store.finish_delete(identity=ID, expected_metadata_generation=5)
        assert await store.query_operation(operation_id=started.operation_id) == done


async def test_repair_starts_on_a_degraded_revision_beside_a_lease(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await published(store, ID)
        lease = await acquires()(store)
        await store.publish_observation(
            identity=ID,
            expected_metadata_generation=2,
            availability=Availability.DEGRADED,
            residency=Residency.MIXED,
        )
        repair = await store.start_repair(
            identity=ID,
            expected_metadata_generation=3,
            target_residency=Residency.HOT,
            member_count=MEMBERS,
        )
        assert repair.operation is Operation.REPAIRING
        assert store.leases(identity=ID) == (lease,)


# --- leases and time ------------------------------------------------------------------------------


async def test_expiry_shares_commits_and_a_renewal_that_comes_first_wins(tmp_path: Path) -> None:
    clock = VirtualClock(wall_ms=1000)
    identities = many(100)
    async with opened(tmp_path, clock) as store:
        await asyncio.gather(*(published(store, of) for of in identities))
        leases = await asyncio.gather(
            *(
                store.acquire_lease(
                    identity=of, expected_metadata_generation=2, holder="h", ttl_ms=100
                )
                for of in identities
            )
        )
        clock.jump(0.099)
        before = store.commits
        renewal = asyncio.create_task(store.renew_lease(lease_id=leases[0].lease_id, ttl_ms=100))
        await asyncio.sleep(0)  # the renewal holds its revision
        clock.jump(0.001)
        erased = await store.expire_leases()
        await renewal
        assert [lease.lease_id for lease in erased] == [lease.lease_id for lease in leases[1:]]
        assert store.commits - before <= 3
        assert store.leases(identity=identities[0]) != ()
        assert await store.expire_leases(identity=identities[5]) == ()


async def test_delete_takes_the_expired_leases_along_in_one_commit(tmp_path: Path) -> None:
    clock = VirtualClock(wall_ms=1000)
    async with opened(tmp_path, clock) as store:
        await published(store, ID)
        for holder in ("a", "b", "c"):
            await acquires(holder=holder)(store)
        clock.jump(1)
        commits_before, last = store.commits, store.last_sequence
        await deletes()(store)
        assert store.commits == commits_before + 1
        assert store.last_sequence == last + 4
    async with opened(tmp_path, clock) as store:
        assert (await store.export_snapshot()).leases == ()


# --- subscribers ----------------------------------------------------------------------------------


async def test_subscribers_hear_of_every_publication_and_of_nothing_else(tmp_path: Path) -> None:
    heard: list[Identity] = []
    async with opened(tmp_path) as store:
        stop = store.subscribe(heard.append)
        await begin(store, ID)
        await begin(store, ID)
        await commit(store, ID)
        assert heard == [ID, ID]
        stop()
        stop()
        await acquires()(store)
        assert heard == [ID, ID]


async def test_failing_subscriber_harms_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: Identity) -> None:
        raise RuntimeError("the subscriber is broken")

    heard: list[Identity] = []
    async with opened(tmp_path) as store:
        store.subscribe(broken)
        store.subscribe(heard.append)
        await begin(store, ID)
        assert heard == [ID]
        assert store.healthy
    assert "the subscriber is broken" in caplog.text


# --- the capability gate --------------------------------------------------------------------------

GATES = {
    "default": (CapabilityGate(), True),
    "no-ha": (CapabilityGate(enable_oplog=True, backend="etcd"), True),
    "no-oplog": (CapabilityGate(enable_ha=True, backend="etcd"), True),
    "other-backend": (CapabilityGate(enable_ha=True, enable_oplog=True, backend="file"), True),
    "unconfirmed": (GATED, False),
    "confirmed": (
        CapabilityGate(
            enable_ha=True,
            enable_oplog=True,
            backend="etcd",
            weight_management_oplog_capability_confirmed=True,
        ),
        True,
    ),
}


@pytest.mark.acceptance(112)
@pytest.mark.parametrize("gate, enabled", GATES.values(), ids=GATES.keys())
def test_gate_is_closed_only_for_an_unconfirmed_etcd_log(
    gate: CapabilityGate, *, enabled: bool
) -> None:
    assert gate.enabled is enabled


MUTATIONS = {
    "begin": lambda store: begin(store, identity("new")),
    "abort": lambda store: store.abort_import(
        identity=identity("draft"), expected_metadata_generation=1
    ),
    "commit": lambda store: commit(store, identity("draft")),
    "acquire": acquires(holder="another"),
    "renew": lambda store: store.renew_lease(lease_id=2, ttl_ms=10),
    "release": lambda store: store.release_lease(lease_id=1),
    "expire": lambda store: store.expire_leases(),
    "observe": lambda store: store.publish_observation(
        identity=ID,
        expected_metadata_generation=2,
        availability=Availability.DEGRADED,
        residency=Residency.MIXED,
    ),
    "start": lambda store: store.start_residency_operation(
        identity=identity("idle"),
        expected_metadata_generation=2,
        target_residency=Residency.COLD,
        member_count=MEMBERS,
    ),
    "repair": lambda store: store.start_repair(
        identity=identity("idle"),
        expected_metadata_generation=2,
        target_residency=Residency.COLD,
        member_count=MEMBERS,
        copies_short=True,
    ),
    "delete": lambda store: store.delete_revision(
        identity=identity("idle"), expected_metadata_generation=2
    ),
    "progress": lambda store: store.update_progress(
        operation_id=1,
        processed_members=1,
        total_members=MEMBERS,
        cursor="",
        availability=Availability.READY,
        residency=Residency.HOT,
    ),
    "finish": lambda store: store.finish_operation(
        operation_id=1, observed_residency=Residency.COLD
    ),
    "finish-delete": lambda store: store.finish_delete(
        identity=identity("leaving"), expected_metadata_generation=2
    ),
}
UNAFFECTED = {
    "get": lambda store: store.get(identity=ID),
    "list": lambda store: store.list_revisions(namespace="n", resource_id="r"),
    "query": lambda store: store.query_operation(operation_id=1),
    "begin-again": lambda store: begin(store, ID),
    "commit-again": lambda store: commit(store, ID),
    "acquire-again": acquires(holder="live"),
    "release-unknown": lambda store: store.release_lease(lease_id=99),
    "abort-again": lambda store: store.abort_import(
        identity=identity("leaving"), expected_metadata_generation=1
    ),
    "expire-nothing": lambda store: store.expire_leases(identity=identity("idle")),
    "export": lambda store: store.export_snapshot(),
}
CHECKED_FIRST = {
    "invalid": (lambda store: begin(store, identity("")), ErrorCode.INVALID_ARGUMENT),
    "unknown": (commits(1, identity("none")), ErrorCode.NOT_FOUND),
    "stale": (deletes(9), ErrorCode.STALE_GENERATION),
    "busy-by-a-lease": (deletes(), ErrorCode.BUSY),
    "not-ready": (
        lambda store: store.acquire_lease(
            identity=identity("draft"), expected_metadata_generation=1, holder="x", ttl_ms=1
        ),
        ErrorCode.NOT_READY,
    ),
    "expired": (
        lambda store: store.renew_lease(lease_id=1, ttl_ms=10),
        ErrorCode.LEASE_EXPIRED,
    ),
    "conflict": (
        lambda store: store.begin_import(
            identity=ID, expected_payload_count=PAYLOADS, expected_logical_bytes=LOGICAL_BYTES + 1
        ),
        ErrorCode.CONFLICT,
    ),
}


async def prepared(folder: Path) -> VirtualClock:
    """Fill a store in which every kind of mutation has something to do."""
    clock = VirtualClock(wall_ms=1000)
    async with opened(folder, clock) as store:
        for name in ("idle", "working"):
            await published(store, identity(name))
        await published(store, ID)
        for name in ("draft", "leaving"):
            await begin(store, identity(name))
        await store.abort_import(identity=identity("leaving"), expected_metadata_generation=1)
        await acquires(holder="dead", ttl_ms=1)(store)
        await acquires(holder="live", ttl_ms=10_000)(store)
        await store.start_residency_operation(
            identity=identity("working"),
            expected_metadata_generation=2,
            target_residency=Residency.COLD,
            member_count=MEMBERS,
        )
    clock.jump(1)
    return clock


@pytest.mark.parametrize("call", MUTATIONS.values(), ids=MUTATIONS.keys())
async def test_closed_gate_refuses_each_mutation_and_an_open_one_admits_it(
    tmp_path: Path, call: Call
) -> None:
    clock = await prepared(tmp_path)
    async with opened(tmp_path, clock, GATED) as store:
        before = await store.export_snapshot()
        error = await refused(ErrorCode.DURABILITY_FAILED, lambda: call(store))
        assert "CapabilityUnconfirmed" in error.why
        after = await store.export_snapshot()
        assert (after.metadata, after.leases, after.operations) == (
            before.metadata,
            before.leases,
            before.operations,
        )
    async with opened(tmp_path, clock) as store:
        last = store.last_sequence
        await call(store)
        assert store.last_sequence > last


async def test_closed_gate_refuses_every_way_to_restore_after_the_snapshot_was_checked(
    tmp_path: Path,
) -> None:
    state, file = tmp_path / "state", tmp_path / "file"
    clock = await prepared(state)
    async with opened(state, clock, GATED) as store:
        await store.save_archive(file)
        before = await store.export_snapshot()
        invalid = replace(before, next_lease_id=0)
        await refused(ErrorCode.INVALID_ARGUMENT, lambda: store.restore_snapshot(invalid))
        for call in (
            lambda: store.restore_snapshot(Snapshot()),
            lambda: store.restore_snapshot(before),
            lambda: store.restore_archive(file),
        ):
            error = await refused(ErrorCode.DURABILITY_FAILED, call)
            assert "CapabilityUnconfirmed" in error.why
        assert await store.export_snapshot() == before
        await refused(ErrorCode.DURABILITY_FAILED, lambda: begin(store, identity("new")))
    async with opened(state, clock) as store:
        await store.restore_archive(file)
        await store.restore_snapshot(Snapshot())


@pytest.mark.parametrize("call", UNAFFECTED.values(), ids=UNAFFECTED.keys())
async def test_closed_gate_lets_reads_and_no_ops_pass(tmp_path: Path, call: Call) -> None:
    clock = await prepared(tmp_path)
    async with opened(tmp_path, clock, GATED) as store:
        await call(store)


@pytest.mark.parametrize("call, code", CHECKED_FIRST.values(), ids=CHECKED_FIRST.keys())
async def test_closed_gate_comes_after_argument_and_state_checks(
    tmp_path: Path, call: Call, code: ErrorCode
) -> None:
    clock = await prepared(tmp_path)
    async with opened(tmp_path, clock, GATED) as store:
        await refused(code, lambda: call(store))


async def test_gate_does_not_undo_what_was_there(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await published(store, ID)
        tombstone = await deleted(store, ID)
    async with opened(tmp_path, gate=GATED) as store:
        assert (await store.get(identity=ID)).metadata == tombstone
