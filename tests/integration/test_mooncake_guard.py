"""What others do to managed objects through Mooncake itself is noticed, told, and mended."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from anyio import to_thread

from tests.support.models import random_tensors, write_model
from tests.support.mooncake.lab import PATIENT, Cluster, cluster, needs_wheel, until
from tests.support.mooncake.sidecar import POLICY, Sidecar, sidecar
from tests.support.rig import IDENTITY, contents
from weightctl.adapters.local_disk import factory
from weightctl.controller.api.app import StoreRecords
from weightctl.controller.api.planning import Planning
from weightctl.controller.api.requests import One
from weightctl.controller.api.surveys import explain
from weightctl.controller.clock import SystemClock
from weightctl.controller.core.identity import payload_prefix
from weightctl.controller.core.records import Availability, Residency
from weightctl.controller.errors import WeightError

pytestmark = needs_wheel

READY, DEGRADED = Availability.READY, Availability.DEGRADED
HOT, COLD, MIXED = Residency.HOT, Residency.COLD, Residency.MIXED
MODEL = random_tensors(rows=12_000)  # several payload objects
GUARDED = replace(POLICY, auto_repair=True, cold_copies=2)

# A process that has nothing but the Mooncake client: one call after the other, a code for each.
_STRANGER = """
import json, os, sys
from mooncake.store import MooncakeDistributedStore
store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 32 << 20, "tcp", "", sys.argv[1]) == 0
if sys.argv[2] == "remove":
    codes = [store.remove(key) for key in sys.argv[3:]]
elif sys.argv[2] == "copy":
    files = json.loads(sys.argv[3])
    codes = [store.put(key, open(path, "rb").read()) for key, path in files.items()]
else:
    value = os.urandom(1 << 20)
    codes = [store.put(f"kv-{number:06d}", value) for number in range(int(sys.argv[3]))]
