"""Disk copies that do not count, on a real Mooncake: of a dead host, of an older put, of another's.

Each was a way to lose the last right copy. What the Master shows in them is its own behaviour: an
upgrade that mends it fails here too, and is welcome.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
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
from tests.support.mooncake.tiers import REAL, both_of
from tests.support.rig import IDENTITY
from weightctl.adapters import memory as plain_memory
from weightctl.adapters.conformance.suite.material import (
    content_of,
    drop_item,
    fence,
    item_of,
    kinds,
    read_all,
    store,
)
from weightctl.adapters.mooncake.lab.cluster import Host
from weightctl.adapters.mooncake.tier import MooncakeTier
from weightctl.controller.core.observation import Member
from weightctl.controller.core.records import Availability, Residency
from weightctl.controller.ports import Corrupt, Done, Limiter, Outcome, Retry, Tier, TierContext

pytestmark = needs_wheel

SIZE_BYTES = 100_000
NEW, OLD = content_of(SIZE_BYTES, 1), content_of(SIZE_BYTES, 2)
_STRANGER = """
import sys, time
from mooncake.store import MooncakeDistributedStore
store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 32 << 20, "tcp", "", sys.argv[1]) == 0
verb, key, *words = sys.argv[2:]
if verb == "move":
    _, code = store.create_move_task(key, *words)
else:
    while (code := store.remove(key)) == -706:
        time.sleep(0.05)
    code = code or store.put(key, b"Z" * int(words[0]))
