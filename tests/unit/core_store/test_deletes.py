"""Delete, tombstones, observations and the managed-group guard, row by row (3.14-3.17, 6)."""

import pytest

from tests.support.weights import (
    ID,
    World,
    code_of,
    evicting,
    identity,
    lease,
    ready,
    ready_world,
    refuses,
    running,
)
from tests.unit.acceptance_rows import row
from weightctl.controller.core.group import is_managed, may_change_members
from weightctl.controller.core.identity import U64_MAX, payload_group_id
from weightctl.controller.core.leases import prepare_acquire, publish_lease
from weightctl.controller.core.lifecycle import prepare_delete, publish_metadata
from weightctl.controller.core.mutations import LeaseMutation, MetadataMutation
from weightctl.controller.core.oplog import LeaseDelete, MetadataDelete, MetadataUpsert
from weightctl.controller.core.records import (
    Availability,
    MutationKind,
    Operation,
    Residency,
    Snapshot,
)
from weightctl.controller.core.snapshot import (
    export_snapshot,
    restore_snapshot,
    validate_snapshot,
)
from weightctl.controller.errors import ErrorCode

A, R = Availability, Residency
INVALID, STALE, BUSY = ErrorCode.INVALID_ARGUMENT, ErrorCode.STALE_GENERATION, ErrorCode.BUSY
GROUP = payload_group_id(ID)


def delete_of(world: World, now_ms: int = 200) -> MetadataMutation:
    return prepare_delete(world.state, identity=ID, expected_metadata_generation=2, now_ms=now_ms)


@pytest.mark.acceptance(34)
def test_a_lease_published_after_prepare_wins_over_the_delete() -> None:
    world = ready_world()
    prepared = delete_of(world)
    publish_lease(world.state, LeaseMutation(lease_id=1, previous=None, next=lease()))
    refuses(BUSY, lambda: publish_metadata(world.state, prepared))
    assert world.record() == ready()


def test_no_lease_survives_under_a_delete_when_the_clock_went_back() -> None:
    world = ready_world(now_ms=500)
    prepared = delete_of(world, now_ms=100)
    world.publish(
        prepare_acquire(
            world.state,
            identity=ID,
            expected_metadata_generation=2,
            holder="h",
            ttl_ms=50,
            now_ms=100,
        )
    )
    refuses(BUSY, lambda: publish_metadata(world.state, prepared))


def test_a_delete_erases_the_expired_leases_in_the_same_transaction() -> None:
    world = ready_world()
    world.acquire(ttl=10)
    world.log.clear()
    world.at(210).delete(2)
    assert [type(payload) for payload in world.log] == [LeaseDelete, MetadataUpsert]
    assert world.state.leases == {}
    validate_snapshot(export_snapshot(world.state))


@pytest.mark.acceptance(36)
def test_an_observation_of_ready_and_absent_is_refused() -> None:
    world = ready_world()
    refuses(INVALID, lambda: world.observe(2, A.READY, R.ABSENT))
    refuses(INVALID, lambda: world.observe(99, A.READY, R.ABSENT))
    absent = ready(residency=R.ABSENT, metadata_generation=3)
    mutation = MetadataMutation(previous=world.record(), next=absent)
    refuses(INVALID, lambda: publish_metadata(world.state, mutation))
    assert world.record().residency is R.HOT


def test_an_observation_publishes_a_change_and_nothing_else() -> None:
    world = ready_world()
    assert world.observe(2, A.READY, R.HOT).no_op
    assert world.observe(2, A.DEGRADED, R.ABSENT).next == world.record()
    assert world.record().metadata_generation == 3
    world.observe(3, A.READY, R.HOT)
    assert world.record().availability is A.READY


@pytest.mark.acceptance(40)
def test_a_delete_ends_in_a_tombstone_whose_group_stays_managed() -> None:
    world = ready_world()
    world.delete(2)
    assert (world.record().availability, world.record().residency) == (A.DELETING, R.HOT)
    world.finish_delete(3)
    record = world.record()
    assert (record.availability, record.residency, record.metadata_generation) == (
        A.DELETED,
        R.ABSENT,
        4,
    )
    assert record.manifest == ready().manifest
    assert is_managed(world.state, ID.tenant_id, GROUP)
    refuses(ErrorCode.CONFLICT, world.begin)


@pytest.mark.parametrize(
    "generation, code",
    [
        row(51, "the-present-generation", 4, None),
        row(51, "the-one-before", 3, None),
        row(51, "two-before", 2, STALE),
        pytest.param(5, STALE, id="one-ahead"),
    ],
)
def test_delete_of_a_tombstone_is_fenced(generation: int, code: ErrorCode | None) -> None:
    world = ready_world()
    world.delete(2)
    world.finish_delete(3)
    assert code_of(lambda: world.delete(generation)) is code
    assert code_of(lambda: world.finish_delete(generation)) is code


