"""Others' traffic beside managed weights: neither hurts the other, and what goes wrong is told."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio import to_thread

from tests.support.models import random_tensors, write_model
from tests.support.mooncake.lab import (
    PATIENT,
    SOON_MISSED,
    Cluster,
    cluster,
    needs_wheel,
    until,
)
from tests.support.mooncake.sidecar import sidecar
from tests.support.rig import IDENTITY, contents
from weightctl.controller.core.records import Availability, Residency
from weightctl.controller.errors import CapacityError, ReconcileError

pytestmark = needs_wheel

READY = Availability.READY
HOT, COLD = Residency.HOT, Residency.COLD
MODEL = random_tensors(rows=4096)

# Puts far more than fits, as a cache does; prints how many puts were taken.
_CACHE = """
import json, os, sys
from mooncake.store import MooncakeDistributedStore
store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 32 << 20, "tcp", "", sys.argv[1]) == 0
value, taken = os.urandom(1 << 20), 0
for number in range(int(sys.argv[2])):
    taken += store.put(f"kv-{number:06d}", value) == 0
    if number % 3 == 0:
        store.get(f"kv-{number:06d}")
print(json.dumps(taken))
store.close()
"""


def cache(real: Cluster, puts: int) -> int:
    """Run the cache workload; how many of its puts were taken."""
    done = subprocess.run(
        [sys.executable, "-c", _CACHE, real.master, str(puts)],
        capture_output=True,
        text=True,
        check=True,
    )
    taken: int = json.loads(done.stdout.strip().splitlines()[-1])
    return taken


def cached(real: Cluster) -> set[str]:
    """Keys of the cache that are in memory."""
    keys = [key for key in real.get("/get_all_keys").split() if key.startswith("kv-")]
    if not keys:
        return set()
    entries = json.loads(real.get("/batch_query_keys?keys=" + ",".join(keys)))["data"]
    return {key for key, entry in entries.items() if entry["values"]}


def payload_files(real: Cluster) -> list[Path]:
    """Files of the hosts that hold a payload."""
    files = [path for host in real.hosts for path in host.folder.rglob("*")]
    return [path for path in files if "payload" in path.name]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with cluster(folder, PATIENT, segment_mib=32) as made:
        yield made


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model.safetensors", MODEL)


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """Larger than the segments of both hosts."""
    return write_model(tmp_path / "large.safetensors", random_tensors(rows=800_000))


@pytest.fixture
def lone(tmp_path: Path) -> Iterator[Cluster]:
    """One host that its Master forgets soon."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    with cluster(folder, SOON_MISSED, hosts=1) as made:
        yield made


async def test_a_cache_under_pressure_costs_no_managed_member_and_evicts_its_own(
    small: Cluster, tmp_path: Path, source: Path
) -> None:
    async with sidecar(small, tmp_path) as beside:
        await beside.weights.put(IDENTITY, source)
        await beside.becomes(READY, HOT)
        members = await beside.members()
        first = await to_thread.run_sync(cache, small, 20)
        assert first > 0
        held = await to_thread.run_sync(cached, small)
        for _ in range(5):  # observing keeps none of them alive
            await beside.memory.observe(members)

        def pressed() -> bool:
            cache(small, 200)
            return bool(held - cached(small))

        await to_thread.run_sync(until, "the cache evicts its own", pressed)
        seen = await beside.memory.observe(members)
        assert set(seen.states) == {3}, seen.problem
        loaded = await beside.weights.load(IDENTITY, verify=True)
        assert contents(loaded.tensors) == MODEL
        await beside.start(COLD)
        await beside.becomes(READY, COLD)
        assert await to_thread.run_sync(cached, small)


async def test_what_does_not_fit_is_told_with_the_numbers_and_leaves_nothing(
    small: Cluster, tmp_path: Path, large: Path
) -> None:
    async with sidecar(small, tmp_path) as beside:
        with pytest.raises(CapacityError) as told:
            await beside.weights.put(IDENTITY, large)
        assert told.value.needed_bytes > told.value.free_bytes
        keys = (await to_thread.run_sync(small.get, "/get_all_keys")).split()
        assert [key for key in keys if key.startswith("weights/")] == []


async def test_a_host_that_comes_back_after_its_time_brings_its_disk_copies_again(
    lone: Cluster, tmp_path: Path, source: Path
) -> None:
    async with sidecar(lone, tmp_path) as beside:
        await beside.weights.put(IDENTITY, source)
        await beside.becomes(READY, HOT)
        await to_thread.run_sync(lone.hosts[0].kill)

        def forgotten() -> bool:
            return '"total_segments":0' in lone.get("/get_segments_detail")

        await to_thread.run_sync(until, "the host is forgotten", forgotten)
        await to_thread.run_sync(lone.hosts[0].start)
        await beside.becomes(READY, COLD)
        await beside.start(HOT)
        await beside.becomes(READY, HOT)
        loaded = await beside.weights.load(IDENTITY, verify=True)
        assert contents(loaded.tensors) == MODEL


async def test_a_removed_file_is_found_by_the_next_reader_and_nothing_wrong_is_handed_out(
    small: Cluster, tmp_path: Path, source: Path
) -> None:
    async with sidecar(small, tmp_path) as beside:
        await beside.weights.put(IDENTITY, source)
        await beside.start(COLD)
        await beside.becomes(READY, COLD)
        victims = await to_thread.run_sync(payload_files, small)
        assert victims
        await to_thread.run_sync(victims[0].unlink)
        with pytest.raises(ReconcileError):
            await beside.weights.load(IDENTITY, verify=True)
