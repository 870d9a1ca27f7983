"""Durable before visible, group commit, and what a failed commit leaves."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from tests.support.stores import begin, commit, many, opened, published, refused
from tests.support.weights import ID
from weightctl.controller.core.identity import Identity
from weightctl.controller.core.records import Availability
from weightctl.controller.errors import ErrorCode
from weightctl.controller.store import commit as commits
from weightctl.controller.store.commit import Outcome, Rejected, Uncertain
from weightctl.controller.store.journal import Journal

FOREVER = 10**9


def rows_on_disk(folder: Path) -> int:
    """Count the log's entries as another process sees them."""
    connection = sqlite3.connect(folder / "weightctl.db")
    try:
        (count,) = connection.execute("SELECT count(*) FROM oplog").fetchone()
    finally:
        connection.close()
    return int(count)


async def test_concurrent_callers_share_commits(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await asyncio.gather(*(begin(store, of) for of in many(500)))
        assert store.last_sequence == 500
        assert store.commits <= 3


async def test_lone_callers_have_a_commit_each(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        for of in many(5):
            await begin(store, of)
        assert store.commits == 5


async def test_no_op_is_not_logged(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        first = await begin(store, ID)
        assert await begin(store, ID) is first
        assert (store.last_sequence, store.commits) == (1, 1)


async def test_nothing_is_visible_before_it_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every publication finds its own entry already in the file."""
    async with opened(tmp_path) as store:
        seen: list[tuple[int, int]] = []
        durable: list[int] = []
        original = Journal._settle

        def watched(self: Journal, batch: list[object], outcome: Outcome) -> None:
            before = len(tuple(store.records()))
            original(self, batch, outcome)  # type: ignore[arg-type]
            seen.append((before, len(tuple(store.records()))))

        monkeypatch.setattr(Journal, "_settle", watched)
        store.subscribe(lambda _: durable.append(store.last_sequence))
        await begin(store, ID)
        assert seen == [(0, 1)]
        assert durable == [1]
        assert await asyncio.to_thread(rows_on_disk, tmp_path) == 1


async def test_mutations_of_one_revision_follow_each_other(tmp_path: Path) -> None:
    """Both begin at once; one writes, the other finds the record; then one of two commits wins."""
    async with opened(tmp_path) as store:
        first, second = await asyncio.gather(begin(store, ID), begin(store, ID))
        assert first is second
        done = await asyncio.gather(commit(store, ID), commit(store, ID))
        assert [record.metadata_generation for record in done] == [2, 2]
        assert store.last_sequence == 2


# --- cancellation ---------------------------------------------------------------------------------


async def test_cancelled_caller_neither_loses_nor_doubles_its_entry(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        callers = [asyncio.create_task(begin(store, of)) for of in many(50)]
        await asyncio.sleep(0)  # each has handed its entry over
        for caller in callers[::2]:
            caller.cancel()
        outcomes = await asyncio.gather(*callers, return_exceptions=True)
        assert sum(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes) == 25
        for of in many(50):  # the revision is free again, whatever became of its caller
            await commit(store, of)
        assert store.last_sequence == 100
        before = list(store.records())
    async with opened(tmp_path) as store:
        assert list(store.records()) == before


async def test_cancelled_waiter_for_a_revision_passes_it_on(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        callers = [asyncio.create_task(begin(store, ID)) for _ in range(10)]
        await asyncio.sleep(0)
        for caller in callers[1:9]:
            caller.cancel()
        outcomes = await asyncio.gather(*callers, return_exceptions=True)
        assert outcomes[0] is outcomes[9]
        assert (await commit(store, ID)).metadata_generation == 2


async def test_cancelling_the_whole_scope_still_closes_cleanly(tmp_path: Path) -> None:
    entered = asyncio.Event()

    async def hold() -> None:
        async with opened(tmp_path) as store:
            await begin(store, ID)
            entered.set()
            await asyncio.sleep(FOREVER)

    holder = asyncio.create_task(hold())
    await entered.wait()
    holder.cancel()
    with pytest.raises(asyncio.CancelledError):
        await holder
    async with opened(tmp_path) as store:
        assert len(list(store.records())) == 1


# --- failed appends -------------------------------------------------------------------------------


def failing(outcome: Outcome | Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every transaction end as given, without touching the file."""

    def transaction(*_: object) -> Outcome:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr("weightctl.controller.store.journal.append", transaction)


async def test_refused_append_changes_nothing_and_the_next_one_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as store:
        with monkeypatch.context() as patch:
            failing(Rejected(why="DiskFull: no space", todo="free space"), patch)
            await refused(ErrorCode.DURABILITY_FAILED, lambda: begin(store, ID))
            await refused(ErrorCode.NOT_FOUND, lambda: store.get(identity=ID))
            assert (store.healthy, store.problem) == (True, "DiskFull: no space")
        await begin(store, ID)
        assert (store.problem, store.last_sequence) == ("", 1)


@pytest.mark.parametrize(
    "outcome",
    [Uncertain(why="CommitUncertain: disk I/O error"), RuntimeError("the thread broke")],
    ids=["uncertain", "writer-died"],
)
async def test_uncertain_append_stops_all_mutations_until_restart_and_reads_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: Outcome | Exception
) -> None:
    other = many(1)[0]
    async with opened(tmp_path) as store:
        await published(store, other)
        with monkeypatch.context() as patch:
            failing(outcome, patch)
            results = await asyncio.gather(
                *(begin(store, of) for of in many(30, "x")), return_exceptions=True
            )
        assert {getattr(result, "code", None) for result in results} == {
            ErrorCode.DURABILITY_FAILED
        }
        assert not store.healthy
        error = await refused(ErrorCode.DURABILITY_FAILED, lambda: begin(store, ID))
        assert "restart" in error.todo
        assert (await store.get(identity=other)).metadata.availability is Availability.READY
        await refused(ErrorCode.NOT_FOUND, lambda: store.get(identity=ID))  # argument checks first
        await refused(
            ErrorCode.STALE_GENERATION,
            lambda: store.delete_revision(identity=other, expected_metadata_generation=9),
        )
    async with opened(tmp_path) as store:
        assert store.healthy
        assert [record.identity for record in store.records()] == [other]


async def test_commit_that_fails_but_reached_the_log_counts_after_the_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer was lost, not the entry: refused now, never published, there after a restart."""
    real = commits.append

    def lost(*arguments: object) -> Outcome:
        real(*arguments)  # type: ignore[arg-type]
        return Uncertain(why="CommitUncertain: disk I/O error (SQLITE_IOERR_FSYNC)")

    async with opened(tmp_path) as store:
        monkeypatch.setattr("weightctl.controller.store.journal.append", lost)
        await refused(ErrorCode.DURABILITY_FAILED, lambda: begin(store, ID))
        await refused(ErrorCode.NOT_FOUND, lambda: store.get(identity=ID))
    monkeypatch.undo()
    async with opened(tmp_path) as store:
        assert (await store.get(identity=ID)).metadata.metadata_generation == 1


async def test_publication_that_fails_stops_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory and log have parted: only a restart brings them together."""
    async with opened(tmp_path) as store:
        engine = store._engine

        async def broken(of: Identity) -> None:
            future = engine.append_rows(of, (), publish=lambda: 1 // 0)
            await future

        await refused(ErrorCode.DURABILITY_FAILED, lambda: broken(ID))
        assert not store.healthy
        await refused(ErrorCode.DURABILITY_FAILED, lambda: begin(store, ID))


async def test_mutation_after_closing_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        pass
    await refused(ErrorCode.DURABILITY_FAILED, lambda: begin(store, ID))


async def test_error_of_the_body_leaves_as_itself(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        async with opened(tmp_path):
            raise KeyError("x")


async def test_draft_that_cannot_be_written_fails_alone(tmp_path: Path) -> None:
    """A tier name that is no text for SQLite must not take its neighbours in the batch along."""
    async with opened(tmp_path) as store:
        results = await asyncio.gather(
            *(begin(store, of) for of in many(3)),
            store.tier_epochs.set("bad\udcff", "e"),
            *(begin(store, of) for of in many(3, "more")),
            return_exceptions=True,
        )
        failed = [result for result in results if isinstance(result, BaseException)]
        assert [getattr(error, "code", None) for error in failed] == [ErrorCode.DURABILITY_FAILED]
        assert store.last_sequence == 6
        assert store.healthy