def test_delete_and_abort_of_a_deleting_revision_are_no_ops_for_their_author() -> None:
    world = ready_world()
    world.delete(2)
    assert world.delete(2).no_op
    assert world.abort(3).no_op
    refuses(STALE, lambda: world.delete(1))
    refuses(STALE, lambda: world.abort(99))


@pytest.mark.acceptance(52)
def test_groups_of_two_tenants_are_managed_and_stay_so_while_deleting() -> None:
    world, other = ready_world(), identity(tenant="tenant-a")
    world.begin(other)
    world.delete(2)
    assert world.state.groups == {GROUP: ID, payload_group_id(other): other}
    assert is_managed(world.state, ID.tenant_id, GROUP)
    assert is_managed(world.state, "tenant-a", payload_group_id(other))
    assert not is_managed(world.state, "tenant-a", GROUP)
    assert may_change_members(world.state, "tenant-a", GROUP)


def test_only_an_import_lets_its_members_be_written() -> None:
    world = World()
    assert may_change_members(world.state, ID.tenant_id, GROUP)
    assert not is_managed(world.state, ID.tenant_id, GROUP)
    world.begin()
    assert is_managed(world.state, ID.tenant_id, GROUP)
    assert may_change_members(world.state, ID.tenant_id, GROUP)
    world.commit()
    assert not may_change_members(world.state, ID.tenant_id, GROUP)
    world.delete(2)
    assert not may_change_members(world.state, ID.tenant_id, GROUP)
    world.finish_delete(3)
    assert not may_change_members(world.state, ID.tenant_id, GROUP)


# --- publish --------------------------------------------------------------------------------------


def test_publish_of_an_erase_removes_record_group_and_row() -> None:
    world = ready_world()
    erase = MetadataMutation(previous=world.record(), next=None, kind=MutationKind.ERASE)
    world.log.clear()
    world.publish(erase)
    assert world.log == [MetadataDelete(identity=ID, metadata_generation=2)]
    assert export_snapshot(world.state) == Snapshot()
    assert not is_managed(world.state, ID.tenant_id, GROUP)
    refuses(STALE, lambda: publish_metadata(world.state, erase))
    nothing = MetadataMutation(previous=None, next=None, kind=MutationKind.ERASE)
    refuses(ErrorCode.NOT_FOUND, lambda: publish_metadata(world.state, nothing))


def test_publish_never_erases_a_record_that_owns_leases_or_operations() -> None:
    world = ready_world()
    world.acquire(ttl=10)
    erase = MetadataMutation(previous=world.record(), next=None, kind=MutationKind.ERASE)
    refuses(BUSY, lambda: publish_metadata(world.state, erase))
    world.at(300).expire()
    world.start(2, R.COLD)
    world.finish(R.COLD)
    erase = MetadataMutation(previous=world.record(), next=None, kind=MutationKind.ERASE)
    refuses(BUSY, lambda: publish_metadata(world.state, erase))


def test_publish_refuses_a_group_that_another_revision_owns() -> None:
    world = ready_world()
    world.state.groups[GROUP] = identity("thief")
    refuses(ErrorCode.CONFLICT, world.begin)
    refuses(ErrorCode.CONFLICT, lambda: world.observe(2, A.DEGRADED, R.ABSENT))


def test_the_last_generation_refuses_every_change() -> None:
    last = U64_MAX - 1
    world = World(state=restore_snapshot(Snapshot(metadata=(ready(metadata_generation=last),))))
    exhausted = ErrorCode.GENERATION_EXHAUSTED
    refuses(exhausted, lambda: world.observe(last, A.DEGRADED, R.ABSENT))
    refuses(exhausted, lambda: world.delete(last))
    assert world.observe(last, A.READY, R.HOT).no_op


# --- snapshots ------------------------------------------------------------------------------------


def snapshot(**changes: object) -> Snapshot:
    arguments: dict[str, object] = {
        "metadata": (evicting(),),
        "operations": (running(),),
        "next_operation_id": 2,
    }
    return Snapshot(**{**arguments, **changes})  # type: ignore[arg-type]


LEASED = {"metadata": (ready(),), "operations": (), "next_lease_id": 2}
IDLE_COLD = ready(metadata_generation=4, residency=R.COLD)
COMPLETED = running(message="completed", processed_members=2)