store.close()
print(json.dumps(codes))
"""


def stranger(real: Cluster, *words: str) -> list[int]:
    """What the bare client is answered, call by call."""
    command = [sys.executable, "-c", _STRANGER, real.master, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    codes: list[int] = json.loads(done.stdout.strip().splitlines()[-1])
    return codes


def removed(real: Cluster, key: str) -> Callable[[], bool]:
    """Whether the bare client could remove it by now: not before its lease has run out."""
    return lambda: stranger(real, "remove", key) == [0]


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with cluster(folder, PATIENT, segment_mib=32) as made:
        yield made


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model.safetensors", MODEL)


def residency(beside: Sidecar) -> Residency:
    record = beside.store.record(identity=IDENTITY)
    assert record is not None
    return record.residency


async def a_payload(beside: Sidecar) -> str:
    return next(key for key in (await beside.members()).keys if "/payload/" in key)


async def test_a_removed_member_degrades_its_revision_and_the_reason_names_it(
    real: Cluster, tmp_path: Path, source: Path
) -> None:
    async with sidecar(real, tmp_path) as beside:
        await beside.weights.put(IDENTITY, source)
        await beside.becomes(READY, HOT)
        victim = await a_payload(beside)
        await to_thread.run_sync(until, "it is removed", removed(real, victim))
        await beside.becomes(DEGRADED, MIXED)
        planning = Planning(
            records=StoreRecords(beside.store),
            tiers=(beside.memory, beside.disk),
            policy=POLICY,
            clock=SystemClock(),
        )
        (hold,) = (await explain(planning, One(identity=IDENTITY)))["holds"]
        assert hold["reason"] == "NothingReadable"
        assert f"1 members are in no tier any more, {victim} first" in hold["what"]


async def test_a_removed_member_is_brought_back_from_another_tier_where_the_policy_says_so(
    real: Cluster, tmp_path: Path, source: Path
) -> None:
    async with sidecar(real, tmp_path, policy=GUARDED, also=factory) as beside:
        everywhere = ["mooncake-memory", "mooncake-local-disk", "also"]
        await beside.weights.put(IDENTITY, source, tiers=everywhere)
        await beside.becomes(READY, HOT)
        victim = await a_payload(beside)
        await to_thread.run_sync(until, "it is removed", removed(real, victim))

        def back() -> bool:
            return bool(real.entry(victim)["local_disk_values"])

        await to_thread.run_sync(until, "the guard has stored it anew", back)
        await beside.becomes(READY, HOT)
        loaded = await beside.weights.load(IDENTITY, verify=True)
        assert contents(loaded.tensors) == MODEL


async def test_what_mooncake_evicts_of_an_adopted_model_is_noticed_and_stays_readable(
    real: Cluster, tmp_path: Path, source: Path
) -> None:
    """What others have put is not pinned."""
    async with sidecar(real, tmp_path / "old") as beside:
        await beside.weights.put(IDENTITY, source)
        kept = {}
        members = await beside.members()
        for index, member in enumerate(members.select(range(len(members)))):
            content = bytearray(member.size_bytes)
            async with beside.memory.open(member) as reader:
                await reader.read_into(0, memoryview(content))
            path = tmp_path / f"object{index}"
            await to_thread.run_sync(path.write_bytes, bytes(content))
            kept[member.key] = str(path)
    await to_thread.run_sync(real.empty)
    await to_thread.run_sync(stranger, real, "copy", json.dumps(kept))
    await to_thread.run_sync(real.settle)
    manifest = next(path for key, path in kept.items() if key.endswith("/manifest"))
    async with sidecar(real, tmp_path / "new") as beside:
        raw = await to_thread.run_sync(Path(manifest).read_bytes)
        assert not (await beside.weights.adopt(IDENTITY, raw)).obstacles
        await beside.becomes(READY, HOT)

        def pressed() -> bool:
            stranger(real, "fill", "80")
            return any(not real.entry(key)["values"] for key in kept)

        await to_thread.run_sync(until, "Mooncake evicts one of its members", pressed)
        await beside.soon(lambda: residency(beside) is not HOT)
        assert (await beside.record()).availability is READY
        loaded = await beside.weights.load(IDENTITY, verify=True)
        assert contents(loaded.tensors) == MODEL


async def test_a_client_that_may_not_clear_says_so_and_what_to_do_and_a_larger_lot_does_it(
    real: Cluster, tmp_path: Path, source: Path
) -> None:
    async with sidecar(real, tmp_path) as beside:
        await beside.weights.put(IDENTITY, source)
        await beside.becomes(READY, HOT)
    async with sidecar(real, tmp_path, parking_bytes=64 * 1024) as beside:
        await beside.start(COLD)

        def told() -> str:
            return "; ".join(one.message for one in beside.controller.conditions(IDENTITY))

        await beside.soon(lambda: "cannot drop: not the owner" in told())
        assert "parking_bytes must exceed its" in told()
        assert (await beside.record()).availability is READY
    async with sidecar(real, tmp_path) as beside:
        await beside.becomes(READY, COLD)


async def test_what_a_stranger_has_put_under_its_keys_leaves_an_imports_name_free(
    real: Cluster, tmp_path: Path, source: Path
) -> None:
    later = replace(IDENTITY, weight_generation=IDENTITY.weight_generation + 1)
    async with sidecar(real, tmp_path) as beside:
        await beside.weights.put(IDENTITY, source)
        members, victim = await beside.members(), await a_payload(beside)
        size_bytes = members.sizes_bytes[members.keys.index(victim)]
        strange = tmp_path / "strange"
        await to_thread.run_sync(strange.write_bytes, bytes(size_bytes))
        key = victim.replace(payload_prefix(IDENTITY), payload_prefix(later))
        await to_thread.run_sync(stranger, real, "copy", json.dumps({key: str(strange)}))
        with pytest.raises(WeightError, match="CONFLICT"):
            await beside.weights.put(later, source)
        with pytest.raises(WeightError, match="NOT_FOUND"):
            await beside.store.get(identity=later)
        await to_thread.run_sync(until, "it is removed", removed(real, key))
        assert (await beside.weights.put(later, source)).record.availability is READY
