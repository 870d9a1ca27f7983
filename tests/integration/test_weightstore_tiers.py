"""The weight store over the real store and the real file tiers: crashes, mapping, damage."""

import hashlib
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import metadata
from pathlib import Path

import pytest
from anyio import to_thread

from tests.support.models import random_tensors, real_model, write_model
from tests.support.put_child import OPTIONS
from tests.support.rig import IDENTITY, contents
from tests.support.tiers import file_tiers
from weightctl.controller.clock import SystemClock, SystemEntropy
from weightctl.controller.core.ranges import TensorSlice
from weightctl.controller.core.records import Availability
from weightctl.controller.ports import DropItem, Fence, Tier, TierContext
from weightctl.controller.store.store import WeightMetadataStore
from weightctl.controller.weightstore.facade import WeightStore
from weightctl.controller.weightstore.targets import IntoArrays, IntoBuffers, IntoFolder

ROOT = Path(__file__).parents[2]
MODEL = random_tensors()
FACTORIES = {entry.name: entry.load() for entry in metadata.entry_points(group="weightctl.tiers")}


@asynccontextmanager
async def opened(
    folder: Path,
) -> AsyncIterator[tuple[WeightMetadataStore, list[Tier], WeightStore]]:
    clock, entropy = SystemClock(), SystemEntropy()
    async with (
        WeightMetadataStore.open(folder / "state", clock=clock, entropy=entropy) as store,
        file_tiers(folder, clock=clock, entropy=entropy) as tiers,
    ):
        yield store, tiers, WeightStore(store, tiers, clock=clock, entropy=entropy, options=OPTIONS)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model.safetensors", MODEL)


def killed_at(folder: Path, *point: str) -> int:
    """Run an import in a process of its own; give how it ended."""
    command = [sys.executable, "-m", "tests.support.put_child", str(folder), *point]
    environment = {"PYTHONPATH": f"{ROOT / '.devroot'}:{ROOT}"}
    return subprocess.run(command, check=False, cwd=ROOT, env=environment).returncode


CRASHES = [
    ("hash", "1"),
    ("after", "begin_import"),
    ("after", "register"),
    ("store", "1"),
    ("store", "5"),
    ("store", "7"),
    ("verify", "1"),
    ("verify", "4"),
    ("after", "commit_import"),
]


@pytest.mark.parametrize("point", CRASHES, ids="-".join)
async def test_import_killed_at_any_point_is_resumed_whole(
    tmp_path: Path, source: Path, point: tuple[str, str]
) -> None:
    assert await to_thread.run_sync(killed_at, tmp_path, *point) == -9
    async with opened(tmp_path) as (_, tiers, weights):
        report = await weights.put(IDENTITY, source)
        assert report.record.availability is Availability.READY
        loaded = await weights.load(IDENTITY, verify=True)
        assert contents(loaded.tensors) == MODEL
        held = await tiers[1].inventory(report.record.manifest.payload_group_id)
        items = [item for found in held.values() for item in found]
        assert {item.state for item in items} == {"complete"}
        assert len(items) == report.payload_count + 1


async def test_loaded_arrays_are_the_memory_tiers_own_pages(tmp_path: Path, source: Path) -> None:
    async with opened(tmp_path) as (store, tiers, weights):
        await weights.put(IDENTITY, source)
        report = await weights.load(IDENTITY)
        whole = {name for name, item in report.tensors.items() if item.mapped}
        # `embed` and `layers.1.w` are larger than a payload object of this test.
        assert whole == set(MODEL) - {"embed"}
        assert report.mapped_bytes == sum(len(MODEL[name][2]) for name in whole)
        assert report.read_bytes == len(MODEL["embed"][2])
        group = await store.directory.members(report.record.manifest.payload_group_id)
        seen = await tiers[0].observe(group, detail=range(len(group)))
        fence = Fence(holder=store.holder, term=store.term, operation_id=0, generation=2)
        await tiers[0].drop(
            [
                DropItem(member=group.member(index), instance_id=detail.instance_id)
                for index, detail in seen.details.items()
            ],
            fence,
        )
        assert contents(report.tensors) == MODEL


async def test_slice_along_the_first_dimension_is_mapped_too(tmp_path: Path, source: Path) -> None:
    async with opened(tmp_path) as (_, _, weights):
        await weights.put(IDENTITY, source)
        wanted = TensorSlice(tensor_id="layers.1.w", dim=0, start=3, stop=9)
        report = await weights.load(IDENTITY, [wanted], into=IntoArrays())
        assert report.tensors["layers.1.w"].mapped
        assert bytes(report.tensors["layers.1.w"].data) == MODEL["layers.1.w"][2][48:144]


