"""Verdicts on damaged replicas are durable, exact, bounded, and go with their group."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from anyio import to_thread

from tests.support.stores import deleted, opened, published
from tests.support.weights import identity
from weightctl.controller.core.damage import DamagedReplica
from weightctl.controller.core.identity import Identity, payload_group_id
from weightctl.controller.errors import StateDirectoryError
from weightctl.controller.store import damage
from weightctl.controller.store.database import DATABASE_NAME
from weightctl.controller.store.reading import read_state

MODEL = identity("llama", 1)
GROUP = payload_group_id(MODEL)


def row(key: str = "weights/1", tier: str = "disk", instance: str = "i1") -> DamagedReplica:
    return DamagedReplica(
        member_key=key,
        tier=tier,
        instance_id=instance,
        epoch="e1",
        found_sha256=b"\xff" * 32,
        at_ms=7,
    )


def stored(folder: Path) -> tuple[DamagedReplica, ...]:
    with read_state(folder) as state:
        return state.damage(GROUP)


def change(folder: Path, statement: str) -> None:
    with closing(sqlite3.connect(folder / DATABASE_NAME)) as connection:
        connection.execute(statement)
        connection.commit()


async def test_a_verdict_is_durable_and_seen_from_outside(tmp_path: Path) -> None:
    rows = (row(), row("weights/\udcff"), row(tier="far"))
    async with opened(tmp_path) as store:
        await store.damage.record(GROUP, rows)
        assert store.damage.rows(GROUP) == rows
        assert await to_thread.run_sync(stored, tmp_path) == rows
    async with opened(tmp_path) as store:
        assert store.damage.rows(GROUP) == rows
        assert store.damage.rows("another") == ()
    assert await to_thread.run_sync(stored, tmp_path) == rows


async def test_a_verdict_on_another_instance_replaces_the_older_one(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.damage.record(GROUP, [row(), row("weights/2")])
        await store.damage.record(GROUP, [row(instance="i2")])
        assert store.damage.rows(GROUP) == (row("weights/2"), row(instance="i2"))
        await store.damage.forget(GROUP, [row()])
        assert len(store.damage.rows(GROUP)) == 2, "it speaks of a copy that is not meant"
        await store.damage.forget(GROUP, [replace(row(instance="i2"), at_ms=9)])
        assert store.damage.rows(GROUP) == (row("weights/2"),)
    async with opened(tmp_path) as store:
        assert store.damage.rows(GROUP) == (row("weights/2"),)


async def test_what_is_known_already_costs_no_commit_and_wakes_nobody(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await published(store, MODEL)
        heard: list[Identity] = []
        store.subscribe(heard.append)
        await store.damage.record(GROUP, [row()])
        commits = store.commits
        await store.damage.record(GROUP, [replace(row(), at_ms=9)])
        await store.damage.forget(GROUP, [row("weights/2")])
        assert store.commits == commits
        assert heard == [MODEL]


async def test_verdicts_go_with_their_group(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await published(store, MODEL)
        await store.damage.record(GROUP, [row(), row("weights/2")])
        await store.damage.record("another", [row()])
        await deleted(store, MODEL)
        assert store.damage.rows(GROUP) == ()
        assert store.damage.rows("another") == (row(),)
    async with opened(tmp_path) as store:
        assert store.damage.rows(GROUP) == ()
        assert store.damage.rows("another") == (row(),)


async def test_the_oldest_verdicts_go_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(damage, "ROWS_MAX", 3)
    async with opened(tmp_path) as store:
        for number in range(5):
            await store.damage.record(GROUP, [row(f"weights/{number}")])
        await store.damage.record(GROUP, [row("weights/2", instance="i2")])
        left = (row("weights/3"), row("weights/4"), row("weights/2", instance="i2"))
        assert store.damage.rows(GROUP) == left
    async with opened(tmp_path) as store:
        assert store.damage.rows(GROUP) == left


async def test_a_directory_without_the_table_is_read_and_gets_it(tmp_path: Path) -> None:
    async with opened(tmp_path):
        pass
    await to_thread.run_sync(change, tmp_path, "DROP TABLE damage")
    assert await to_thread.run_sync(stored, tmp_path) == ()
    async with opened(tmp_path) as store:
        await store.damage.record(GROUP, [row()])
    assert await to_thread.run_sync(stored, tmp_path) == (row(),)


async def test_a_changed_verdict_is_refused_and_not_believed(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.damage.record(GROUP, [row()])
    await to_thread.run_sync(change, tmp_path, "UPDATE damage SET instance = 'i2'")
    with pytest.raises(StateDirectoryError, match="DamagedVerdict"):
        await to_thread.run_sync(stored, tmp_path)
    with pytest.raises(StateDirectoryError, match="DamagedVerdict"):
        async with opened(tmp_path):
            pass
