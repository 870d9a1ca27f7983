"""A model's life beside a real Master with two hosts: what the Master says is what is asserted."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio import to_thread

from tests.support.models import random_tensors, write_model
from tests.support.mooncake.lab import PATIENT, Cluster, cluster, needs_wheel, until
from tests.support.mooncake.sidecar import Sidecar, sidecar
from tests.support.rig import IDENTITY, contents
from weightctl.controller.core.records import Availability, Residency
from weightctl.controller.errors import WeightError

pytestmark = needs_wheel

READY, DELETED = Availability.READY, Availability.DELETED
HOT, COLD, ABSENT = Residency.HOT, Residency.COLD, Residency.ABSENT
MODEL = random_tensors(rows=4096)

# What a process does that has nothing but the Mooncake client: a JSON list of [method, arguments].
_STRANGER = """
import hashlib, json, sys
from mooncake.store import MooncakeDistributedStore
store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 32 << 20, "tcp", "", sys.argv[1]) == 0
answers = []
for name, args in json.loads(sys.argv[2]):
    answer = getattr(store, name)(*args)
    answers.append(hashlib.sha256(answer).hexdigest() if isinstance(answer, bytes) else answer)
print(json.dumps(answers))
store.close()
"""


def stranger(real: Cluster, *calls: tuple[str, list[object]]) -> list[object]:
    """The answers to calls of a process of its own; bytes as their SHA-256."""
    asked = subprocess.run(
        [sys.executable, "-c", _STRANGER, real.master, json.dumps(calls)],
        capture_output=True,
        text=True,
        check=True,
    )
    answers: list[object] = json.loads(asked.stdout.strip().splitlines()[-1])
    return answers


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with cluster(folder, PATIENT) as made:
        yield made


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model.safetensors", MODEL)


async def in_memory(beside: Sidecar, real: Cluster) -> int:
    """How many members the Master shows in memory."""
    keys = (await beside.members()).keys
    entries = [await to_thread.run_sync(real.entry, key) for key in keys]
    return sum(bool(entry["values"]) for entry in entries)


async def test_a_model_lives_through_every_state(
    real: Cluster, tmp_path: Path, source: Path
) -> None:
    async with sidecar(real, tmp_path) as beside:
        report = await beside.weights.put(IDENTITY, source)
        assert report.tiers == ("mooncake-memory", "mooncake-local-disk")
        await beside.becomes(READY, HOT)
        members = await beside.members()
        calls = [("get", [key]) for key in members.keys]
        digests = [members.digest(index).hex() for index in range(len(members))]

        def read() -> bool:
            """Unless it is held up for longer than its lease: then a read has no bytes."""
            return stranger(real, *calls) == digests  # type: ignore[arg-type]

        await to_thread.run_sync(until, "another client reads the same", read)

        await beside.start(COLD)
        await beside.becomes(READY, COLD)
        assert await in_memory(beside, real) == 0

        await beside.start(HOT)
        await beside.becomes(READY, HOT)
        assert await in_memory(beside, real) == len(members)
        loaded = await beside.weights.load(IDENTITY, verify=True)
        assert contents(loaded.tensors) == MODEL

        record = await beside.record()
        lease = await beside.store.acquire_lease(
            identity=IDENTITY,
            expected_metadata_generation=record.metadata_generation,
            holder="reader",
            ttl_ms=60_000,
        )
        with pytest.raises(WeightError, match="BUSY"):
            await beside.delete()
        assert await in_memory(beside, real) == len(members)
        await beside.store.release_lease(lease_id=lease.lease_id)
        await beside.delete()
        await beside.becomes(DELETED, ABSENT)
        left = (await to_thread.run_sync(real.get, "/get_all_keys")).split()
        assert [key for key in left if key.startswith("weights/")] == []


async def test_a_later_client_drops_what_an_earlier_one_put_by_parking(
    real: Cluster, tmp_path: Path, source: Path
) -> None:
    async with sidecar(real, tmp_path) as beside:
        await beside.weights.put(IDENTITY, source)
    async with sidecar(real, tmp_path) as beside:
        await beside.becomes(READY, HOT)
        await beside.start(COLD)
        await beside.becomes(READY, COLD)
        assert await in_memory(beside, real) == 0
        loaded = await beside.weights.load(IDENTITY, verify=True)
        assert contents(loaded.tensors) == MODEL
        segments = json.loads(await to_thread.run_sync(real.get, "/get_segments_detail"))
        names = {row["segment_name"] for row in segments["segments"]}
        assert names == {host.name for host in real.hosts}


async def test_a_killed_client_is_replaced_and_nothing_is_lost(
    real: Cluster, tmp_path: Path, source: Path
) -> None:
    async with sidecar(real, tmp_path) as beside:
        await beside.weights.put(IDENTITY, source)
        await beside.start(COLD)
        for pid in beside.memory._connection.clients._owner.pids:
            os.kill(pid, signal.SIGKILL)
        await beside.becomes(READY, COLD)
        assert await in_memory(beside, real) == 0


async def test_a_frozen_master_costs_a_deadline_and_changes_nothing(
    real: Cluster, tmp_path: Path, source: Path
) -> None:
    async with sidecar(real, tmp_path) as beside:
        await beside.weights.put(IDENTITY, source)
        before = await beside.becomes(READY, HOT)
        real.freeze()
        try:
            await beside.start(COLD)
            await beside.soon(lambda: any(beside.controller.health().tiers.values()))
            record = await beside.record()
            assert (record.availability, record.residency) == (READY, HOT)
            assert record.manifest == before.manifest
        finally:
            real.thaw()
        await beside.becomes(READY, COLD)


async def test_a_restarted_master_is_a_new_epoch_and_what_the_hosts_have_comes_back(
    real: Cluster, tmp_path: Path, source: Path
) -> None:
    async with sidecar(real, tmp_path) as beside:
        await beside.weights.put(IDENTITY, source)
        await beside.becomes(READY, HOT)
        members = await beside.members()
        epoch = (await beside.disk.observe(members)).epoch
        await to_thread.run_sync(real.stop_master)
        assert set((await beside.disk.observe(members)).states) == {0}
        await to_thread.run_sync(real.start_master)
        await beside.becomes(READY, COLD)
        assert (await beside.disk.observe(members)).epoch not in ("", epoch)
        await beside.start(HOT)
        await beside.becomes(READY, HOT)
        loaded = await beside.weights.load(IDENTITY, verify=True)
        assert contents(loaded.tensors) == MODEL
