"""Objects in a real Mooncake become a revision: after the loss of everything that knew them."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from anyio import to_thread

from tests.support.models import random_tensors, write_model
from tests.support.mooncake.driven import Client, client
from tests.support.mooncake.lab import PATIENT, Cluster, cluster, needs_wheel, until
from tests.support.mooncake.sidecar import Sidecar, sidecar
from tests.support.rig import IDENTITY, contents
from weightctl.controller.api.app import StoreRecords
from weightctl.controller.api.orphans import orphan_list
from weightctl.controller.api.planning import Planning
from weightctl.controller.clock import SystemClock
from weightctl.controller.core.identity import manifest_key, payload_group_id
from weightctl.controller.core.policy import Policy
from weightctl.controller.core.records import Availability, Residency
from weightctl.controller.errors import IntegrityError, NothingReadableError

pytestmark = needs_wheel

READY, DELETED = Availability.READY, Availability.DELETED
HOT, COLD, ABSENT = Residency.HOT, Residency.COLD, Residency.ABSENT
MODEL = random_tensors(rows=12_000)  # several payload objects
MOVE_S = 20.0

# A process with nothing but the Mooncake client: puts files under keys, plainly, with no group.
_PUT = """
import json, sys
from mooncake.store import MooncakeDistributedStore
store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 32 << 20, "tcp", "", sys.argv[1]) == 0
for key, path in json.loads(sys.argv[2]).items():
    assert store.put(key, open(path, "rb").read()) == 0
