"""Begin, commit, abort and listing on the pure state, row by row (contract 3.1-3.4, 2.6)."""

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.support.weights import (
    ID,
    LOGICAL_BYTES,
    World,
    code_of,
    draft,
    identity,
    ready,
    ready_world,
    reference,
    refuses,
)
from tests.unit.acceptance_rows import row
from weightctl.controller.core.identity import U64_MAX, Identity
from weightctl.controller.core.lifecycle import prepare_commit, publish_metadata
from weightctl.controller.core.queries import get_revision, list_revisions
from weightctl.controller.core.records import Availability, Residency, RevisionPage, Snapshot
from weightctl.controller.core.snapshot import export_snapshot, restore_snapshot
from weightctl.controller.errors import ErrorCode

INVALID = ErrorCode.INVALID_ARGUMENT
STALE = ErrorCode.STALE_GENERATION
CONFLICT = ErrorCode.CONFLICT


@pytest.mark.acceptance(19)
def test_begin_twice_is_a_no_op_with_the_identical_record() -> None:
    world = World()
    first = world.begin()
    second = world.at(900).begin()
    assert second.no_op
    assert second.next is first.next
    assert len(world.log) == 1


def other_count(world: World) -> object:
    return world.begin(expected_payload_count=2)


Refused = tuple[ErrorCode, Callable[[World], object]]

ON_IMPORTING = [
    row(20, "begin-with-a-different-group", INVALID, lambda w: w.begin(payload_group_id="x")),
    row(21, "begin-with-a-foreign-group", INVALID, lambda w: w.begin(payload_group_id="weight:")),
    row(
        21,
        "commit-with-a-foreign-manifest-key",
        INVALID,
        lambda w: w.commit(manifest=replace(reference(), manifest_key="weights/x")),
    ),
    row(
        21,
        "commit-with-a-foreign-group",
        INVALID,
        lambda w: w.commit(manifest=replace(reference(), payload_group_id="weight:x")),
    ),
    row(22, "commit-with-generation-plus-one-is-stale", STALE, lambda w: w.commit(2)),
    pytest.param(INVALID, lambda w: w.commit(0), id="commit-expecting-generation-0"),
    pytest.param(INVALID, lambda w: w.commit(U64_MAX + 1), id="commit-expecting-over-u64"),
    pytest.param(CONFLICT, other_count, id="begin-again-with-another-count"),
    pytest.param(INVALID, lambda w: w.begin(expected_payload_count=0), id="begin-of-nothing"),
    pytest.param(INVALID, lambda w: w.begin(expected_logical_bytes=0), id="begin-of-no-bytes"),
    pytest.param(INVALID, lambda w: w.begin(expected_logical_bytes=2**64), id="begin-over-u64"),
    pytest.param(
        CONFLICT,
        lambda w: w.commit(manifest=replace(reference(), logical_bytes=LOGICAL_BYTES + 1)),
        id="commit-other-than-declared",
    ),
    pytest.param(
        ErrorCode.NOT_FOUND, lambda w: w.commit(of=identity("other")), id="commit-unknown"
    ),
    pytest.param(ErrorCode.NOT_READY, lambda w: w.delete(1), id="delete-an-import"),
    pytest.param(ErrorCode.NOT_FOUND, lambda w: w.abort(1, identity("x")), id="abort-unknown"),
    pytest.param(STALE, lambda w: w.abort(2), id="abort-a-later-generation"),
    pytest.param(CONFLICT, lambda w: w.finish_delete(1), id="finish-a-delete-never-begun"),
]


@pytest.mark.parametrize("code, call", ON_IMPORTING)
def test_an_import_is_left_as_it_is_when(code: ErrorCode, call: Callable[[World], object]) -> None:
    world = World()
    world.begin()
    before = export_snapshot(world.state)
    refuses(code, lambda: call(world))
    assert export_snapshot(world.state) == before


