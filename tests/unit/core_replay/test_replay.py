"""Acceptance of op-log entries, row by row (contract 7.3)."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.support.weights import (
    ID,
    MEMBERS,
    draft,
    entries,
    evicting,
    identity,
    lease,
    ready,
    ready_world,
    refuses,
    running,
)
from tests.unit.acceptance_rows import row
from weightctl.controller.core.identity import U64_MAX
from weightctl.controller.core.oplog import (
    LeaseDelete,
    LeaseUpsert,
    MetadataDelete,
    MetadataUpsert,
    Payload,
    emitted,
)
from weightctl.controller.core.records import (
    COMPLETED,
    Availability,
    Residency,
    Snapshot,
)
from weightctl.controller.core.replay import Entry, Replay
from weightctl.controller.core.snapshot import (
    export_snapshot,
    restore_snapshot,
    validate_snapshot,
)
from weightctl.controller.core.state import WeightState
from weightctl.controller.errors import ErrorCode, WeightError

A, R = Availability, Residency
DEGRADED = ready(availability=A.DEGRADED, residency=R.MIXED, metadata_generation=3)
DELETING = ready(availability=A.DELETING, metadata_generation=3)
DONE = running(processed_members=MEMBERS, message=COMPLETED)
COLD = ready(metadata_generation=4, residency=R.COLD, updated_at_ms=300)
ERASED = MetadataDelete(identity=ID, metadata_generation=2)
RELEASED = LeaseDelete(lease_id=1, identity=ID, fenced_metadata_generation=2)


def up(record: object, operation: object = None) -> MetadataUpsert:
    return MetadataUpsert(metadata=record, operation=operation)  # type: ignore[arg-type]


STARTED = up(evicting(), running())
BASE = (up(draft()), up(ready()))


def replayed(*payloads: Payload) -> Replay:
    replay = Replay(WeightState())
    for entry in entries(*payloads):
        assert replay.apply(entry)
        validate_snapshot(export_snapshot(replay.state))
    return replay


def refused(replay: Replay, entry: Entry) -> None:
    before, expected = export_snapshot(replay.state), replay.expected_sequence
    with pytest.raises(WeightError):
        replay.apply(entry)
    assert export_snapshot(replay.state) == before
    assert replay.expected_sequence == expected


def next_entry(replay: Replay, payload: Payload) -> Entry:
    return entries(payload, start=replay.expected_sequence)[0]


@pytest.mark.acceptance(99)
def test_an_earlier_generation_is_refused_and_the_sequence_stays() -> None:
    replay = replayed(*BASE)
    refused(replay, next_entry(replay, up(draft())))
    assert replay.expected_sequence == 3


@pytest.mark.acceptance(100)
def test_importing_becomes_ready() -> None:
    assert replayed(*BASE).state.metadata == {ID: ready()}


ACCEPTED: list[tuple[str, Sequence[Payload]]] = [
    ("same-record-twice", (*BASE, up(ready()))),
    ("operation-start", (*BASE, STARTED)),
    ("operation-start-twice", (*BASE, STARTED, STARTED)),
    ("progress-only", (*BASE, STARTED, up(evicting(), running(processed_members=1)))),
    ("completion-twice", (*BASE, STARTED, up(COLD, DONE), up(COLD, DONE))),
    ("lease", (*BASE, LeaseUpsert(lease=lease()))),
    ("lease-twice", (*BASE, LeaseUpsert(lease=lease()), LeaseUpsert(lease=lease()))),
    ("renewal", (*BASE, LeaseUpsert(lease=lease()), LeaseUpsert(lease=lease(expires_at_ms=500)))),
    ("release-twice", (*BASE, LeaseUpsert(lease=lease()), RELEASED, RELEASED)),
    ("erase-twice", (*BASE, ERASED, ERASED)),
    ("degraded-and-back", (*BASE, up(DEGRADED), up(ready(metadata_generation=4)))),
    ("delete", (*BASE, up(DELETING))),
    ("aborted-import", (up(draft()), up(draft(availability=A.DELETING, metadata_generation=2)))),
]


@pytest.mark.acceptance(101, 102)
@pytest.mark.parametrize("payloads", [line[1] for line in ACCEPTED], ids=[n for n, _ in ACCEPTED])
def test_replay_accepts(payloads: Sequence[Payload]) -> None:
    replayed(*payloads)


@pytest.mark.parametrize(
    "base, payload",
    [
        row(103, "operation-without-its-record", BASE, up(evicting())),
        pytest.param((), up(ready()), id="unknown-revision-beyond-generation-1"),
        pytest.param(BASE, up(ready(metadata_generation=4)), id="generation-jump"),
        pytest.param(BASE, up(ready(residency=R.COLD)), id="same-generation-other-record"),
        pytest.param(BASE, up(replace(DEGRADED, updated_at_ms=199)), id="time-goes-back"),
        pytest.param(BASE, up(replace(DEGRADED, created_at_ms=99)), id="created-changes"),
        pytest.param(
            BASE,
            up(replace(DEGRADED, manifest=replace(ready().manifest, manifest_sha256="c" * 64))),
            id="reference-changes",
        ),
        pytest.param(
            (up(draft()),),
            up(ready(manifest=replace(ready().manifest, payload_count=2))),
            id="commit-other-than-declared",
        ),
        pytest.param(
            BASE,
            up(ready(availability=A.DELETED, residency=R.ABSENT, metadata_generation=3)),
            id="illegal-transition",
        ),
        pytest.param(BASE, up(ready(residency=R.ABSENT, metadata_generation=3)), id="invalid"),
        pytest.param(
            BASE, up(evicting(), running(fenced_metadata_generation=2)), id="fence-behind"
        ),
        pytest.param(BASE, up(evicting(), running(2)), id="operation-of-another-id"),
        pytest.param(
            BASE, up(evicting(), running(identity=identity("x"))), id="operation-of-another"
        ),
        pytest.param(
            BASE, up(evicting(), running(target_residency=R.HOT)), id="evicting-towards-hot"
        ),
        pytest.param(BASE, up(evicting(), DONE), id="running-but-completed"),
        pytest.param(BASE, up(DEGRADED, running()), id="idle-but-not-completed"),
        pytest.param((*BASE, STARTED), up(COLD), id="orphaned-running-operation"),
        pytest.param(
            (*BASE, STARTED),
            up(replace(COLD, residency=R.HOT), DONE),
            id="completed-away-from-its-target",
        ),
        pytest.param(
            (*BASE, STARTED),
            up(
                replace(evicting(2), metadata_generation=4),
                running(2, fenced_metadata_generation=4),
            ),
            id="replaced-running-operation",
        ),
        pytest.param(
            (*BASE, up(evicting(), running(processed_members=1))),
            up(evicting(), running()),
            id="progress-goes-back",
        ),
        pytest.param(
            (*BASE, STARTED), up(evicting(), running(started_at_ms=299)), id="start-changes"
        ),
        pytest.param(
            (*BASE, up(evicting(), running(updated_at_ms=310))),
            up(evicting(), running(updated_at_ms=305, processed_members=1)),
            id="operation-time-goes-back",
        ),
        pytest.param(
            (*BASE, STARTED, up(COLD, DONE)),
            up(replace(COLD, residency=R.MIXED, metadata_generation=5), DONE),
            id="completed-operation-away-from-its-target",
        ),
        pytest.param(
            (*BASE, STARTED, up(COLD, DONE)),
            up(COLD, replace(DONE, total_members=9)),
            id="completed-operation-changes",
        ),
        pytest.param(
            (up(draft()),), LeaseUpsert(lease=lease(fenced_metadata_generation=1)), id="lease-draft"
        ),
        pytest.param(
            BASE, LeaseUpsert(lease=lease(fenced_metadata_generation=1)), id="new-lease-behind"
        ),
        pytest.param((), LeaseUpsert(lease=lease()), id="lease-of-no-revision"),
        pytest.param(
            (*BASE, LeaseUpsert(lease=lease())),
            LeaseUpsert(lease=lease(expires_at_ms=399)),
            id="lease-shrinks",
        ),
        pytest.param(
            (*BASE, LeaseUpsert(lease=lease())),
            LeaseUpsert(lease=lease(holder="thief")),
            id="lease-changes-hands",
        ),
        pytest.param(
            (*BASE, LeaseUpsert(lease=lease()), RELEASED),
            LeaseUpsert(lease=lease()),
            id="erased-lease-comes-back",
        ),
        pytest.param(BASE, RELEASED, id="release-of-an-unknown-lease"),
        pytest.param(
            (*BASE, LeaseUpsert(lease=lease())),
            replace(RELEASED, fenced_metadata_generation=1),
            id="release-with-another-fence",
        ),
        pytest.param((*BASE, LeaseUpsert(lease=lease())), up(DELETING), id="lease-under-deleting"),
        pytest.param(BASE, replace(ERASED, metadata_generation=1), id="erase-stale"),
        pytest.param((), ERASED, id="erase-unknown"),
        pytest.param((*BASE, LeaseUpsert(lease=lease())), ERASED, id="erase-with-leases"),
        pytest.param(
            (*BASE, STARTED, up(COLD, DONE)),
            replace(ERASED, metadata_generation=4),
            id="erase-with-operations",
        ),
        pytest.param(BASE, LeaseUpsert(lease=lease(U64_MAX)), id="last-lease-id"),
        pytest.param(BASE, up(evicting(U64_MAX), running(U64_MAX)), id="last-operation-id"),
    ],
)
def test_replay_refuses(base: Sequence[Payload], payload: Payload) -> None:
    replay = replayed(*base)
    refused(replay, next_entry(replay, payload))


@pytest.mark.acceptance(104)
def test_an_erased_revision_never_comes_back() -> None:
    replay = replayed(*BASE, LeaseUpsert(lease=lease()), RELEASED, ERASED)
    assert export_snapshot(replay.state) == Snapshot(next_lease_id=2)
    refused(replay, next_entry(replay, up(draft())))


def test_a_restored_snapshot_knows_no_tombstones() -> None:
    replay = replayed(*BASE, ERASED)
    fresh = Replay(restore_snapshot(export_snapshot(replay.state)), expected_sequence=4)
    assert fresh.apply(next_entry(fresh, up(draft())))


@pytest.mark.parametrize(
    "changes",
    [
        row(105, "wrong-key", {"key": "weight-revision:0"}),
        row(105, "empty-key", {"key": ""}),
        pytest.param({"tenant_id": "tenant-a"}, id="wrong-tenant"),
        row(106, "future-sequence", {"sequence": 4}),
    ],
)
def test_an_entry_is_refused_by_its_envelope(changes: dict[str, object]) -> None:
    replay = replayed(*BASE)
    refused(replay, replace(next_entry(replay, up(DEGRADED)), **changes))  # type: ignore[arg-type]


@pytest.mark.acceptance(106)
def test_an_older_sequence_is_skipped_whatever_it_holds() -> None:
    replay = replayed(*BASE)
    assert not replay.apply(entries(up(ready(metadata_generation=0)), start=2)[0])
    assert replay.expected_sequence == 3


def test_replay_keeps_the_counters_past_every_id() -> None:
    replay = replayed(*BASE, LeaseUpsert(lease=lease(7)))
    assert replay.state.next_lease_id == 8
    replay = replayed(*BASE, up(evicting(5), running(5)))
    assert replay.state.next_operation_id == 6


def test_what_a_life_emits_replays_to_the_same_state() -> None:
    world = ready_world()
    world.acquire(ttl=10)
    world.renew(1, 20)
    world.at(300).start(2, R.COLD)
    world.progress(1, cursor="k", seen=(A.READY, R.MIXED))
    world.progress(2, cursor="m")
    world.finish(R.COLD)
    world.observe(5, A.DEGRADED, R.MIXED)
    world.repair(6)
    world.finish(R.HOT, number=2)
    world.at(900).acquire(8)
    world.at(2000).delete(8)
    world.finish_delete(9)
    assert replayed(*world.log).state.metadata == world.state.metadata
    assert export_snapshot(replayed(*world.log).state) == export_snapshot(world.state)


def test_a_no_op_emits_nothing() -> None:
    world = ready_world()
    assert emitted(world.commit(1)) == ()
    assert emitted(world.release(5)) == ()


def test_an_invalid_generation_is_refused_by_code() -> None:
    replay = replayed(*BASE)
    refuses(
        ErrorCode.STALE_GENERATION,
        lambda: replay.apply(next_entry(replay, up(ready(metadata_generation=5)))),
    )
