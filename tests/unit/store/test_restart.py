"""Restart, folding of the log into the snapshot, and the bounds of log and write-ahead log."""

import asyncio
import sqlite3
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.support.store_child import evidence
from tests.support.stores import begin, commit, deleted, many, opened, published, refused
from tests.support.virtual_time import SeededEntropy, VirtualClock
from tests.support.weights import ID, MEMBERS, identity
from weightctl.controller.core.oplog import MetadataUpsert
from weightctl.controller.core.records import Residency
from weightctl.controller.errors import ErrorCode, StateDirectoryError
from weightctl.controller.store import commit as commits
from weightctl.controller.store import evidence as evidence_module
from weightctl.controller.store import journal, terms
from weightctl.controller.store.connection import Connector, StoreConnection, connect
from weightctl.controller.store.opening import open_directory
from weightctl.controller.store.oplog import read_log, verify_log
from weightctl.controller.store.reading import read_state
from weightctl.controller.store.store import WeightMetadataStore


@pytest.fixture
def small_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "LOG_ENTRIES_MAX", 20)
    monkeypatch.setattr(commits, "FOLD_ENTRIES", 7)


async def test_everything_is_there_after_a_restart_and_the_term_grows(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await published(store, ID)
        await store.acquire_lease(
            identity=ID, expected_metadata_generation=2, holder="h", ttl_ms=100
        )
        before, holder = await store.export_snapshot(), store.holder
        term = store.term
    for _ in range(2):
        async with opened(tmp_path) as store:
            assert store.holder == holder
            assert store.term > term
            term = store.term
            assert await store.export_snapshot() == before


async def test_the_terms_of_earlier_starts_are_known_until_a_person_says_that_they_are_past(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terms, "ROWS_MAX", 3)
    had: list[int] = []
    for _ in range(5):
        async with opened(tmp_path) as store:
            assert store.fence.past == tuple(had[-2:])
            had.append(store.term)
    above = had[-1] + 1
    for past in ((above,), (above, above + 1)):
        async with started(tmp_path, above) as store:
            assert store.fence.past[0] == above
            assert len(store.fence.past) == len(past)


def started(folder: Path, above: int) -> AbstractAsyncContextManager[WeightMetadataStore]:
    return WeightMetadataStore.open(
        folder, clock=VirtualClock(), entropy=SeededEntropy(), term_above=above
    )


async def test_a_directory_without_room_is_a_change_that_was_not_made_durable(
    tmp_path: Path,
) -> None:
    async def cramped(opener: Connector) -> StoreConnection:
        def opened_small() -> sqlite3.Connection:
            connection = opener()
            connection.execute("PRAGMA max_page_count = 2")
            return connection

        return await connect(opened_small)

    clock, entropy = VirtualClock(wall_ms=1000), SeededEntropy(1)

    async def enter() -> None:
        async with open_directory(tmp_path, clock=clock, entropy=entropy, connect=cramped):
            pass

    assert "SQLITE_FULL" in (await refused(ErrorCode.DURABILITY_FAILED, enter)).why
    async with opened(tmp_path) as store:
        assert not list(store.records())


async def test_text_of_any_bytes_and_large_numbers_survive(tmp_path: Path) -> None:
    of = identity("\udc80\udcff ü/\u2028%\U0001f680", 2**64 - 1, "ten\udcfeant")
    async with opened(tmp_path) as store:
        record = await store.begin_import(
            identity=of, expected_payload_count=2**64 - 1, expected_logical_bytes=2**64 - 1
        )
    async with opened(tmp_path) as store:
        assert list(store.records()) == [record]
        assert record == await store.begin_import(
            identity=of, expected_payload_count=2**64 - 1, expected_logical_bytes=2**64 - 1
        )


@pytest.mark.usefixtures("small_log")
async def test_log_stays_short_and_folding_changes_nothing(tmp_path: Path) -> None:
    clock = VirtualClock(wall_ms=1000)
    folded = 0
    async with opened(tmp_path, clock) as store:
        for number, of in enumerate(many(40)):
            await published(store, of)
            lease = await store.acquire_lease(
                identity=of, expected_metadata_generation=2, holder="h", ttl_ms=50
            )
            if number % 3 == 0:
                await store.release_lease(lease_id=lease.lease_id)
                started = await store.start_residency_operation(
                    identity=of,
                    expected_metadata_generation=2,
                    target_residency=Residency.COLD,
                    member_count=MEMBERS,
                )
                if number % 6 == 0:
                    await store.finish_operation(
                        operation_id=started.operation_id, observed_residency=Residency.COLD
                    )
            elif number % 3 == 1:
                clock.jump(1)
                await deleted(store, of)
            folded = store._engine.journal.folded_sequence
            assert store.last_sequence - folded < 20 + 1
        before = await store.export_snapshot()
    assert folded > 100
    report = await asyncio.to_thread(verify_log, tmp_path)
    assert report.ok, report.problem
    assert report.entries == report.last_sequence - report.first_sequence + 1 <= 20
    async with opened(tmp_path, clock) as store:
        assert await store.export_snapshot() == before


async def test_storm_keeps_the_write_ahead_log_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weightctl.controller.store.database.WAL_PAGES_MAX", 64)
    wal = tmp_path / "weightctl.db-wal"
    sizes: list[int] = []
    async with opened(tmp_path) as store:
        for turn in range(30):
            await asyncio.gather(*(begin(store, of) for of in many(100, f"r{turn}")))
            sizes.append(await asyncio.to_thread(lambda: wal.stat().st_size))
    assert max(sizes) < 2 * 64 * 4096
    assert not await asyncio.to_thread(wal.exists)  # a clean end leaves one file


# --- reading from outside -------------------------------------------------------------------------


async def test_readers_see_what_is_durable_beside_the_writer(tmp_path: Path) -> None:
    def look() -> tuple[int, int, str]:
        with read_state(tmp_path) as stored:
            return len(stored.state.metadata), stored.last_sequence, stored.problem

    async with opened(tmp_path) as store:
        for number, of in enumerate(many(5), 1):
            await begin(store, of)
            assert await asyncio.to_thread(look) == (number, number, "")


def test_directory_without_state_says_so(tmp_path: Path) -> None:
    with pytest.raises(StateDirectoryError, match="NoState"), read_state(tmp_path):
        pass
    with pytest.raises(StateDirectoryError, match="NoState"):
        verify_log(tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []


async def test_log_is_shown_decoded_in_order(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        begun = await begin(store, ID)
        committed = await commit(store, ID)
        entries = await asyncio.to_thread(lambda: list(read_log(tmp_path)))
        assert [entry.value for entry in entries] == [
            MetadataUpsert(metadata=begun),
            MetadataUpsert(metadata=committed),
        ]
        assert [entry.sequence for entry in entries] == [1, 2]
        assert {entry.entry_type for entry in entries} == {8}
        assert [
            e.sequence for e in await asyncio.to_thread(lambda: list(read_log(tmp_path, 2)))
        ] == [2]


# --- evidence and epochs --------------------------------------------------------------------------


async def test_evidence_is_durable_ordered_and_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence_module, "DROPS_PER_REVISION_MAX", 600)
    monkeypatch.setattr(evidence_module, "DROPS_MAX", 1000)
    monkeypatch.setattr(evidence_module, "_TRIM_EVERY", 1)
    async with opened(tmp_path) as store:
        for start in range(0, 1000, 100):
            rows = [evidence(number) for number in range(start, start + 100)]
            await store.evidence.record(ID, rows)
        kept = await store.evidence.rows(ID)
        assert [row.at_ms for row in kept] == list(range(400, 1000))
        await store.evidence.record(ID, [])
        for other in many(3):
            await store.evidence.record(other, [evidence(number) for number in range(300)])
        assert [row.at_ms for row in await store.evidence.rows(ID)] == list(range(900, 1000))
        assert len(await store.evidence.rows(many(3)[2])) == 300
    async with opened(tmp_path) as store:
        assert len(await store.evidence.rows(many(3)[1])) == 300
        assert store.last_sequence == 0  # no part of the op-log


async def test_evidence_of_a_revision_is_found_from_outside(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.evidence.record(ID, [evidence(1)])
        await store.tier_epochs.set("memory", "e1")

    def look() -> object:
        with read_state(tmp_path) as stored:
            return stored.evidence(ID), stored.evidence(identity("none")), stored.tier_epochs()

    assert await asyncio.to_thread(look) == ((evidence(1),), (), {"memory": "e1"})


async def test_tier_epochs_are_remembered_across_restarts(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        assert store.tier_epochs.get("memory") == ""
        await store.tier_epochs.set("memory", "e1")
        await store.tier_epochs.set("memory", "e1")
        assert store.commits == 1
        await store.tier_epochs.set("memory", "e2")
        await store.tier_epochs.set("disk", "d")
    async with opened(tmp_path) as store:
        assert (store.tier_epochs.get("memory"), store.tier_epochs.get("disk")) == ("e2", "d")
