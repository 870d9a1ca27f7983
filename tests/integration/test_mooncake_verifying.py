"""Reading what an eviction waits for, all the time: it ends nevertheless, on a real Mooncake."""

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from tests.support.models import random_tensors, write_model
from tests.support.mooncake.lab import PATIENT, Cluster, cluster, needs_wheel
from tests.support.mooncake.sidecar import Sidecar, sidecar
from tests.support.rig import IDENTITY
from weightctl.controller.core.records import Availability, Residency

pytestmark = needs_wheel

MODEL = random_tensors(rows=6_000)


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with cluster(folder, PATIENT, hosts=1, segment_mib=64) as made:
        yield made


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model.safetensors", MODEL)


async def verified_all_the_time(beside: Sidecar, begun: anyio.Event) -> None:
    members = await beside.members()
    batch = list(members.select(range(len(members))))
    while True:
        await beside.disk.verify(batch)
        begun.set()
        await anyio.sleep(0.02)


async def test_an_eviction_ends_although_its_members_are_verified_all_the_time(
    real: Cluster, tmp_path: Path, source: Path
) -> None:
    async with sidecar(real, tmp_path) as beside:
        await beside.weights.put(IDENTITY, source)
        await beside.becomes(Availability.READY, Residency.HOT)
        begun = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(verified_all_the_time, beside, begun)
            await begun.wait()
            await beside.start(Residency.COLD)
            await beside.becomes(Availability.READY, Residency.COLD)
            tasks.cancel_scope.cancel()
