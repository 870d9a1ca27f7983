"""Two Masters with etcd: a failover is a new epoch, with and without Mooncake's own op-log."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio import to_thread

from tests.support.models import random_tensors, write_model
from tests.support.mooncake_lab import CLUSTER_ID, PATIENT, Pair, needs_wheel, pair, require_etcd
from tests.support.mooncake_sidecar import sidecar
from tests.support.rig import IDENTITY, contents
from weightctl.controller.core.records import Availability, Residency

pytestmark = needs_wheel

READY = Availability.READY
HOT, COLD = Residency.HOT, Residency.COLD
MODEL = random_tensors(rows=1024)


@pytest.fixture(params=[False, True], ids=["without-op-log", "with-op-log"])
def two(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    require_etcd()
    folder = tmp_path / "cluster"
    folder.mkdir()
    flags = [PATIENT, f"--enable_oplog={str(request.param).lower()}"]
    with pair(folder, *flags) as made:
        yield made


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model.safetensors", MODEL)


async def test_a_failover_loses_no_revision_and_drops_nothing_before_it_has_settled(
    two: Pair, tmp_path: Path, source: Path
) -> None:
    async with sidecar(two, tmp_path, cluster=CLUSTER_ID) as beside:
        await beside.weights.put(IDENTITY, source)
        await beside.becomes(READY, HOT)
        members = await beside.members()
        epoch = (await beside.disk.observe(members)).epoch
        assert epoch
        await to_thread.run_sync(two.stop_master)
        await beside.start(COLD)
        await beside.becomes(READY, COLD)
        assert (await beside.disk.observe(members)).epoch not in ("", epoch)
        loaded = await beside.weights.load(IDENTITY, verify=True)
        assert contents(loaded.tensors) == MODEL