@pytest.mark.parametrize(
    "changes",
    [
        row(39, "unknown-availability", {"metadata": (ready(availability=255),)}),
        row(
            39,
            "unknown-operation",
            {"metadata": (ready(operation=255, operation_id=1),), "operations": ()},
        ),
        row(39, "evicting-towards-hot", {"operations": (running(target_residency=R.HOT),)}),
        row(49, "duplicate-metadata", {"metadata": (evicting(), evicting())}),
        row(49, "next-lease-id-0", {"next_lease_id": 0}),
        row(
            50,
            "lease-on-a-deleted-revision",
            {
                **LEASED,
                "metadata": (ready(availability=A.DELETED, residency=R.ABSENT),),
                "leases": (lease(),),
            },
        ),
        row(108, "next-lease-id-0", {"next_lease_id": 0}),
        pytest.param({"schema_version": 2}, id="newer-schema"),
        pytest.param({"next_operation_id": 1}, id="operation-counter-behind"),
        pytest.param({"next_operation_id": 2**64}, id="operation-counter-over-u64"),
        pytest.param({**LEASED, "leases": (lease(2),)}, id="lease-counter-behind"),
        pytest.param({**LEASED, "leases": (lease(), lease())}, id="lease-twice"),
        pytest.param({**LEASED, "leases": (lease(0),)}, id="lease-id-0"),
        pytest.param({**LEASED, "leases": (lease(holder=""),)}, id="lease-without-holder"),
        pytest.param({**LEASED, "leases": (lease(expires_at_ms=0),)}, id="lease-expires-0"),
        pytest.param(
            {**LEASED, "leases": (lease(fenced_metadata_generation=3),)}, id="lease-fence-ahead"
        ),
        pytest.param(
            {**LEASED, "leases": (lease(fenced_metadata_generation=0),)}, id="lease-fence-0"
        ),
        pytest.param(
            {**LEASED, "leases": (lease(identity=identity("x")),)}, id="lease-of-no-revision"
        ),
        pytest.param({"operations": ()}, id="running-without-record"),
        pytest.param({"metadata": ()}, id="operation-of-no-revision"),
        pytest.param({"operations": (running(), running())}, id="operation-twice"),
        pytest.param({"operations": (running(operation=Operation.NONE),)}, id="no-operation"),
        pytest.param({"operations": (running(operation=Operation.REPAIRING),)}, id="another-kind"),
        pytest.param({"operations": (running(updated_at_ms=1),)}, id="operation-time-goes-back"),
        pytest.param({"operations": (running(processed_members=3),)}, id="more-than-all"),
        pytest.param({"operations": (running(cursor="\n"),)}, id="bad-cursor"),
        pytest.param(
            {"operations": (running(fenced_metadata_generation=2),)}, id="running-fence-behind"
        ),
        pytest.param({"operations": (COMPLETED,)}, id="running-revision-with-completed-record"),
        pytest.param(
            {
                "metadata": (
                    ready(operation=Operation.EVICTING, operation_id=1, metadata_generation=5),
                ),
                "operations": (COMPLETED,),
            },
            id="running-revision-with-long-completed-record",
        ),
        pytest.param(
            {"metadata": (ready(metadata_generation=4),), "operations": (COMPLETED,)},
            id="completed-last-but-not-at-its-target",
        ),
        pytest.param(
            {"metadata": (IDLE_COLD,), "operations": (running(),)}, id="idle-but-not-completed"
        ),
        pytest.param(
            {
                "metadata": (ready(metadata_generation=3, residency=R.COLD),),
                "operations": (COMPLETED,),
            },
            id="completed-but-its-fence-not-passed",
        ),
    ],
)
def test_a_snapshot_is_refused_by_validator_and_restore(changes: dict[str, object]) -> None:
    bad = snapshot(**changes)
    refuses(INVALID, lambda: validate_snapshot(bad))
    refuses(INVALID, lambda: restore_snapshot(bad))


@pytest.mark.parametrize(
    "good",
    [
        row(107, "empty", Snapshot()),
        row(107, "running", snapshot()),
        row(107, "completed", snapshot(metadata=(IDLE_COLD,), operations=(COMPLETED,))),
        row(
            107,
            "leases-and-counters",
            snapshot(**{**LEASED, "leases": (lease(),), "next_lease_id": 9}),
        ),
    ],
)
def test_a_snapshot_round_trips(good: Snapshot) -> None:
    assert export_snapshot(restore_snapshot(good)) == good


def test_a_snapshot_is_exported_in_identity_and_id_order() -> None:
    world = World()
    for of in (identity("b"), identity("a", 10), identity("a", 2), identity("a", tenant="B")):
        world.begin(of)
    exported = export_snapshot(world.state).metadata
    assert [str(record.identity).split("/")[-1] for record in exported] == [
        "a@7",
        "a@2",
        "a@10",
        "b@7",
    ]
