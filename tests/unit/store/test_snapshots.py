"""Snapshots of the whole state, in memory and as files: all or nothing, and one moment."""

import asyncio
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.stores import begin, commit, manifest, many, opened, payload, published, refused
from tests.support.weights import ID, MEMBERS, identity, lease, ready_world
from weightctl.controller.core.identity import payload_group_id
from weightctl.controller.core.records import Residency, Snapshot
from weightctl.controller.core.snapshot import export_snapshot
from weightctl.controller.errors import ErrorCode, StateDirectoryError, WeightError
from weightctl.controller.store.archive import (
    Archive,
    decode_archive,
    encode_archive,
    read_archive,
)
from weightctl.controller.store.oplog import verify_log
from weightctl.controller.store.rows import ObjectRow
from weightctl.controller.store.store import WeightMetadataStore

GROUP = payload_group_id(ID)


async def fill(store: WeightMetadataStore) -> None:
    """A registered and leased revision, one that is evicted, and a finished operation."""
    await begin(store, ID)
    await store.directory.register(ID, [payload(ID), manifest(ID)])
    await commit(store, ID)
    await store.acquire_lease(identity=ID, expected_metadata_generation=2, holder="h", ttl_ms=100)
    for of in many(2):
        await published(store, of)
        await store.start_residency_operation(
            identity=of,
            expected_metadata_generation=2,
            target_residency=Residency.COLD,
            member_count=MEMBERS,
        )
    await store.finish_operation(operation_id=2, observed_residency=Residency.COLD)


async def test_restore_replaces_everything_and_survives_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path / "a") as store:
        await fill(store)
        snapshot = await store.export_snapshot()
    async with opened(tmp_path / "b") as store:
        await published(store, identity("other"))
        last = store.last_sequence
        await store.restore_snapshot(snapshot)
        assert await store.export_snapshot() == snapshot
        assert store.last_sequence == last + 1
        await refused(ErrorCode.NOT_FOUND, lambda: store.get(identity=identity("other")))
        assert store.operation(identity=many(1)[0]) is not None
        await begin(store, identity("new"))
        after = await store.export_snapshot()
    report = await asyncio.to_thread(verify_log, tmp_path / "b")
    assert report.ok, report.problem
    async with opened(tmp_path / "b") as store:
        assert await store.export_snapshot() == after


async def test_restore_of_an_empty_snapshot_clears(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await fill(store)
        await store.restore_snapshot(Snapshot())
        assert await store.export_snapshot() == Snapshot()
    async with opened(tmp_path) as store:
        assert list(store.records()) == []


@pytest.mark.parametrize(
    "spoil",
    [
        lambda s: replace(s, next_lease_id=0),
        lambda s: replace(s, schema_version=2),
        lambda s: replace(s, metadata=s.metadata * 2),
        lambda s: replace(s, leases=(lease(identity=identity("none")),)),
        lambda s: replace(s, operations=()),
    ],
    ids=["counter", "schema", "duplicate", "orphan-lease", "operation-lost"],
)
async def test_refused_restore_changes_nothing(
    tmp_path: Path, spoil: Callable[[Snapshot], Snapshot]
) -> None:
    async with opened(tmp_path) as store:
        await fill(store)
        before, last = await store.export_snapshot(), store.last_sequence
        await refused(ErrorCode.INVALID_ARGUMENT, lambda: store.restore_snapshot(spoil(before)))
        assert await store.export_snapshot() == before
        assert store.last_sequence == last
        await begin(store, identity("new"))  # nothing is left locked


async def test_restore_waits_for_mutations_and_keeps_later_ones_out(tmp_path: Path) -> None:
    """Every mutation is wholly before the restore, and gone, or wholly after it, and there."""
    async with opened(tmp_path) as store:
        earlier = [asyncio.create_task(begin(store, of)) for of in many(20, "early")]
        await asyncio.sleep(0)
        restore = asyncio.create_task(store.restore_snapshot(Snapshot()))
        await asyncio.sleep(0)
        later = [asyncio.create_task(begin(store, of)) for of in many(20, "late")]
        await asyncio.gather(*earlier, restore, *later)
        assert {record.identity for record in store.records()} == set(many(20, "late"))
        after = await store.export_snapshot()
    async with opened(tmp_path) as store:
        assert await store.export_snapshot() == after


async def test_cancelled_restore_is_still_all_or_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await fill(store)
        before = await store.export_snapshot()
        for turns in range(0, 40, 3):
            restore = asyncio.create_task(store.restore_snapshot(before))
            for _ in range(turns):
                await asyncio.sleep(0)
            restore.cancel()
            await asyncio.gather(restore, return_exceptions=True)
            await begin(store, identity(f"after-{turns}"))
            before = await store.export_snapshot()
    async with opened(tmp_path) as store:
        assert await store.export_snapshot() == before


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.acceptance(109)
async def test_file_brings_state_and_directory_to_another_store(tmp_path: Path) -> None:
    """Lease count, running operation and derived group index are there again, and the members."""
    file = tmp_path / "file"
    async with opened(tmp_path / "a") as store:
        await fill(store)
        saved = await store.save_archive(file)
        members = await store.directory.members(GROUP)
        holder = store.holder
    assert await asyncio.to_thread(read_archive, file) == saved
    assert saved.holder == holder
    async with opened(tmp_path / "b") as store:
        assert len(await store.directory.members(GROUP)) == 0
        await store.restore_archive(file)
        assert await store.export_snapshot() == saved.weights
        assert await store.directory.members(GROUP) == members
        assert (await store.get(identity=ID)).active_lease_count == 1
        running = store.operation(identity=many(1)[0])
        assert running is not None
        assert running.operation.name == "EVICTING"
        assert store._engine.state.groups[GROUP] == ID
    async with opened(tmp_path / "b") as store:
        assert await store.directory.members(GROUP) == members


def saved_document() -> dict[str, Any]:
    row = ObjectRow(b"key", 1, 5, bytes(32), 0)
    archive = Archive(weights=exported(), objects=(("default", "g", row),), holder="h", sequence=9)
    document: dict[str, Any] = json.loads(encode_archive(archive))
    return document


def exported() -> Snapshot:
    """A snapshot without a store."""
    world = ready_world()
    world.acquire()
    return export_snapshot(world.state)


@pytest.mark.acceptance(110)
def test_file_without_the_section_has_an_empty_weight_state_and_keeps_the_objects() -> None:
    document = saved_document()
    del document["sections"]["weight_metadata"]
    archive = decode_archive(json.dumps(document).encode())
    assert archive.weights == Snapshot()
    assert len(archive.objects) == 1


def put(*path: str | int, value: object) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        place: Any = document
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] = value

    return change