LONG = [
    ("key-at-1024-bytes", "r" * (1024 - len("weights/n/m//1/manifest")), None),
    ("key-at-1025-bytes", "r" * (1025 - len("weights/n/m//1/manifest")), INVALID),
    ("component-at-its-limit", "r" * 1024, INVALID),
    ("bytes-that-count-three", "é" * 300, INVALID),
]


@pytest.mark.parametrize("revision, code", [line[1:] for line in LONG], ids=[n for n, _, _ in LONG])
def test_a_manifest_key_over_1024_bytes_is_refused_at_begin(
    revision: str, code: ErrorCode | None
) -> None:
    of = Identity(namespace="n", resource_id="m", revision=revision, weight_generation=1)
    assert of.problem() is None
    assert code_of(lambda: World().begin(of)) is code


@pytest.mark.acceptance(21)
def test_a_snapshot_with_foreign_names_is_refused() -> None:
    foreign = ready(manifest=replace(reference(), payload_group_id="weight:x"))
    refuses(INVALID, lambda: restore_snapshot(Snapshot(metadata=(foreign,))))


@pytest.mark.acceptance(23)
def test_commit_publishes_ready_hot_at_generation_2() -> None:
    record = ready_world().record()
    assert record == ready()
    assert (record.created_at_ms, record.updated_at_ms) == (100, 200)


@pytest.mark.acceptance(24)
def test_a_commit_retry_with_the_original_generation_is_a_no_op() -> None:
    world = ready_world()
    again = world.at(900).commit(1)
    assert again.no_op
    assert again.next is world.record()


ON_READY = [
    row(25, "commit-retry-with-generation-99", STALE, lambda w: w.commit(99)),
    pytest.param(
        CONFLICT,
        lambda w: w.commit(99, manifest=replace(reference(), manifest_sha256="c" * 64)),
        id="another-manifest-before-the-generation",
    ),
    pytest.param(CONFLICT, other_count, id="begin-again-with-another-count"),
    pytest.param(CONFLICT, lambda w: w.abort(2), id="abort-a-published-revision"),
    pytest.param(CONFLICT, lambda w: w.finish_delete(2), id="finish-a-delete-never-begun"),
    pytest.param(STALE, lambda w: w.delete(3), id="delete-a-later-generation"),
    pytest.param(
        STALE,
        lambda w: w.observe(1, Availability.DEGRADED, Residency.MIXED),
        id="observe-an-earlier-generation",
    ),
    pytest.param(
        INVALID,
        lambda w: w.observe(2, Availability.DELETED, Residency.ABSENT),
        id="observe-a-deletion",
    ),
    pytest.param(
        INVALID,
        lambda w: w.observe(2, Availability.DEGRADED, Residency.UNKNOWN),
        id="observe-nothing",
    ),
]


@pytest.mark.parametrize("code, call", ON_READY)
def test_a_ready_revision_is_left_as_it_is_when(
    code: ErrorCode, call: Callable[[World], object]
) -> None:
    world = ready_world()
    before = export_snapshot(world.state)
    refuses(code, lambda: call(world))
    assert export_snapshot(world.state) == before


def test_begin_of_a_ready_revision_with_the_same_declaration_is_a_no_op() -> None:
    assert ready_world().begin().no_op


def test_a_commit_retry_after_the_generation_moved_by_two_is_stale() -> None:
    world = ready_world()
    world.observe(2, Availability.DEGRADED, Residency.MIXED)
    world.observe(3, Availability.READY, Residency.HOT)
    refuses(STALE, lambda: world.commit(1))


@pytest.mark.acceptance(26)
def test_an_abort_retry_is_a_no_op_for_the_adjacent_generation_only() -> None:
    world = World()
    world.begin()
    assert world.abort(1).next == draft(availability=Availability.DELETING, metadata_generation=2)
    assert world.abort(1).no_op
    assert world.abort(2).no_op
    refuses(STALE, lambda: world.abort(99))