async def test_folder_and_buffers_equal_the_source(tmp_path: Path, source: Path) -> None:
    async with opened(tmp_path) as (_, _, weights):
        await weights.put(IDENTITY, source)
        report = await weights.load(IDENTITY, into=IntoFolder(path=tmp_path / "out"))
        assert report.verified_bytes == report.tensor_bytes
        written = await to_thread.run_sync(Path(report.files[0]).read_bytes)
        assert written == await to_thread.run_sync(source.read_bytes)
        buffers = {name: bytearray(len(content)) for name, (_, _, content) in MODEL.items()}
        await weights.load(IDENTITY, into=IntoBuffers(buffers=buffers))
        assert {name: bytes(buffer) for name, buffer in buffers.items()} == {
            name: content for name, (_, _, content) in MODEL.items()
        }


def flip(root: Path) -> int:
    """Flip one bit in every stored payload below a tier's root; give how many."""
    flipped = 0
    for path in root.rglob("*payload*"):
        if path.is_file() and "manifest" not in path.name:
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 4
            path.chmod(0o600)
            path.write_bytes(content)
            flipped += 1
    return flipped


async def test_flipped_bits_in_memory_are_found_and_the_disk_serves(
    tmp_path: Path, source: Path
) -> None:
    async with opened(tmp_path) as (_, _, weights):
        put = await weights.put(IDENTITY, source)
        assert await to_thread.run_sync(flip, tmp_path / "memory") == put.payload_count
        report = await weights.load(IDENTITY, into=IntoFolder(path=tmp_path / "out"))
        assert report.bytes_by_tier == {"disk": report.tensor_bytes}
        written = await to_thread.run_sync(Path(report.files[0]).read_bytes)
        assert written == await to_thread.run_sync(source.read_bytes)
        checked = await weights.load(IDENTITY, verify=True)
        assert contents(checked.tensors) == MODEL


@pytest.mark.parametrize("kind", ["memory", "local_disk", "dfs", "nof"])
async def test_every_kind_of_tier_serves_a_put_and_a_load(
    tmp_path: Path, source: Path, kind: str
) -> None:
    clock, entropy = SystemClock(), SystemEntropy()
    context = TierContext(clock=clock, entropy=entropy, state_dir=str(tmp_path / "state"))
    options: dict[str, object] = {"path": str(tmp_path / kind)}
    if kind == "nof":
        options["size_bytes"] = 64 * 1024 * 1024
    tier: Tier = FACTORIES[kind]("only", options, context)
    state = WeightMetadataStore.open(tmp_path / "state", clock=clock, entropy=entropy)
    async with tier, state as store:
        weights = WeightStore(store, [tier], clock=clock, entropy=entropy, options=OPTIONS)
        put = await weights.put(IDENTITY, source, tiers=["only"])
        assert put.tiers == ("only",)
        report = await weights.load(IDENTITY, verify=True)
        assert contents(report.tensors) == MODEL
        wanted = TensorSlice(tensor_id="embed", dim=1, start=1, stop=4)
        part = await weights.load(IDENTITY, [wanted])
        embed = MODEL["embed"][2]
        rows = [embed[4 * 48 * row : 4 * 48 * (row + 1)] for row in range(64)]
        assert bytes(part.tensors["embed"].data) == b"".join(row[4:16] for row in rows)


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@pytest.fixture
def model() -> Path:
    return real_model()


async def test_real_model_comes_back_byte_for_byte(model: Path, tmp_path: Path) -> None:
    clock, entropy = SystemClock(), SystemEntropy()
    async with (
        WeightMetadataStore.open(tmp_path / "state", clock=clock, entropy=entropy) as store,
        file_tiers(tmp_path, clock=clock, entropy=entropy) as tiers,
    ):
        weights = WeightStore(store, tiers, clock=clock, entropy=entropy)
        await weights.put(IDENTITY, model)
        report = await weights.load(IDENTITY, into=IntoFolder(path=tmp_path / "out"))
        assert report.verified_bytes == report.tensor_bytes
        hashes = [
            await to_thread.run_sync(file_sha256, path) for path in (model, Path(report.files[0]))
        ]
        assert hashes[0] == hashes[1]
