"""Hosts and Masters that die in the middle, come back early, late, or with what was removed."""

import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from anyio import to_thread

from tests.support.models import random_tensors, write_model
from tests.support.mooncake.lab import (
    SOON_MISSED,
    Cluster,
    await_offloads,
    cluster,
    needs_wheel,
    until,
)
from tests.support.mooncake.sidecar import WAIT_S, Sidecar, sidecar
from tests.support.rig import IDENTITY, contents
from weightctl.controller.api.app import StoreRecords
from weightctl.controller.api.orphans import orphan_list
from weightctl.controller.api.planning import Planning
from weightctl.controller.clock import SystemClock
from weightctl.controller.core.identity import payload_group_id
from weightctl.controller.core.observation import MemberState
from weightctl.controller.core.policy import Policy
from weightctl.controller.core.records import Availability, Residency, RevisionMetadata
from weightctl.controller.errors import CapacityError, TransientError, UnknownOutcomeError
from weightctl.controller.weightstore.options import Progress

pytestmark = needs_wheel

READY, DEGRADED, DELETED = Availability.READY, Availability.DEGRADED, Availability.DELETED
HOT, COLD, ABSENT, MIXED = Residency.HOT, Residency.COLD, Residency.ABSENT, Residency.MIXED
Noticed = Callable[[], Awaitable[None]]
Kills = Callable[[Cluster, Noticed], Awaitable[None]]
MODEL = random_tensors(rows=12_000)  # several payload objects
LONG_TTL_S = 20
"""Longer than a prepared host takes to start there, as a rule."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model.safetensors", MODEL)


@pytest.fixture
def lone(tmp_path: Path) -> Iterator[Cluster]:
    """One host, which its Master forgets soon after its death."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    with cluster(folder, SOON_MISSED, hosts=1) as made:
        yield made


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Cluster]:
    """The same with a Master that waits longer."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    with cluster(folder, f"--client_ttl={LONG_TTL_S}", hosts=1) as made:
        yield made


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with cluster(folder, SOON_MISSED, hosts=3) as made:
        yield made


async def orphans(beside: Sidecar) -> list[tuple[str, str]]:
    """(group, reason) of everything that nobody owns."""
    planning = Planning(
        records=StoreRecords(beside.store),
        tiers=(beside.memory, beside.disk),
        policy=Policy(),
        clock=SystemClock(),
    )
    rows = (await orphan_list(planning))["items"]
    return [(row["payloadGroupId"], row["why"].partition(":")[0]) for row in rows]


def forgotten(real: Cluster) -> None:
    until(
        "the host is forgotten",
        lambda: json.loads(real.get("/get_segments_detail"))["total_segments"] == 0,
    )


async def whole(beside: Sidecar) -> None:
    loaded = await beside.weights.load(IDENTITY, verify=True)
    assert contents(loaded.tensors) == MODEL


# --- a death in an operation ---


async def kills_master(real: Cluster, noticed: Noticed) -> None:
    await to_thread.run_sync(real.stop_master)
    await noticed()
    await to_thread.run_sync(real.start_master)


async def kills_host(real: Cluster, noticed: Noticed) -> None:
    await to_thread.run_sync(real.hosts[0].kill)
    await to_thread.run_sync(forgotten, real)
    await noticed()
    await to_thread.run_sync(real.hosts[0].start)


def missed(kills: Kills, beside: Sidecar) -> Noticed:
    """Until the loop misses it; that of a host it is told only by what it looks at."""
    return beside.misses if kills is kills_master else anyio.lowlevel.checkpoint


@pytest.mark.parametrize("kills", [kills_master, kills_host])
async def test_an_import_in_which_it_dies_ends_with_the_same_command(
    lone: Cluster, tmp_path: Path, source: Path, kills: Kills
) -> None:
    async with sidecar(lone, tmp_path) as beside, anyio.create_task_group() as tasks:
        under_way, refused, over = anyio.Event(), anyio.Event(), anyio.Event()

        def told(progress: Progress) -> None:
            if progress.stage == "store" and progress.done_bytes:
                under_way.set()

        async def kill() -> None:
            await under_way.wait()
            await kills(lone, refused.wait)
            await to_thread.run_sync(await_offloads, lone)
            over.set()

        tasks.start_soon(kill)
        with anyio.fail_after(WAIT_S):
            while not await imported(beside, source, told):
                refused.set()
                await over.wait()
        refused.set()  # or it was too late for that
        await over.wait()
        await on_disk(beside)
        await whole(beside)
        assert (await beside.record()).availability is READY


@pytest.mark.parametrize("kills", [kills_master, kills_host])
@pytest.mark.parametrize("target", [COLD, HOT], ids=["evict", "rehydrate"])
async def test_an_operation_in_which_it_dies_ends_when_it_is_back(
    lone: Cluster, tmp_path: Path, source: Path, target: Residency, kills: Kills
) -> None:
    async with sidecar(lone, tmp_path) as beside:
        await beside.weights.put(IDENTITY, source)
        await beside.becomes(READY, HOT)
        if target is HOT:
            await beside.start(COLD)
            await beside.becomes(READY, COLD)
        await beside.start(target)
        await kills(lone, missed(kills, beside))
        await beside.becomes(READY, target)
        await whole(beside)


@pytest.mark.parametrize("kills", [kills_master, kills_host])
async def test_a_deletion_in_which_it_dies_ends_and_what_comes_back_is_told(
    lone: Cluster, tmp_path: Path, source: Path, kills: Kills
) -> None:
    async with sidecar(lone, tmp_path) as beside:
        await beside.weights.put(IDENTITY, source)
        await beside.becomes(READY, HOT)
        await beside.delete()
        await kills(lone, missed(kills, beside))
        await beside.becomes(DELETED, ABSENT)
        keys = (await to_thread.run_sync(lone.get, "/get_all_keys")).split()
        left = any(key.startswith("weights/") for key in keys)
        assert left <= bool(await orphans(beside))
        assert (await beside.record()).availability is DELETED


async def imported(
    beside: Sidecar, source: Path, told: Callable[[Progress], None]
) -> RevisionMetadata | None:
    """The command, unless it says that it helps to repeat it."""
    with suppress(TransientError, UnknownOutcomeError, CapacityError):
        return (await beside.weights.put(IDENTITY, source, progress=told)).record
    return None


async def on_disk(beside: Sidecar) -> None:
    """Until the hosts have told the Master of every member again."""
    members = await beside.members()
    with anyio.fail_after(WAIT_S):
        while True:
            if set((await beside.disk.observe(members)).states) == {MemberState.COMPLETE}:
                return
            await anyio.sleep(0.1)


# --- hosts ---


async def test_of_three_hosts_those_that_are_named_hold_it_and_one_is_lost_and_comes_back(
    three: Cluster, tmp_path: Path, source: Path
) -> None:
    named, lost = three.hosts[:2], three.hosts[1]
    async with sidecar(three, tmp_path, segments=tuple(host.name for host in named)) as beside:
        await beside.weights.put(IDENTITY, source)
        await beside.becomes(READY, HOT)
        assert await places(beside, three) == {host.name for host in named}
        await to_thread.run_sync(lost.kill)
        await beside.becomes(DEGRADED, MIXED)
        await to_thread.run_sync(lost.start)
        await beside.becomes(READY, MIXED)
        await beside.start(HOT)
        await beside.becomes(READY, HOT)
        assert await places(beside, three) <= {host.name for host in three.hosts}
        await whole(beside)
    async with sidecar(three, tmp_path) as beside:  # another client, which moves all of them away
        await beside.start(COLD)
        await beside.becomes(READY, COLD)
        assert not await places(beside, three)
        await whole(beside)


async def places(beside: Sidecar, real: Cluster) -> set[str]:
    """Segments on which members lie in memory."""
    segments = json.loads(await to_thread.run_sync(real.get, "/get_segments_detail"))["segments"]
    names = {row["te_endpoint"]: row["segment_name"] for row in segments}
    entries = [await to_thread.run_sync(real.entry, key) for key in (await beside.members()).keys]
    found = [value for entry in entries for value in entry["values"] or ()]
    return {names[value["transport_endpoint_"]] for value in found}


def comes_back_early(real: Cluster) -> None:
    """Unless the machine is slow; wait until its Master has missed the one before."""
    (before,) = clients(real)
    real.hosts[0].prepare()
    real.hosts[0].kill()
    real.hosts[0].start()
    until("the one before is forgotten", lambda: before not in clients(real))


def clients(real: Cluster) -> set[str]:
    rows = json.loads(real.get("/get_segments_detail"))["segments"]
    return {row["client_id"] for row in rows}


def state(beside: Sidecar) -> tuple[Availability, Residency]:
    record = beside.store.record(identity=IDENTITY)
    assert record is not None
    return record.availability, record.residency


async def test_a_host_back_within_its_time_is_lost_and_comes_back_with_its_next_start(
    patient: Cluster, tmp_path: Path, source: Path
) -> None:
    """Mooncake takes the early one's disk for the dead one's, and forgets it with that one."""
    async with sidecar(patient, tmp_path) as beside:
        await beside.weights.put(IDENTITY, source)
        await beside.becomes(READY, HOT)
        lost, too_late = (DEGRADED, ABSENT), (READY, COLD)
        while state(beside) != lost:
            await to_thread.run_sync(comes_back_early, patient)
            await beside.soon(lambda: state(beside) in (lost, too_late))
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
        assert await orphans(beside) == [(payload_group_id(IDENTITY), "OwnerDeleted")]
        assert (await beside.record()).availability is DELETED
