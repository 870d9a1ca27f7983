"""Load: the lease lives while bytes flow and is always given back; only right bytes come out."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
from anyio import to_thread

from tests.support.models import write_model
from tests.support.rig import IDENTITY, MANIFEST_KEY, Rig, contents, rig
from weightctl.controller.core.identity import manifest_key, payload_group_id
from weightctl.controller.core.manifest import TensorDescriptor
from weightctl.controller.core.manifest_codec import parse_manifest
from weightctl.controller.core.ranges import Target, TensorSlice
from weightctl.controller.core.records import RevisionLease, RevisionMetadata
from weightctl.controller.errors import (
    ErrorCode,
    IntegrityError,
    NothingReadableError,
    TargetError,
    TransientError,
    WeightctlError,
    WeightError,
)
from weightctl.controller.weightstore.source import ModelSource
from weightctl.controller.weightstore.targets import (
    Into,
    IntoArrays,
    IntoBuffers,
    IntoFolder,
    LoadedTensor,
    arena_windows,
)


@asynccontextmanager
async def published(folder: Path, **options: Any) -> AsyncIterator[Rig]:
    """Open a rig whose model is imported."""
    async with rig(folder, **options) as parts:
        await parts.weights.put(IDENTITY, parts.source)
        yield parts


def damage(content: dict[str, bytes], key: str) -> None:
    """Flip one bit of a stored object."""
    content[key] = bytes([content[key][0] ^ 1]) + content[key][1:]


def released(parts: Rig) -> list[int]:
    """Note the ids of the leases that are released from now on."""
    ids: list[int] = []
    release = parts.store.release_lease

    async def counted(*, lease_id: int, tenant_id: str = "default") -> None:
        ids.append(lease_id)
        await release(lease_id=lease_id, tenant_id=tenant_id)

    parts.store.release_lease = counted  # type: ignore[method-assign]
    return ids


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


# --- the managed flow -----------------------------------------------------------------------------


@pytest.mark.acceptance(125)
async def test_publish_list_load_releases_the_lease_once(tmp_path: Path) -> None:
    async with published(tmp_path) as parts:
        ids = released(parts)
        page = await parts.store.list_revisions(
            namespace=IDENTITY.namespace, resource_id=IDENTITY.resource_id
        )
        assert [view.metadata.identity for view in page.revisions] == [IDENTITY]
        report = await parts.weights.load(page.revisions[0].metadata.identity)
        assert contents(report.tensors) == parts.model
        assert len(ids) == 1
        assert parts.lease_count() == 0
        manifest = parse_manifest(parts.hot.content[MANIFEST_KEY])
        assert manifest.group_id == payload_group_id(IDENTITY)
        assert manifest.manifest_key == manifest_key(IDENTITY)
        keys = {fragment.object_key for fragment in manifest.fragments}
        members = await parts.store.directory.members(manifest.group_id)
        assert keys | {manifest.manifest_key} == set(members.keys)


@pytest.mark.acceptance(126)
@pytest.mark.parametrize("into", [IntoArrays(), IntoFolder(path="out")])
async def test_digest_mismatch_raises_and_releases_the_lease(tmp_path: Path, into: Into) -> None:
    async with published(tmp_path) as parts:
        ids = released(parts)
        for tier in (parts.hot, parts.cold):
            damage(tier.content, parts.payload_keys()[1])
        if isinstance(into, IntoFolder):
            into = IntoFolder(path=tmp_path / "out")
        with pytest.raises(IntegrityError, match="damaged"):
            await parts.weights.load(IDENTITY, into=into, verify=True)
        assert len(ids) == 1
        assert parts.lease_count() == 0


async def test_wrong_manifest_raises_and_releases_the_lease(tmp_path: Path) -> None:
    async with published(tmp_path) as parts:
        for tier in (parts.hot, parts.cold):
            damage(tier.content, MANIFEST_KEY)
        with pytest.raises(IntegrityError, match="not the published one"):
            await parts.weights.load(IDENTITY)
        assert parts.lease_count() == 0


@pytest.mark.acceptance(127)
async def test_30_ms_lease_is_renewed_during_a_slow_transfer(tmp_path: Path) -> None:
    async with published(tmp_path, workers=1) as parts:
        expiries: list[int] = []
        renewing, renew = anyio.Lock(), parts.store.renew_lease

        async def renew_alone(
            *, lease_id: int, ttl_ms: int, tenant_id: str = "default"
        ) -> RevisionLease:
            async with renewing:
                return await renew(lease_id=lease_id, ttl_ms=ttl_ms, tenant_id=tenant_id)

        async def slowly(key: str) -> None:
            """Let 15 ms pass, and let no time pass while a renewal is becoming durable."""
            (lease,) = parts.store.leases(identity=IDENTITY)
            expiries.append(lease.expires_at_ms)
            for _ in range(15):
                await parts.clock.advance(0.001)
                async with renewing:
                    pass

        parts.store.renew_lease = renew_alone  # type: ignore[method-assign]
        parts.hot.faults.before_read = slowly
        started_ms = parts.clock.wall_ms()
        report = await parts.weights.load(IDENTITY, ttl_ms=30)
        assert contents(report.tensors) == parts.model
        assert parts.clock.wall_ms() - started_ms > 100
        assert expiries == sorted(set(expiries))
        assert parts.lease_count() == 0


@pytest.mark.acceptance(128)
async def test_records_are_frozen_hold_no_tensors_and_keep_the_identity(tmp_path: Path) -> None:
    async with published(tmp_path) as parts:
        record = (await parts.store.get(identity=IDENTITY)).metadata
        assert record.identity == IDENTITY
        with pytest.raises(FrozenInstanceError):
            record.metadata_generation = 9  # type: ignore[misc]
        lease = await parts.store.acquire_lease(
            identity=IDENTITY, expected_metadata_generation=2, holder="x", ttl_ms=10
        )
        assert lease.identity == IDENTITY
        page = await parts.store.list_revisions(
            namespace=IDENTITY.namespace, resource_id=IDENTITY.resource_id
        )
        assert page.revisions[0].metadata == record
        assert page.revisions[0].active_lease_count == 1
        names = {field.name for kind in (RevisionMetadata, RevisionLease) for field in fields(kind)}
        assert not [name for name in names if "tensor" in name or "endpoint" in name]


# --- the lease ------------------------------------------------------------------------------------


async def test_lease_that_dies_during_the_copy_fails_the_load_and_publishes_nothing(
    tmp_path: Path,
) -> None:
    async with published(tmp_path, workers=1) as parts:
        last = parts.payload_keys()[-1]

        async def jump(key: str) -> None:
            if key == last:
                parts.clock.jump_wall(3600)

        parts.hot.faults.before_read = jump
        out = tmp_path / "out"
        with pytest.raises(WeightError) as caught:
            await parts.weights.load(IDENTITY, into=IntoFolder(path=out), ttl_ms=30_000)
        assert caught.value.code is ErrorCode.LEASE_EXPIRED
        assert await to_thread.run_sync(files_in, out) == {}
        assert parts.lease_count() == 0


async def test_refused_renewal_is_raised_between_transfers(tmp_path: Path) -> None:
    async with published(tmp_path, workers=1) as parts:
        reads: list[str] = []

        async def take_away(key: str) -> None:
            reads.append(key)
            if len(reads) == 3:
                (lease,) = parts.store.leases(identity=IDENTITY)
                await parts.store.release_lease(lease_id=lease.lease_id)
                await parts.clock.advance(11)

        parts.hot.faults.before_read = take_away
        with pytest.raises(WeightError) as caught:
            await parts.weights.load(IDENTITY, ttl_ms=30_000)
        assert caught.value.code is ErrorCode.NOT_FOUND
        assert len(reads) == 3


@pytest.mark.parametrize("into", ["arrays", "buffers", "folder"])
async def test_cancelled_load_leaves_no_lease_and_no_file(tmp_path: Path, into: str) -> None:
    async with published(tmp_path) as parts:
        reading = anyio.Event()

        async def hang(key: str) -> None:
            if key != MANIFEST_KEY:
                reading.set()
                await anyio.sleep_forever()

        parts.hot.faults.before_read = hang
        out = tmp_path / "out"
        buffers = {name: bytearray(len(value[2])) for name, value in parts.model.items()}
        targets: dict[str, Into] = {
            "arrays": IntoArrays(),
            "buffers": IntoBuffers(buffers=buffers),
            "folder": IntoFolder(path=out),
        }
        await to_thread.run_sync(out.mkdir)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: parts.weights.load(IDENTITY, into=targets[into]))
            await reading.wait()
            assert parts.lease_count() == 1
            tasks.cancel_scope.cancel()
        assert parts.lease_count() == 0
        assert await to_thread.run_sync(files_in, out) == {}


@pytest.mark.parametrize("into", ["arrays", "folder"])
async def test_load_cancelled_at_any_await_leaves_no_lease_and_no_file(
    tmp_path: Path, into: str
) -> None:
    """By `Task.cancel`, which also `asyncio.timeout` uses and which no shield holds off."""
    async with published(tmp_path) as parts:
        out = tmp_path / "out"
        await to_thread.run_sync(out.mkdir)
        turns, ended = 0, False
        while not ended:
            target = IntoArrays() if into == "arrays" else IntoFolder(path=out)
            task = asyncio.ensure_future(parts.weights.load(IDENTITY, into=target))
            for _ in range(turns):
                await asyncio.sleep(0)
            ended = task.done()
            task.cancel()
            await asyncio.wait([task])
            assert parts.lease_count() == 0, turns
            names = set(await to_thread.run_sync(files_in, out)) if into == "folder" else set()
            assert names <= {"model.safetensors"}, turns
            turns += 1 + turns // 4


async def test_loads_of_one_holder_do_not_share_a_lease(tmp_path: Path) -> None:
    async with published(tmp_path) as parts:
        holders: set[str] = set()

        async def note(key: str) -> None:
            holders.update(lease.holder for lease in parts.store.leases(identity=IDENTITY))

        parts.hot.faults.before_read = note
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(lambda: parts.weights.load(IDENTITY, holder="trainer"))
        assert len(holders) == 2
        assert all(holder.startswith("trainer#") for holder in holders)


@pytest.mark.parametrize(
    "tensors",
    [
        [1],
        [None],
        ["embed", b"mask"],
        "embed",
        1,
        [TensorSlice(tensor_id=["embed"])],  # type: ignore[arg-type]
        [TensorSlice(tensor_id="embed", dim="0")],  # type: ignore[arg-type]
        [TensorSlice(tensor_id="embed", dim=0, start=0.5)],  # type: ignore[arg-type]
    ],
    ids=repr,
)
async def test_what_names_no_tensor_is_an_invalid_argument(tmp_path: Path, tensors: Any) -> None:
    async with published(tmp_path) as parts:
        with pytest.raises(WeightError) as caught:
            await parts.weights.load(IDENTITY, tensors)
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT
        assert caught.value.todo
        assert parts.lease_count() == 0


async def test_revision_that_is_not_ready_is_not_loaded(tmp_path: Path) -> None:
    async with rig(tmp_path) as parts:
        await parts.store.begin_import(
            identity=IDENTITY, expected_payload_count=1, expected_logical_bytes=1
        )
        with pytest.raises(WeightError) as caught:
            await parts.weights.load(IDENTITY)
        assert caught.value.code is ErrorCode.NOT_READY


# --- replicas -------------------------------------------------------------------------------------


async def _hot_is_corrupt(parts: Rig) -> None:
    for key in parts.payload_keys():
        damage(parts.hot.content, key)


async def _hot_fails_midway(parts: Rig) -> None:
    parts.hot.faults.read_limit = 1000


async def _hot_is_gone(parts: Rig) -> None:
    parts.hot.content.clear()


async def _hot_is_shorter(parts: Rig) -> None:
    parts.hot.content = {key: value[:-1] for key, value in parts.hot.content.items()}


async def _hot_manifest_is_corrupt(parts: Rig) -> None:
    damage(parts.hot.content, MANIFEST_KEY)


async def _nobody_answers(parts: Rig) -> None:
    parts.hot.faults.silent = parts.cold.faults.silent = True


@pytest.mark.parametrize(
    "fault",
    [
        _hot_is_corrupt,
        _hot_fails_midway,
        _hot_is_gone,
        _hot_is_shorter,
        _hot_manifest_is_corrupt,
        _nobody_answers,
    ],
)
async def test_next_replica_serves_when_one_fails(
    tmp_path: Path, fault: Callable[[Rig], Awaitable[None]]
) -> None:
    async with published(tmp_path) as parts:
        await fault(parts)
        report = await parts.weights.load(IDENTITY, verify=True)
        assert contents(report.tensors) == parts.model
        assert report.verified_bytes == report.tensor_bytes


async def test_member_without_any_replica_fails_clearly(tmp_path: Path) -> None:
    async with published(tmp_path) as parts:
        key = parts.payload_keys()[0]
        del parts.hot.content[key]
        del parts.cold.content[key]
        with pytest.raises(NothingReadableError, match="no tier holds"):
            await parts.weights.load(IDENTITY)
        parts.hot.faults.silent = parts.cold.faults.silent = True
        with pytest.raises(TransientError, match="no answer from memory") as silent:
            await parts.weights.load(IDENTITY)
        assert (silent.value.reason, silent.value.why.count("not there")) == ("Transient", 1)
        assert "generation" not in silent.value.todo
        assert parts.lease_count() == 0


async def test_hot_replica_is_read_first(tmp_path: Path) -> None:
    async with published(tmp_path) as parts:
        report = await parts.weights.load(IDENTITY)
        assert report.bytes_by_tier == {"memory": report.tensor_bytes}


# --- targets --------------------------------------------------------------------------------------


async def test_folder_gets_the_sources_bytes(tmp_path: Path) -> None:
    async with published(tmp_path) as parts:
        report = await parts.weights.load(IDENTITY, into=IntoFolder(path=tmp_path / "out"))
        assert report.files == (str(tmp_path / "out" / "model.safetensors"),)
        assert report.verified_bytes == report.tensor_bytes
        written = await to_thread.run_sync(files_in, tmp_path / "out")
        assert written == {"model.safetensors": await to_thread.run_sync(parts.source.read_bytes)}
        again = await parts.weights.load(IDENTITY, into=IntoFolder(path=tmp_path / "out"))
        assert again.files == report.files


def read_model(path: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    tensors = {}
    with ModelSource(path) as source:
        for file in source.files:
            for entry in file.header.entries:
                content = bytearray(entry.stop - entry.start)
                source.read_into(file, file.header.data_offset + entry.start, memoryview(content))
                tensors[entry.name] = (entry.dtype, entry.shape, bytes(content))
    return tensors


async def test_folder_of_several_files_has_an_index_and_can_be_imported_again(
    tmp_path: Path,
) -> None:
    async with published(tmp_path) as parts:
        out = tmp_path / "out"
        report = await parts.weights.load(IDENTITY, into=IntoFolder(path=out, file_bytes=4000))
        assert len(report.files) > 2
        assert report.files[-1].endswith("model.safetensors.index.json")
        assert await to_thread.run_sync(read_model, out) == parts.model


@pytest.mark.parametrize("file_bytes", [0, -1])
def test_files_of_no_bytes_are_refused(file_bytes: int) -> None:
    with pytest.raises(TargetError, match="file_bytes"):
        IntoFolder(path="out", file_bytes=file_bytes)


async def test_one_file_may_be_named(tmp_path: Path) -> None:
    async with published(tmp_path) as parts:
        path = tmp_path / "beside.safetensors"
        report = await parts.weights.load(IDENTITY, ["mask"], into=IntoFolder(path=path))
        assert report.files == (str(path),)
        assert await to_thread.run_sync(read_model, path) == {"mask": parts.model["mask"]}


async def test_folder_of_another_model_is_left_alone(tmp_path: Path) -> None:
    async with published(tmp_path) as parts:
        out = tmp_path / "out"
        await to_thread.run_sync(out.mkdir)
        other = {"x": ("U8", (1,), b"x")}
        await to_thread.run_sync(write_model, out / "other.safetensors", other)
        before = await to_thread.run_sync(files_in, out)
        with pytest.raises(TargetError, match="another model"):
            await parts.weights.load(IDENTITY, into=IntoFolder(path=out))
        assert await to_thread.run_sync(files_in, out) == before


async def test_folder_that_cannot_be_written_is_a_target_error(tmp_path: Path) -> None:
    async with published(tmp_path) as parts:
        with pytest.raises(TargetError) as caught:
            await parts.weights.load(IDENTITY, into=IntoFolder(path=parts.source / "under-a-file"))
        assert caught.value.todo
        assert parts.lease_count() == 0


@pytest.mark.parametrize(
    "name, note",
    [("a\0b", ""), ("a\ud800b", ""), ("out", "\ud800")],
    ids=["nul", "surrogate", "metadata"],
)
async def test_text_that_cannot_be_written_is_a_target_error(
    tmp_path: Path, name: str, note: str
) -> None:
    async with published(tmp_path) as parts:
        into = IntoFolder(path=tmp_path / name, metadata={"note": note})
        with pytest.raises(TargetError):
            await parts.weights.load(IDENTITY, into=into)
        assert parts.lease_count() == 0
        assert not [
            name for name in await to_thread.run_sync(os.listdir, tmp_path) if "partial" in name
        ]


async def test_name_that_is_a_folder_is_refused_before_any_file_is_replaced(tmp_path: Path) -> None:
    async with published(tmp_path) as parts:
        out = tmp_path / "out"
        into = IntoFolder(path=out, file_bytes=4000)
        report = await parts.weights.load(IDENTITY, into=into)
        first, last = Path(report.files[0]), Path(report.files[-1])

        def spoil() -> None:
            first.write_bytes(b"kept")
            last.unlink()
            last.mkdir()

        await to_thread.run_sync(spoil)
        with pytest.raises(TargetError, match="is a folder"):
            await parts.weights.load(IDENTITY, into=into)
        assert await to_thread.run_sync(first.read_bytes) == b"kept"


def test_more_memory_than_there_is_is_a_target_error() -> None:
    target = Target(
        tensor=TensorDescriptor(
            tensor_id="huge",
            global_shape=(2**60,),
            dtype="U8",
            itemsize=1,
            layout_fingerprint="row-major",
        ),
        shape=(2**60,),
        nbytes=2**60,
    )
    with pytest.raises(TargetError, match=str(2**60)):
        arena_windows([target])


async def test_buffers_are_filled_in_place(tmp_path: Path) -> None:
    async with published(tmp_path) as parts:
        embed = np.zeros((64, 48), dtype=np.float32)
        mask = bytearray(13)
        report = await parts.weights.load(
            IDENTITY, into=IntoBuffers(buffers={"embed": embed, "mask": mask})
        )
        assert embed.tobytes() == parts.model["embed"][2]
        assert bytes(mask) == parts.model["mask"][2]
        assert report.tensor_count == 2
        assert dict(report.tensors) == {}


@pytest.mark.parametrize(
    "buffer, why",
    [
        (bytearray(12), "13 writable bytes"),
        (bytearray(14), "13 writable bytes"),
        (bytes(13), "13 writable bytes"),
        (np.zeros((13, 2), dtype=np.uint8)[:, 0], "no contiguous buffer"),
        ("text", "no contiguous buffer"),
    ],
)
async def test_buffer_that_does_not_fit_is_refused(tmp_path: Path, buffer: Any, why: str) -> None:
    async with published(tmp_path) as parts:
        with pytest.raises(TargetError, match=why):
            await parts.weights.load(IDENTITY, into=IntoBuffers(buffers={"mask": buffer}))
        assert parts.lease_count() == 0


async def test_slices_are_loaded_as_slices(tmp_path: Path) -> None:
    async with published(tmp_path) as parts:
        rows = await parts.weights.load(
            IDENTITY, [TensorSlice(tensor_id="embed", dim=0, start=10, stop=50), "mask"]
        )
        columns = await parts.weights.load(
            IDENTITY, [TensorSlice(tensor_id="embed", dim=1, start=5, stop=7)]
        )
        embed = np.frombuffer(parts.model["embed"][2], dtype=np.float32).reshape(64, 48)
        assert rows.tensors["embed"].shape == (40, 48)
        assert bytes(rows.tensors["embed"].data) == embed[10:50].tobytes()
        assert bytes(columns.tensors["embed"].data) == embed[:, 5:7].tobytes()


@pytest.mark.parametrize(
    "tensors, code",
    [
        (["absent"], ErrorCode.NOT_FOUND),
        (["mask", "mask"], ErrorCode.INVALID_ARGUMENT),
        ([TensorSlice(tensor_id="mask", dim=1)], ErrorCode.INVALID_ARGUMENT),
    ],
)
async def test_unknown_or_repeated_tensor_is_refused(
    tmp_path: Path, tensors: Any, code: ErrorCode
) -> None:
    async with published(tmp_path) as parts:
        with pytest.raises(WeightError) as caught:
            await parts.weights.load(IDENTITY, tensors)
        assert caught.value.code is code
        assert parts.lease_count() == 0


async def test_loaded_tensors_become_numpy_arrays_without_a_copy(tmp_path: Path) -> None:
    async with published(tmp_path) as parts:
        report = await parts.weights.load(IDENTITY)
        for name, (dtype, shape, content) in parts.model.items():
            item: LoadedTensor = report.tensors[name]
            assert item.data.readonly
            if dtype in {"BF16", "F8_E4M3"}:
                with pytest.raises(TargetError):
                    item.numpy()
                continue
            array = item.numpy()
            assert array.shape == shape
            assert array.tobytes() == content


async def test_empty_choice_loads_nothing(tmp_path: Path) -> None:
    async with published(tmp_path) as parts:
        report = await parts.weights.load(IDENTITY, [])
        assert dict(report.tensors) == {}
        assert report.read_bytes == 0


async def test_deletion_waits_for_the_lease_of_a_running_load(tmp_path: Path) -> None:
    async with published(tmp_path) as parts:
        refusals: list[WeightctlError] = []

        async def try_delete(key: str) -> None:
            try:
                await parts.store.delete_revision(identity=IDENTITY, expected_metadata_generation=2)
            except WeightError as error:
                assert error.code is ErrorCode.BUSY  # noqa: PT017 - collected below
                refusals.append(error)

        parts.hot.faults.before_read = try_delete
        await parts.weights.load(IDENTITY)
        assert refusals
