"""Two Masters with etcd: a failover is a new epoch, with and without Mooncake's own op-log."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from tests.support.models import random_tensors, write_model
from tests.support.mooncake.lab import CLUSTER_ID, PATIENT, Pair, needs_wheel, pair, require_etcd
from tests.support.mooncake.sidecar import WAIT_S, Sidecar, sidecar
from tests.support.rig import IDENTITY, contents
from weightctl.controller.core.observation import Members
from weightctl.controller.core.records import Availability, Residency
from weightctl.controller.errors import CapacityError, TransientError, UnknownOutcomeError

pytestmark = needs_wheel

READY = Availability.READY
COLD = Residency.COLD
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
        await imported(beside, source)
        members = await beside.members()
        epoch = await epoch_of(beside, members)
        await to_thread.run_sync(two.stop_master)
        await cold(beside)
        assert (await beside.disk.observe(members)).epoch not in ("", epoch)
        loaded = await beside.weights.load(IDENTITY, verify=True)
        assert contents(loaded.tensors) == MODEL


# A machine that is busy may cause a failover of its own in each of these (see `Pair`).


async def imported(beside: Sidecar, source: Path) -> None:
    with anyio.fail_after(WAIT_S):
        while True:
            with suppress(TransientError, UnknownOutcomeError, CapacityError):
                await beside.weights.put(IDENTITY, source)
                return


async def epoch_of(beside: Sidecar, members: Members) -> str:
    with anyio.fail_after(WAIT_S):
        while True:
            if epoch := (await beside.disk.observe(members)).epoch:
                return epoch
            await anyio.sleep(0.1)


async def cold(beside: Sidecar) -> None:
    """Evicted, or found to be in no memory any more."""
    if (await beside.record()).residency is not COLD:
        await beside.start(COLD)
    await beside.becomes(READY, COLD)