store.close()
sys.exit(1 if code else 0)
"""


def stranger(real: Cluster, *words: str) -> None:
    subprocess.run([sys.executable, "-c", _STRANGER, real.master, *words], check=True)


def tiers(
    real: Cluster, folder: Path, **changes: object
) -> AbstractAsyncContextManager[tuple[MooncakeTier, MooncakeTier]]:
    return both_of(real, folder, library=REAL, **changes)


async def when(what: str, holds: Callable[[], bool]) -> None:
    await to_thread.run_sync(until, what, holds)


async def on_disk(disk: MooncakeTier, member: Member, content: bytes) -> None:
    (kind,) = kinds(await disk.store([item_of(member, content)], fence()))
    assert kind in {"Done", "NoOp"}


def clients(entry: Mapping[str, Any], kind: str = "local_disk_values") -> list[Any]:
    return list(entry[kind] or ())


def file_of(host: Host, key: str) -> Path:
    (path,) = (path for path in host.folder.rglob(f"*{key}") if path.is_file())
    return path


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(tmp_path, PATIENT, hosts=2, segment_mib=64) as made:
        yield made


@pytest.fixture
def single(tmp_path: Path) -> Iterator[Cluster]:
    """One host, so that what is put anew gets the place of what was there."""
    with cluster(tmp_path, PATIENT, hosts=1, segment_mib=64) as made:
        yield made


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[Cluster]:
    """A Master that soon misses a host; only the first host keeps what is put."""
    with cluster(tmp_path, SOON_MISSED, hosts=1, segment_mib=64) as made:
        made.add_host(64, offload=False)
        yield made


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model.safetensors", random_tensors(rows=500))


async def test_a_dead_host_is_named_and_its_copy_justifies_nothing(
    real: Cluster, tmp_path: Path
) -> None:
    first, second = real.hosts
    async with tiers(real, tmp_path / "s", segments=(first.name,)) as (memory, disk):
        (member,) = await store(memory, {"k": NEW})
        await on_disk(disk, member, NEW)
        (before,) = clients(await to_thread.run_sync(real.entry, "k"), "values")
        await to_thread.run_sync(stranger, real, "move", "k", first.name, second.name)
        await when("it is moved", lambda: clients(real.entry("k"), "values") != [before])
        assert kinds(await disk.verify([member])) == ["Done"]
        await to_thread.run_sync(first.kill)
        item = await drop_item(memory, member)
        for (outcome,) in (await disk.verify([member]), await memory.drop([item], fence())):
            assert isinstance(outcome, Retry)
            assert f"the host of its disk copy does not answer: {first.name}" in outcome.detail
        assert await read_all(memory, member) == NEW


async def deleted(memory: MooncakeTier, member: Member) -> None:
    item = replace(await drop_item(memory, member), whole=True)
    assert kinds(await memory.drop([item], fence())) == ["Done"]


async def test_an_old_file_of_a_host_that_returns_is_no_copy_of_what_a_new_store_puts(
    forgetful: Cluster, tmp_path: Path
) -> None:
    real = forgetful
    first, second = real.hosts
    async with tiers(real, tmp_path / "s", segments=(first.name,)) as (memory, disk):
        (old,) = await store(memory, {"k": OLD})
        await on_disk(disk, old, OLD)
        await deleted(memory, old)
    await to_thread.run_sync(first.kill)
    await when("it is missed", lambda: first.name not in real.get("/get_segments_detail"))
    # Another state directory: nothing of the first put is known any more.
    changes = {"segments": (second.name,), "appear_s": 1.0, "adopt": True}
    async with tiers(real, tmp_path / "t", **changes) as (memory, disk):
        (member,) = await store(memory, {"k": NEW})
        await to_thread.run_sync(first.start)
        await when("the old file is listed", lambda: bool(clients(real.entry("k"))))
        item = await drop_item(memory, member)
        for (outcome,) in (
            await disk.store([item_of(member, NEW)], fence()),
            await disk.verify([member]),
            await memory.drop([item], fence()),
        ):
            assert isinstance(outcome, Retry)
            assert "an older file" in outcome.detail
        assert await read_all(memory, member) == NEW


async def test_a_file_that_a_living_host_has_lost_or_damaged_is_found_beside_memory(
    single: Cluster, tmp_path: Path
) -> None:
    (host,) = single.hosts
    async with tiers(single, tmp_path / "t") as (memory, disk):
        (member,) = await store(memory, {"k": NEW})
        await on_disk(disk, member, NEW)
        assert kinds(await disk.verify([member])) == ["Done"]
        path = await to_thread.run_sync(file_of, host, "k")
        content = await to_thread.run_sync(path.read_bytes)
        await to_thread.run_sync(path.write_bytes, content.replace(NEW, OLD))
        (outcome,) = await disk.verify([member])
        assert isinstance(outcome, Retry)
        assert "has other bytes" in outcome.detail
        await to_thread.run_sync(path.unlink)
        (outcome,) = await disk.verify([member])
        assert isinstance(outcome, Retry)
        assert "FILE_OPEN_FAIL" in outcome.detail
        await to_thread.run_sync(path.write_bytes, content)
        assert kinds(await disk.verify([member])) == ["Done"]


async def test_what_a_stranger_puts_in_a_copys_place_costs_no_copy_elsewhere(
    single: Cluster, tmp_path: Path, source: Path
) -> None:
    extra: list[Tier] = []

    def also(name: str, options: Mapping[str, object], opened: TierContext) -> Tier:
        extra.append(plain_memory.factory(name, options, opened))
        return extra[0]

    async with sidecar(single, tmp_path / "s", also=also) as beside:
        names = ["also", "mooncake-memory", "mooncake-local-disk"]
        await beside.weights.put(IDENTITY, source, tiers=names)
        await beside.becomes(Availability.READY, Residency.HOT)
        members = await beside.members()
        victim = next(one for one in members.select(range(len(members))) if "/payload/" in one.key)
        verify, found = beside.disk.verify, list[Outcome]()

        async def verified(batch: list[Member], *, limit: Limiter | None = None) -> list[Outcome]:
            outcomes = list(await verify(batch, limit=limit))
            for member, outcome in zip(batch, outcomes, strict=True):
                if member.key == victim.key:
                    found.append(outcome)
                    if kinds(found).count("Done") == 1 and isinstance(outcome, Done):
                        await to_thread.run_sync(
                            stranger, single, "put", victim.key, str(victim.size_bytes)
                        )
                        await to_thread.run_sync(single.settle)
            return outcomes

        beside.disk.verify = verified  # type: ignore[method-assign, assignment]
        await beside.start(Residency.COLD)
        with anyio.fail_after(300):
            while not any(isinstance(one, Corrupt) for one in found):
                beside.controller.wake(IDENTITY)
                await anyio.sleep(0.1)
        assert (await read_all(extra[0], victim)) != b"Z" * victim.size_bytes
