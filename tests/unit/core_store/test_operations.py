"""Operations on the pure state, row by row (contract 3.9-3.13), and the start of a repair."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.support.weights import (
    ID,
    MEMBERS,
    World,
    evicting,
    lease,
    ready_world,
    refuses,
    running,
)
from tests.unit.acceptance_rows import row
from weightctl.controller.core.identity import U64_MAX
from weightctl.controller.core.leases import publish_lease
from weightctl.controller.core.mutations import (
    LeaseMutation,
    MetadataMutation,
    OperationMutation,
)
from weightctl.controller.core.operations import publish_operation
from weightctl.controller.core.queries import query_operation
from weightctl.controller.core.records import (
    COMPLETED,
    Availability,
    Operation,
    Residency,
)
from weightctl.controller.core.snapshot import export_snapshot, restore_snapshot
from weightctl.controller.core.starts import prepare_start
from weightctl.controller.errors import ErrorCode

HOT, COLD, MIXED, ABSENT = Residency.HOT, Residency.COLD, Residency.MIXED, Residency.ABSENT
READY, DEGRADED = Availability.READY, Availability.DEGRADED
INVALID, STALE, BUSY = ErrorCode.INVALID_ARGUMENT, ErrorCode.STALE_GENERATION, ErrorCode.BUSY
CONFLICT, NOT_READY = ErrorCode.CONFLICT, ErrorCode.NOT_READY


def evicting_world(now_ms: int = 300) -> World:
    world = ready_world().at(now_ms)
    world.start(2, COLD)
    return world


def restores(world: World) -> None:
    snapshot = export_snapshot(world.state)
    assert export_snapshot(restore_snapshot(snapshot)) == snapshot


@pytest.mark.acceptance(30)
def test_a_start_runs_and_a_second_one_depends_on_its_target() -> None:
    world = evicting_world()
    assert world.record() == evicting()
    assert world.state.operations[1] == running()
    assert world.start(2, COLD) is world.state.operations[1]
    refuses(STALE, lambda: world.start(99, COLD))
    refuses(BUSY, lambda: world.start(3, HOT))
    refuses(BUSY, lambda: world.start(99, HOT))


@pytest.mark.acceptance(31)
def test_progress_without_a_change_is_a_no_op_that_keeps_its_time() -> None:
    world = evicting_world()
    assert not world.at(400).progress(0, 4).no_op
    assert world.at(500).progress(0, 4).no_op
    assert world.state.operations[1].updated_at_ms == 400
    assert world.record() == evicting()


@pytest.mark.acceptance(32)
def test_time_never_goes_back_when_the_clock_does() -> None:
    world = evicting_world()
    restores(world)
    world.at(250).progress(1)
    assert world.state.operations[1].updated_at_ms == 300
    restores(world)
    assert world.at(200).finish(COLD).updated_at_ms == 300
    assert world.record().updated_at_ms == 300
    restores(world)


@pytest.mark.acceptance(33)
def test_a_live_lease_blocks_eviction_and_deletion() -> None:
    world = ready_world()
    world.acquire(ttl=100)
    refuses(BUSY, lambda: world.start(2, COLD))
    refuses(BUSY, lambda: world.delete(2))
    assert world.at(300).start(2, COLD).operation_id == 1


@pytest.mark.acceptance(35)
def test_a_lease_published_after_prepare_wins_over_the_operation() -> None:
    world = ready_world()
    prepared = start_of(world)
    publish_lease(world.state, LeaseMutation(lease_id=1, previous=None, next=lease()))
    refuses(BUSY, lambda: publish_operation(world.state, prepared))
    assert world.record().operation is Operation.NONE


def start_of(world: World) -> OperationMutation:
    return prepare_start(
        world.state,
        identity=ID,
        expected_metadata_generation=2,
        target_residency=COLD,
        member_count=MEMBERS,
        now_ms=300,
    )


@pytest.mark.acceptance(37)
def test_finish_makes_the_revision_idle_at_its_target_and_keeps_the_record() -> None:
    world = evicting_world()
    world.progress(1, cursor="k")
    world.finish(COLD)
    record = world.record()
    assert (record.operation, record.operation_id, record.residency) == (Operation.NONE, 0, COLD)
    assert record.metadata_generation == 4
    assert query_operation(world.state, operation_id=1) == running(
        processed_members=MEMBERS, message=COMPLETED
    )
    assert world.finish(COLD).message == COMPLETED
    refuses(CONFLICT, lambda: world.finish(HOT))


@pytest.mark.acceptance(38)
def test_two_operations_in_turn_restore_with_both_records_completed() -> None:
    world = evicting_world()
    world.finish(COLD)
    world.start(4, HOT)
    world.finish(HOT, number=2)
    assert [item.message for item in world.state.operations.values()] == [COMPLETED] * 2
    restores(world)


@pytest.mark.acceptance(44)
def test_a_foreign_operation_raises_the_counter_past_its_id() -> None:
    world = ready_world()
    publish_operation(world.state, foreign_start(world, 7))
    assert world.state.next_operation_id == 8
    restores(world)


@pytest.mark.acceptance(45)
def test_an_operation_with_the_last_id_is_never_published() -> None:
    world = ready_world()
    last = foreign_start(world, U64_MAX)
    refuses(ErrorCode.GENERATION_EXHAUSTED, lambda: publish_operation(world.state, last))


def foreign_start(world: World, number: int) -> OperationMutation:
    return OperationMutation(
        metadata=MetadataMutation(previous=world.record(), next=evicting(number)),
        previous=None,
        next=running(number),
    )


@pytest.mark.acceptance(53)
def test_progress_that_sees_another_placement_moves_both_generations_in_step() -> None:
    world = evicting_world()
    world.at(400).progress(1, seen=(DEGRADED, ABSENT))
    restores(world)
    assert world.record().metadata_generation == 4
    assert world.state.operations[1].fenced_metadata_generation == 4
    assert world.record().updated_at_ms == world.state.operations[1].updated_at_ms == 400
    assert world.at(500).progress(1, seen=(DEGRADED, ABSENT)).no_op
    world.progress(1, seen=(READY, HOT))
    assert world.record().metadata_generation == 5
    restores(world)


@pytest.mark.parametrize(
    "seen",
    [
        row(54, "ready-absent", (READY, ABSENT)),
        row(54, "importing", (Availability.IMPORTING, Residency.UNKNOWN)),
        row(54, "deleted", (Availability.DELETED, ABSENT)),
        pytest.param((DEGRADED, Residency.UNKNOWN), id="nothing-known"),
        pytest.param((READY, 255), id="no-residency-at-all"),
    ],
)
def test_progress_refuses_to_have_seen(seen: tuple[Availability, Residency]) -> None:
    world = evicting_world()
    before = export_snapshot(world.state)
    refuses(INVALID, lambda: world.progress(1, seen=seen))
    assert export_snapshot(world.state) == before


@pytest.mark.acceptance(55)
def test_a_record_that_changed_after_the_start_was_prepared_makes_it_stale() -> None:
    world = ready_world()
    prepared = start_of(world)
    world.observe(2, DEGRADED, MIXED)
    refuses(STALE, lambda: publish_operation(world.state, prepared))


def test_stored_progress_is_a_high_water_mark() -> None:
    world = evicting_world()
    world.progress(2, 5, "m")
    assert world.progress(1, 4, "a").no_op
    assert world.progress(2, 5, "z").no_op
    world.progress(3, 4, "n")
    stored = world.state.operations[1]
    assert (stored.processed_members, stored.total_members, stored.cursor) == (3, 5, "n")


def idle() -> World:
    world = evicting_world()
    world.finish(COLD)
    return world


def importing() -> World:
    world = World()
    world.begin()
    return world


@pytest.mark.parametrize(
    "code, make, call",
    [
        row(96, "start-on-importing", NOT_READY, importing, lambda w: w.start(1, COLD)),
        row(
            96,
            "query-unknown",
            ErrorCode.NOT_FOUND,
            ready_world,
            lambda w: query_operation(w.state, operation_id=5),
        ),
        pytest.param(INVALID, ready_world, lambda w: w.start(2, MIXED), id="start-mixed"),
        pytest.param(INVALID, ready_world, lambda w: w.start(0, COLD), id="start-expecting-0"),
        pytest.param(STALE, ready_world, lambda w: w.start(1, COLD), id="start-stale"),
        pytest.param(NOT_READY, ready_world, lambda w: w.start(2, COLD, 3), id="foreign-member"),
        pytest.param(NOT_READY, ready_world, lambda w: w.start(2, COLD, 0), id="empty-group"),
        pytest.param(INVALID, evicting_world, lambda w: w.progress(3, 2), id="more-than-all"),
        pytest.param(INVALID, evicting_world, lambda w: w.progress(0, 0), id="total-0"),
        pytest.param(INVALID, evicting_world, lambda w: w.progress(1, 2, "\n"), id="bad-cursor"),
        pytest.param(
            INVALID, evicting_world, lambda w: w.progress(1, number=0), id="progress-of-id-0"
        ),
        pytest.param(
            ErrorCode.NOT_FOUND,
            evicting_world,
            lambda w: w.progress(1, number=9),
            id="progress-of-an-unknown-one",
        ),
        pytest.param(CONFLICT, idle, lambda w: w.progress(1), id="progress-of-a-completed-one"),
        pytest.param(INVALID, evicting_world, lambda w: w.finish(MIXED), id="finish-mixed"),
        pytest.param(NOT_READY, evicting_world, lambda w: w.finish(HOT), id="finish-elsewhere"),
        pytest.param(BUSY, evicting_world, lambda w: w.delete(3), id="delete-while-evicting"),
        pytest.param(
            BUSY, evicting_world, lambda w: w.observe(3, DEGRADED, MIXED), id="observe-busy"
        ),
        pytest.param(
            ErrorCode.NOT_FOUND,
            evicting_world,
            lambda w: query_operation(w.state, operation_id=1, tenant_id="t"),
            id="query-of-another-tenant",
        ),
    ],
)
def test_an_operation_is_refused(
    code: ErrorCode, make: Callable[[], World], call: Callable[[World], object]
) -> None:
    world = make()
    before = export_snapshot(world.state)
    refuses(code, lambda: call(world))
    assert export_snapshot(world.state) == before


def at_the_end(generation: int) -> World:
    world = ready_world()
    world.state.put_metadata(replace(world.record(), metadata_generation=generation))
    return world


def test_the_last_generation_starts_nothing_and_burns_no_id() -> None:
    world = at_the_end(U64_MAX - 1)
    refuses(ErrorCode.GENERATION_EXHAUSTED, lambda: world.start(U64_MAX - 1, COLD))
    assert world.state.next_operation_id == 1


def test_an_operation_that_used_the_last_generation_cannot_finish() -> None:
    world = at_the_end(U64_MAX - 2)
    world.start(U64_MAX - 2, COLD)
    refuses(ErrorCode.GENERATION_EXHAUSTED, lambda: world.finish(COLD))
    refuses(ErrorCode.GENERATION_EXHAUSTED, lambda: world.progress(1, seen=(READY, MIXED)))
    assert not world.progress(1).no_op


def test_no_operation_id_is_left_when_the_counter_stands_at_the_last() -> None:
    world = ready_world()
    world.state.next_operation_id = U64_MAX
    refuses(ErrorCode.GENERATION_EXHAUSTED, lambda: world.start(2, COLD))


# --- repair ---------------------------------------------------------------------------------------


def degraded() -> World:
    world = ready_world()
    world.observe(2, DEGRADED, MIXED)
    return world


def repairing() -> World:
    world = degraded()
    world.repair(3)
    return world


@pytest.mark.parametrize(
    "code, make, call",
    [
        pytest.param(INVALID, degraded, lambda w: w.repair(0), id="expecting-0"),
        pytest.param(INVALID, degraded, lambda w: w.repair(3, MIXED), id="target-mixed"),
        pytest.param(ErrorCode.NOT_FOUND, World, lambda w: w.repair(3), id="unknown"),
        pytest.param(STALE, repairing, lambda w: w.repair(99), id="same-repair-stale"),
        pytest.param(BUSY, repairing, lambda w: w.repair(4, COLD), id="other-target"),
        pytest.param(BUSY, repairing, lambda w: w.start(4, HOT), id="rehydrate-while-repairing"),
        pytest.param(BUSY, repairing, lambda w: w.start(99, COLD), id="evict-while-repairing"),
        pytest.param(BUSY, repairing, lambda w: w.delete(4), id="delete-while-repairing"),
        pytest.param(BUSY, evicting_world, lambda w: w.repair(3, COLD), id="repair-while-evicting"),
        pytest.param(STALE, degraded, lambda w: w.repair(2), id="stale"),
        pytest.param(NOT_READY, ready_world, lambda w: w.repair(2), id="nothing-missing"),
        pytest.param(NOT_READY, importing, lambda w: w.repair(1, short=True), id="importing"),
    ],
)
def test_a_repair_is_refused(
    code: ErrorCode, make: Callable[[], World], call: Callable[[World], object]
) -> None:
    world = make()
    refuses(code, lambda: call(world))


def test_a_repair_heals_a_degraded_revision_and_its_retry_is_a_no_op() -> None:
    world = repairing()
    assert world.record().operation is Operation.REPAIRING
    assert world.repair(3) is world.state.operations[1]
    restores(world)
    refuses(NOT_READY, lambda: world.finish(COLD))
    world.finish(HOT)
    record = world.record()
    assert (record.availability, record.residency, record.operation_id) == (READY, HOT, 0)
    assert record.metadata_generation == 5
    restores(world)


def test_a_repair_of_too_few_copies_starts_under_a_live_lease() -> None:
    world = ready_world()
    world.acquire(ttl=5000)
    assert world.repair(2, short=True).fenced_metadata_generation == 3
    restores(world)
    world.finish(HOT)
    assert len(world.state.active_leases(ID, 300)) == 1
    refuses(BUSY, lambda: world.start(4, COLD))
