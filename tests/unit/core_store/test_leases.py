"""Leases on the pure state, row by row (contract 3.5-3.8)."""

from collections.abc import Callable

import pytest

from tests.support.weights import (
    ID,
    World,
    identity,
    lease,
    ready,
    ready_world,
    refuses,
)
from tests.unit.acceptance_rows import row
from weightctl.controller.core.identity import U64_MAX
from weightctl.controller.core.leases import prepare_acquire, publish_lease
from weightctl.controller.core.mutations import LeaseMutation
from weightctl.controller.core.queries import get_revision
from weightctl.controller.core.records import Availability, Residency, Snapshot
from weightctl.controller.core.snapshot import export_snapshot, restore_snapshot
from weightctl.controller.errors import ErrorCode

HOT, COLD = Residency.HOT, Residency.COLD


@pytest.mark.acceptance(29)
def test_a_lease_is_live_until_the_millisecond_before_it_expires() -> None:
    world = ready_world().at(300)
    taken = world.acquire(ttl=50)
    assert [item.lease_id for item in world.state.active_leases(ID, 349)] == [taken.lease_id]
    assert world.state.active_leases(ID, 350) == []
    assert world.at(349).expire() == []
    assert world.at(350).expire() == [taken.lease_id]
    assert world.expire() == []


@pytest.mark.acceptance(29)
def test_a_lease_counts_for_the_next_generation_too() -> None:
    world = ready_world().at(300)
    world.acquire(ttl=50)
    world.observe(2, Availability.READY, Residency.MIXED)
    view = get_revision(world.state, identity=ID, now_ms=349)
    assert (view.active_lease_count, view.nearest_lease_expiry_ms) == (1, 350)
    assert get_revision(world.state, identity=ID, now_ms=350).nearest_lease_expiry_ms is None


@pytest.mark.acceptance(46)
def test_a_renewal_never_shortens_and_keeps_the_fence() -> None:
    world = ready_world().at(300)
    world.acquire(ttl=100)
    expiries = [world.at(350).renew(1, ttl).expires_at_ms for ttl in (10, 50, 100)]
    assert expiries == [400, 400, 450]
    assert world.state.leases[1].fenced_metadata_generation == 2
    refuses(ErrorCode.LEASE_EXPIRED, lambda: world.at(450).renew(1, 10))


@pytest.mark.acceptance(47)
def test_a_renewal_near_the_end_of_time_saturates() -> None:
    world = ready_world().at(U64_MAX - 100)
    assert world.acquire(ttl=50).expires_at_ms == U64_MAX - 50
    assert world.renew(1, 1000).expires_at_ms == U64_MAX


@pytest.mark.acceptance(48)
def test_expiry_of_one_revision_returns_only_its_expired_lease() -> None:
    world, other = ready_world(), identity("other")
    world.begin(other)
    world.commit(of=other)
    world.at(300).acquire(ttl=10)
    world.acquire(ttl=500, holder="second")
    world.acquire(ttl=10, of=other)
    assert world.at(310).expire(ID) == [1]
    assert world.expire() == [3]


@pytest.mark.acceptance(60)
def test_acquire_retry_renew_and_release_twice() -> None:
    world = ready_world()
    first = world.acquire(ttl=1000)
    assert world.at(250).acquire(ttl=5000) is first
    assert world.at(300).renew(first.lease_id, 2000).expires_at_ms == 2300
    assert not world.release(first.lease_id).no_op
    assert world.release(first.lease_id).no_op
    assert world.state.leases == {}


@pytest.mark.acceptance(61)
def test_acquire_before_the_present_generation_is_stale_and_a_dead_lease_is_not_renewed() -> None:
    world = ready_world()
    refuses(ErrorCode.STALE_GENERATION, lambda: world.acquire(1))
    taken = world.acquire(ttl=100)
    refuses(ErrorCode.LEASE_EXPIRED, lambda: world.at(300).renew(taken.lease_id, 100))


@pytest.mark.acceptance(62)
def test_a_restored_lease_fenced_before_the_present_generation_counts() -> None:
    state = restore_snapshot(
        Snapshot(metadata=(ready(metadata_generation=3),), leases=(lease(),), next_lease_id=2)
    )
    assert len(state.active_leases(ID, 399)) == 1


@pytest.mark.acceptance(42)
def test_a_foreign_lease_raises_the_counter_past_its_id() -> None:
    world = ready_world()
    published = publish_lease(
        world.state, LeaseMutation(lease_id=7, previous=None, next=lease(7, holder="elsewhere"))
    )
    assert (published.lease_id, world.state.next_lease_id) == (7, 8)
    restore_snapshot(export_snapshot(world.state))
    assert world.acquire().lease_id == 8