def listed() -> tuple[World, list[Identity]]:
    world = World()
    rows = [identity("step-10", 1), identity("step-10", 3), identity("step-20", 2)]
    for of in reversed(rows):
        world.begin(of)
    world.begin(replace(rows[0], resource_id="other"))
    world.begin(replace(rows[0], tenant_id="tenant-a"))
    return world, rows


def page(world: World, **changes: object) -> RevisionPage:
    arguments: dict[str, object] = {
        "namespace": ID.namespace,
        "resource_id": ID.resource_id,
        "now_ms": 0,
    }
    return list_revisions(world.state, **{**arguments, **changes})  # type: ignore[arg-type]


@pytest.mark.acceptance(27)
def test_get_finds_exactly_the_named_revision() -> None:
    world, rows = listed()
    for of in rows:
        assert get_revision(world.state, identity=of, now_ms=0).metadata.identity == of
    missing = identity("step-10", 2)
    refuses(ErrorCode.NOT_FOUND, lambda: get_revision(world.state, identity=missing, now_ms=0))


@pytest.mark.acceptance(28)
def test_list_pages_in_order_and_ends_with_an_empty_token() -> None:
    world, rows = listed()
    first = page(world, limit=2)
    assert [view.metadata.identity for view in first.revisions] == rows[:2]
    second = page(world, limit=2, page_token=first.next_page_token)
    assert [view.metadata.identity for view in second.revisions] == rows[2:]
    assert second.next_page_token == ""
    assert page(world, limit=3).next_page_token == ""


def test_list_orders_generations_numerically_and_starts_after_a_row_that_need_not_exist() -> None:
    world = World()
    for generation in (10, 2, 9):
        world.begin(identity("v", generation))
    assert [view.metadata.identity.weight_generation for view in page(world).revisions] == [
        2,
        9,
        10,
    ]
    rest = page(world, page_token="v\x1f3").revisions
    assert [view.metadata.identity.weight_generation for view in rest] == [9, 10]


BAD_LISTS: dict[str, dict[str, object]] = {
    "limit-0": {"limit": 0},
    "limit-1001": {"limit": 1001},
    "limit-of-another-type": {"limit": True},
    "tenant": {"tenant_id": "_x"},
    "namespace": {"namespace": ""},
    "resource": {"resource_id": ""},
    "token": {"page_token": "step-10"},
}


@pytest.mark.parametrize("changes", BAD_LISTS.values(), ids=BAD_LISTS.keys())
def test_list_refuses(changes: dict[str, object]) -> None:
    refuses(INVALID, lambda: page(World(), **changes))


@pytest.mark.acceptance(41)
@pytest.mark.parametrize("winner", [0, 1])
def test_of_two_prepared_commits_exactly_one_is_published(winner: int) -> None:
    world = World()
    world.begin()
    prepared = [
        prepare_commit(
            world.state,
            identity=ID,
            expected_metadata_generation=1,
            manifest=reference(),
            group=None,
            now_ms=now_ms,
        )
        for now_ms in (200, 201)
    ]
    publish_metadata(world.state, prepared[winner])
    refuses(STALE, lambda: publish_metadata(world.state, prepared[1 - winner]))
    assert world.record() == prepared[winner].next


@pytest.mark.acceptance(41)
def test_of_two_commits_published_by_two_threads_in_turn_exactly_one_succeeds() -> None:
    world, turn, outcomes = World(), threading.Lock(), []
    world.begin()
    prepared = [
        prepare_commit(
            world.state,
            identity=ID,
            expected_metadata_generation=1,
            manifest=reference(),
            group=None,
            now_ms=now_ms,
        )
        for now_ms in (200, 201)
    ]

    def publish(number: int) -> None:
        with turn:  # a state is single-threaded: whoever shares it takes turns
            outcomes.append(code_of(lambda: publish_metadata(world.state, prepared[number])))

    threads = [threading.Thread(target=publish, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes, key=str) == [STALE, None]