store.close()
"""


_REMOVE = """
import sys
from mooncake.store import MooncakeDistributedStore
store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 32 << 20, "tcp", "", sys.argv[1]) == 0
code = store.remove(sys.argv[2])
store.close()
print(code, flush=True)
"""


def put(real: Cluster, files: dict[str, Path]) -> None:
    named = {key: str(path) for key, path in files.items()}
    command = [sys.executable, "-c", _PUT, real.master, json.dumps(named)]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster"), PATIENT) as made:
        yield made


@pytest.fixture
def empty(real: Cluster) -> Cluster:
    real.empty()
    return real


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model.safetensors", MODEL)


async def objects_of(beside: Sidecar) -> dict[str, bytes]:
    """The bytes of every member, by key."""
    found = {}
    members = await beside.members()
    for member in members.select(range(len(members))):
        async with beside.memory.open(member) as reader:
            content = bytearray(member.size_bytes)
            await reader.read_into(0, memoryview(content))
            found[member.key] = bytes(content)
    return found


async def orphans(beside: Sidecar) -> set[tuple[str, str]]:
    """(group, reason) of everything that nobody owns."""
    tiers = (beside.memory, beside.disk)
    planning = Planning(
        records=StoreRecords(beside.store), tiers=tiers, policy=Policy(), clock=SystemClock()
    )
    rows = (await orphan_list(planning))["items"]
    return {(row["payloadGroupId"], row["why"].partition(":")[0]) for row in rows}


async def test_what_a_lost_state_directory_knew_is_adopted_and_lives_on(
    empty: Cluster, tmp_path: Path, source: Path
) -> None:
    async with sidecar(empty, tmp_path / "old") as beside:
        await beside.weights.put(IDENTITY, source)
        before = await objects_of(beside)
    async with sidecar(empty, tmp_path / "new") as beside:
        assert await orphans(beside) == {(payload_group_id(IDENTITY), "NoOwner")}
        report = await beside.weights.adopt(IDENTITY, before[manifest_key(IDENTITY)])
        assert not report.obstacles
        assert (report.told, report.recorded) == (1, 0), "Mooncake keeps no digests"
        assert await orphans(beside) == set()
        await beside.becomes(READY, HOT)
        await beside.start(COLD)  # by parking: an earlier client has put them
        await beside.becomes(READY, COLD)
        loaded = await beside.weights.load(IDENTITY, verify=True)
        assert contents(loaded.tensors) == MODEL
        await beside.delete()
        await beside.becomes(DELETED, ABSENT)
        left = (await to_thread.run_sync(empty.get, "/get_all_keys")).split()
        assert not [key for key in left if key.startswith("weights/")]


async def test_adopted_objects_with_another_hosts_disk_copies_are_evicted_and_come_back(
    empty: Cluster, tmp_path: Path, source: Path
) -> None:
    """Whose those copies are tells nothing then: they are read from their hosts, beside memory."""
    async with sidecar(empty, tmp_path / "old") as beside:
        await beside.weights.put(IDENTITY, source)
        before = await objects_of(beside)
    await to_thread.run_sync(_move, empty, list(before))
    async with sidecar(empty, tmp_path / "new") as beside:
        report = await beside.weights.adopt(IDENTITY, before[manifest_key(IDENTITY)])
        assert not report.obstacles
        await beside.becomes(READY, HOT)
        for target in (COLD, HOT):
            await beside.start(target)
            await beside.becomes(READY, target)
        loaded = await beside.weights.load(IDENTITY, verify=True)
        assert contents(loaded.tensors) == MODEL


async def test_objects_of_others_are_adopted_by_content_or_refused_each_with_its_reason(
    empty: Cluster, tmp_path: Path, source: Path
) -> None:
    async with sidecar(empty, tmp_path / "old") as beside:
        await beside.weights.put(IDENTITY, source)
        kept = await objects_of(beside)
    await to_thread.run_sync(empty.empty)
    key = manifest_key(IDENTITY)
    payloads = [name for name in kept if name != key]
    files = {name: tmp_path / f"object{number}" for number, name in enumerate(kept)}
    for name, path in files.items():
        await to_thread.run_sync(path.write_bytes, kept[name])
    missing, short = payloads[0], payloads[1]
    await to_thread.run_sync(files[short].write_bytes, kept[short][:-1])
    some = {name: path for name, path in files.items() if name not in (missing, key)}
    await to_thread.run_sync(put, empty, some)
    digests = {name: hashlib.sha256(kept[name]).digest() for name in payloads}

    async with sidecar(empty, tmp_path / "new") as beside:
        refused = await beside.weights.adopt(IDENTITY, kept[key], digests=digests)
        assert {(one.key, type(one.error)) for one in refused.obstacles} == {
            (missing, NothingReadableError),
            (short, IntegrityError),
        }
        assert beside.store.record(identity=IDENTITY) is None
        keys = (await to_thread.run_sync(empty.get, "/get_all_keys")).split()
        assert key not in keys, "nothing was written"

        await to_thread.run_sync(put, empty, {missing: files[missing]})
        await to_thread.run_sync(empty.settle)
        await to_thread.run_sync(_replace, empty, short, kept[short][::-1], tmp_path)
        wrong = await beside.weights.adopt(IDENTITY, kept[key], digests=digests)
        assert {(one.key, type(one.error)) for one in wrong.obstacles} == {(short, IntegrityError)}

        await to_thread.run_sync(_replace, empty, short, kept[short], tmp_path)
        done = await beside.weights.adopt(IDENTITY, kept[key], digests=digests)
        assert not done.obstacles
        assert not done.manifest_seen, "it was given as a file, and is put by weightctl"
        await beside.becomes(READY, HOT)
        loaded = await beside.weights.load(IDENTITY, verify=True)
        assert contents(loaded.tensors) == MODEL


def _move(real: Cluster, keys: list[str]) -> None:
    """Have each object's memory replica moved to the host that has not offloaded it."""
    rows = json.loads(real.get("/get_segments_detail"))["segments"]
    name_of = {row["te_endpoint"]: row["segment_name"] for row in rows}
    names = [host.name for host in real.hosts]

    def lies_on(key: str) -> list[str]:
        return [name_of[one["transport_endpoint_"]] for one in real.entry(key)["values"]]

    def moved(mover: Client, key: str, source: str, target: str) -> bool:
        """A task may come to nothing where a host is held up; then it is asked for again."""
        mover(f"store.create_move_task({key!r}, {source!r}, {target!r})[1]")
        with suppress(TimeoutError):
            until("it has moved", lambda: lies_on(key) == [target], MOVE_S)
        return lies_on(key) == [target]

    with client(real) as mover:
        for key in keys:
            (source,) = lies_on(key)
            (target,) = (name for name in names if name != source)
            until("it is moved", lambda: moved(mover, key, source, target))  # noqa: B023


def _replace(real: Cluster, key: str, content: bytes, folder: Path) -> None:
    """As its owner would: remove, then put anew, when no reader holds it any more."""

    def removed() -> bool:
        real_remove = subprocess.run(
            [sys.executable, "-c", _REMOVE, real.master, key], capture_output=True, check=True
        )
        return real_remove.stdout.strip().endswith(b"0")

    until("the lease runs out and it is removed", removed)
    path = folder / "again"
    path.write_bytes(content)
    put(real, {key: path})
    until("it is offloaded", lambda: bool(real.entry(key)["local_disk_values"]))