@pytest.mark.acceptance(43)
def test_a_lease_with_the_last_id_is_never_published() -> None:
    world = ready_world()
    last = LeaseMutation(lease_id=U64_MAX, previous=None, next=lease(U64_MAX))
    refuses(ErrorCode.GENERATION_EXHAUSTED, lambda: publish_lease(world.state, last))


def test_no_id_is_left_when_the_counter_stands_at_the_last() -> None:
    world = ready_world()
    world.state.next_lease_id = U64_MAX - 1
    assert world.acquire().lease_id == U64_MAX - 1
    restore_snapshot(export_snapshot(world.state))
    refuses(ErrorCode.GENERATION_EXHAUSTED, lambda: world.acquire(holder="next"))


def test_of_several_live_leases_of_a_holder_the_one_that_expires_last_is_returned() -> None:
    world = ready_world()
    world.at(1000).acquire(ttl=100)
    world.at(1200).acquire(ttl=1000)
    world.state.put_lease(lease(3, expires_at_ms=1500))
    assert world.at(1000).acquire(ttl=1).lease_id == 2


def test_a_lease_that_became_undue_between_prepare_and_publish_is_stale() -> None:
    world = ready_world()
    prepared = prepare_acquire(
        world.state,
        identity=ID,
        expected_metadata_generation=2,
        holder="h",
        ttl_ms=10,
        now_ms=200,
    )
    world.observe(2, Availability.READY, Residency.MIXED)
    refuses(ErrorCode.STALE_GENERATION, lambda: publish_lease(world.state, prepared))
    assert world.acquire(3).lease_id == 2


def degraded() -> World:
    world = ready_world()
    world.acquire(ttl=5000)
    world.observe(2, Availability.DEGRADED, Residency.MIXED)
    return world


def evicting() -> World:
    world = ready_world()
    world.start(2, COLD)
    return world


def leased() -> World:
    world = ready_world()
    world.acquire()
    return world


def importing() -> World:
    world = World()
    world.begin()
    return world


INVALID = ErrorCode.INVALID_ARGUMENT
NOT_FOUND = ErrorCode.NOT_FOUND


@pytest.mark.parametrize(
    "code, make, call",
    [
        row(96, "acquire-on-importing", ErrorCode.NOT_READY, importing, lambda w: w.acquire(1)),
        row(96, "renew-unknown", NOT_FOUND, ready_world, lambda w: w.renew(9, 1)),
        pytest.param(INVALID, ready_world, lambda w: w.acquire(0), id="expecting-0"),
        pytest.param(INVALID, ready_world, lambda w: w.acquire(ttl=0), id="ttl-0"),
        pytest.param(
            INVALID, ready_world, lambda w: w.acquire(ttl=86_400_001), id="ttl-over-a-day"
        ),
        pytest.param(INVALID, ready_world, lambda w: w.acquire(holder=""), id="no-holder"),
        pytest.param(ErrorCode.NOT_READY, degraded, lambda w: w.acquire(3), id="acquire-degraded"),
        pytest.param(
            ErrorCode.NOT_READY, degraded, lambda w: w.renew(1, 9999), id="renew-degraded"
        ),
        pytest.param(ErrorCode.BUSY, evicting, lambda w: w.acquire(3), id="acquire-while-evicting"),
        pytest.param(NOT_FOUND, leased, lambda w: w.renew(1, 5, "t"), id="renew-another-tenants"),
        pytest.param(NOT_FOUND, leased, lambda w: w.release(1, "t"), id="release-another-tenants"),
        pytest.param(INVALID, leased, lambda w: w.release(1, "_t"), id="release-bad-tenant"),
        pytest.param(INVALID, leased, lambda w: w.release(0), id="release-id-0"),
        pytest.param(INVALID, leased, lambda w: w.renew(1, 0), id="renew-ttl-0"),
        pytest.param(
            NOT_FOUND, ready_world, lambda w: w.acquire(of=identity("x")), id="acquire-unknown"
        ),
    ],
)
def test_a_lease_is_refused(
    code: ErrorCode, make: Callable[[], World], call: Callable[[World], object]
) -> None:
    world = make()
    before = export_snapshot(world.state)
    refuses(code, lambda: call(world))
    assert export_snapshot(world.state) == before


@pytest.mark.acceptance(96)
def test_release_of_an_unknown_lease_succeeds_and_gives_an_otherwise_empty_lease() -> None:
    world = ready_world()
    mutation = world.release(9)
    assert mutation.no_op
    assert publish_lease(world.state, mutation).lease_id == 9
    assert publish_lease(world.state, mutation).holder == ""


def test_a_lease_may_be_renewed_while_a_repair_runs_but_none_is_given() -> None:
    world = leased()
    world.repair(2, short=True)
    assert world.renew(1, 900).expires_at_ms == 1100
    refuses(ErrorCode.BUSY, lambda: world.acquire(3, holder="second"))