WEIGHTS = ("sections", "weight_metadata")
SPOILT = {
    "record": put(*WEIGHTS, "body", "metadata", 0, 6, value=3),
    "digest": put(*WEIGHTS, "sha256", value="0" * 64),
    "no-body": put(*WEIGHTS, "body", value=None),
    "no-digest": put(*WEIGHTS, "sha256", value=None),
    "not-a-section": put(*WEIGHTS, value=[]),
    "object": put("sections", "objects", "body", "rows", 0, 4, value=6),
    "version": put("apiVersion", value="weightctl/v2"),
    "kind": put("kind", value="Secret"),
    "unknown-section": put("sections", "lineage", value={}),
    "no-sections": put("sections", value=None),
    "holder": put("holder", value=None),
}


@pytest.mark.acceptance(111)
@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT.keys())
async def test_damaged_file_is_refused_and_the_target_stays(
    tmp_path: Path, spoil: Callable[[dict[str, Any]], None]
) -> None:
    document = await asyncio.to_thread(saved_document)
    spoil(document)
    file = tmp_path / "file"
    await asyncio.to_thread(file.write_text, json.dumps(document))
    async with opened(tmp_path / "state") as store:
        await refused(ErrorCode.INVALID_ARGUMENT, lambda: store.restore_archive(file))
        assert await store.export_snapshot() == Snapshot()
        assert store.last_sequence == 0


@given(st.data())
def test_any_flipped_bit_of_a_file_is_refused_or_without_effect(data: st.DataObject) -> None:
    document = saved_document()
    raw = bytearray(json.dumps(document).encode())
    place = data.draw(st.integers(0, len(raw) * 8 - 1))
    raw[place // 8] ^= 1 << place % 8
    try:
        found = decode_archive(bytes(raw))
    except WeightError:
        return
    whole = decode_archive(json.dumps(document).encode())
    assert (found.weights, found.objects) == (whole.weights, whole.objects)


@pytest.mark.parametrize(
    "raw", [b"", b"{}", b"[]", b'{"kind":1,"kind":2}', b"\xff", b"[" * 10_000], ids=range(6)
)
def test_other_files_are_refused(raw: bytes) -> None:
    with pytest.raises(WeightError):
        decode_archive(raw)


def test_missing_file_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StateDirectoryError, match="SnapshotFile"):
        read_archive(tmp_path / "none")


def pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe")
    return folder / "pipe"


@pytest.mark.parametrize(
    "made", [lambda _: Path("/dev/zero"), pipe, lambda folder: folder], ids=range(3)
)
def test_only_a_regular_file_is_read(made: Callable[[Path], Path], tmp_path: Path) -> None:
    with pytest.raises(WeightError, match="is no regular file"):
        read_archive(made(tmp_path))


async def test_failed_save_leaves_the_old_file(tmp_path: Path) -> None:
    async with opened(tmp_path / "state") as store:
        await store.save_archive(tmp_path / "file")
        with pytest.raises(StateDirectoryError, match="SnapshotFile"):
            await store.save_archive(tmp_path / "none" / "file")
        await store.save_archive(tmp_path / "file")
    names = await asyncio.to_thread(lambda: sorted(path.name for path in tmp_path.iterdir()))
    assert names == ["file", "state"]
