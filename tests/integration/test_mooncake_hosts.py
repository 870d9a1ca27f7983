"""Hosts and Masters that die in the middle, come back early, late, or with what was removed."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio import to_thread

from tests.support.models import random_tensors, write_model
from tests.support.mooncake_lab import Cluster, cluster, needs_wheel, until
from tests.support.mooncake_sidecar import Sidecar, sidecar
from tests.support.rig import IDENTITY, contents
from weightctl.controller.api.app import StoreRecords
from weightctl.controller.api.orphans import orphan_list
from weightctl.controller.api.planning import Planning
from weightctl.controller.clock import SystemClock
from weightctl.controller.core.identity import payload_group_id
from weightctl.controller.core.policy import Policy
from weightctl.controller.core.records import Availability, Residency

pytestmark = needs_wheel

READY, DEGRADED, DELETED = Availability.READY, Availability.DEGRADED, Availability.DELETED
HOT, COLD, ABSENT = Residency.HOT, Residency.COLD, Residency.ABSENT
MODEL = random_tensors(rows=12_000)  # several payload objects
CLIENT_TTL_S = 10
"""After which a host is dead: longer than a busy machine holds one up that is alive."""
LONG_TTL_S = 20
"""Longer than a prepared host takes to start there."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model.safetensors", MODEL)


@pytest.fixture
def lone(tmp_path: Path) -> Iterator[Cluster]:
    """One host, which its Master forgets soon after its death."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    with cluster(folder, f"--client_ttl={CLIENT_TTL_S}", hosts=1) as made:
        yield made


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Cluster]:
    """The same with a Master that waits longer."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    with cluster(folder, f"--client_ttl={LONG_TTL_S}", hosts=1) as made:
        yield made


def forgotten(real: Cluster) -> None:
    until(
        "the host is forgotten",
        lambda: json.loads(real.get("/get_segments_detail"))["total_segments"] == 0,
    )


async def whole(beside: Sidecar) -> None:
    loaded = await beside.weights.load(IDENTITY, verify=True)
    assert contents(loaded.tensors) == MODEL


@pytest.mark.parametrize("target", [COLD, HOT], ids=["evict", "rehydrate"])
async def test_a_master_that_dies_in_an_operation_ends_it_when_it_is_back(
    lone: Cluster, tmp_path: Path, source: Path, target: Residency
) -> None:
    async with sidecar(lone, tmp_path) as beside:
        await beside.weights.put(IDENTITY, source)
        await beside.becomes(READY, HOT)
        if target is HOT:
            await beside.start(COLD)
            await beside.becomes(READY, COLD)
        await beside.start(target)
        await to_thread.run_sync(lone.stop_master)
        await beside.soon(lambda: any(beside.controller.health().tiers.values()))
        assert (await beside.record()).availability is READY, "no answer is no absence"
        await to_thread.run_sync(lone.start_master)
        await beside.becomes(READY, target)
        await whole(beside)


@pytest.mark.parametrize("target", [COLD, HOT], ids=["evict", "rehydrate"])
async def test_a_host_that_dies_in_an_operation_ends_it_when_it_is_back(
    lone: Cluster, tmp_path: Path, source: Path, target: Residency
) -> None:
    async with sidecar(lone, tmp_path) as beside:
        await beside.weights.put(IDENTITY, source)
        await beside.becomes(READY, HOT)
        if target is HOT:
            await beside.start(COLD)
            await beside.becomes(READY, COLD)
        await beside.start(target)
        await to_thread.run_sync(lone.hosts[0].kill)
        await to_thread.run_sync(forgotten, lone)
        await to_thread.run_sync(lone.hosts[0].start)
        await beside.becomes(READY, target)
        await whole(beside)


async def test_a_host_back_within_its_time_is_lost_and_comes_back_with_its_next_start(
    patient: Cluster, tmp_path: Path, source: Path
) -> None:
    """Mooncake takes the early one's disk for the dead one's, and forgets it with that one."""
    async with sidecar(patient, tmp_path) as beside:
        await beside.weights.put(IDENTITY, source)
        await beside.becomes(READY, HOT)
        await to_thread.run_sync(patient.hosts[0].prepare)
        await to_thread.run_sync(patient.hosts[0].kill)
        await to_thread.run_sync(patient.hosts[0].start)
        await beside.becomes(DEGRADED, ABSENT)
        await to_thread.run_sync(patient.hosts[0].kill)
        await to_thread.run_sync(forgotten, patient)
        await to_thread.run_sync(patient.hosts[0].start)
        await beside.becomes(READY, COLD)
        await whole(beside)


async def test_what_a_host_brings_back_after_a_deletion_is_told_and_not_taken_for_a_revision(
    lone: Cluster, tmp_path: Path, source: Path
) -> None:
    async with sidecar(lone, tmp_path) as beside:
        await beside.weights.put(IDENTITY, source)
        await beside.delete()
        await beside.becomes(DELETED, ABSENT)
        await to_thread.run_sync(lone.hosts[0].kill)
        await to_thread.run_sync(forgotten, lone)
        await to_thread.run_sync(lone.hosts[0].start)

        def risen() -> bool:
            return "weights/" in lone.get("/get_all_keys")

        await to_thread.run_sync(until, "the removed keys come back", risen)
        planning = Planning(
            records=StoreRecords(beside.store),
            tiers=(beside.memory, beside.disk),
            policy=Policy(),
            clock=SystemClock(),
        )
        rows = (await orphan_list(planning))["items"]
        assert [(row["payloadGroupId"], row["why"].partition(":")[0]) for row in rows] == [
            (payload_group_id(IDENTITY), "OwnerDeleted")
        ]
        assert (await beside.record()).availability is DELETED
