"""The running loop over the real memory and local_disk tiers and the real clock."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
from anyio import to_thread

from tests.support.loop_rig import IDENTITY, contents, members_of, reference_of
from tests.support.sim_tier import SimTier
from weightctl.adapters import local_disk, memory
from weightctl.controller.clock import SystemClock, SystemEntropy
from weightctl.controller.core.identity import payload_group_id
from weightctl.controller.core.observation import Members, MemberState
from weightctl.controller.core.plan import Reason
from weightctl.controller.core.policy import Policy
from weightctl.controller.core.records import Availability, Operation, Residency
from weightctl.controller.ports import Done, Fence, NoOp, StoreItem, Tier, TierContext
from weightctl.controller.runtime.controller import Controller
from weightctl.controller.runtime.settings import ResyncOptions, RuntimeSettings
from weightctl.controller.store.store import WeightMetadataStore

READY, NONE = Availability.READY, Operation.NONE
SETTINGS = RuntimeSettings(resync=ResyncOptions(working_s=0.2, published_s=0.2))
SIZE = 100_000


class Real:
    """Store, real tiers and loop."""

    def __init__(self, store: WeightMetadataStore, tiers: dict[str, Tier], folder: Path) -> None:
        self.store = store
        self.tiers = tiers
        self.folder = folder
        self.controller: Controller

    async def publish(self, *where: str) -> dict[str, bytes]:
        data = contents(IDENTITY, 3, SIZE)
        reference = reference_of(IDENTITY, data)
        await self.store.begin_import(
            identity=IDENTITY,
            expected_payload_count=reference.payload_count,
            expected_logical_bytes=reference.logical_bytes,
        )
        members = members_of(IDENTITY, data)
        await self.store.directory.register(IDENTITY, members)
        source = SimTier("source", hot=True)
        for member in members:
            source.put(member, data[member.key])
        batch = [StoreItem(member=m, open_source=partial(source.open, m)) for m in members]
        fence = Fence(holder=self.store.holder, term=self.store.term, operation_id=0, generation=1)
        for name in where:
            outcomes = await self.tiers[name].store(batch, fence)
            assert all(isinstance(outcome, Done | NoOp) for outcome in outcomes)
        await self.store.commit_import(
            identity=IDENTITY, expected_metadata_generation=1, manifest=reference
        )
        return data

    async def start(self, target: Residency) -> None:
        record = (await self.store.get(identity=IDENTITY)).metadata
        await self.store.start_residency_operation(
            identity=IDENTITY,
            expected_metadata_generation=record.metadata_generation,
            target_residency=target,
            member_count=4,
        )

    async def converged(self) -> tuple[Availability, Residency, Operation]:
        with anyio.fail_after(240):
            record = (await self.controller.wait_converged(IDENTITY)).record
        return record.availability, record.residency, record.operation

    async def members(self) -> Members:
        return await self.store.directory.members(payload_group_id(IDENTITY))

    async def read(self, name: str) -> dict[str, bytes]:
        """The bytes that a tier has of each member."""
        found = {}
        for member in members_of(IDENTITY, contents(IDENTITY, 3, SIZE)):
            async with self.tiers[name].open(member) as reader:
                buffer = bytearray(reader.size_bytes)
                await reader.read_into(0, memoryview(buffer))
                found[member.key] = bytes(buffer)
        return found

    async def states(self, name: str) -> set[int]:
        return set((await self.tiers[name].observe(await self.members())).states)


@asynccontextmanager
async def real(folder: Path, policy: Policy | None = None) -> AsyncIterator[Real]:
    clock, entropy = SystemClock(), SystemEntropy()
    context = TierContext(clock=clock, entropy=entropy, state_dir=str(folder / "state"))
    await to_thread.run_sync(partial((folder / "state").mkdir, exist_ok=True))
    async with (
        WeightMetadataStore.open(folder / "state", clock=clock, entropy=entropy) as store,
        AsyncExitStack() as stack,
    ):
        tiers: dict[str, Tier] = {
            "mem": memory.factory("mem", {"path": str(folder / "mem")}, context),
            "disk": local_disk.factory("disk", {"path": str(folder / "disk")}, context),
            "far": local_disk.factory("far", {"path": str(folder / "far")}, context),
        }
        for tier in tiers.values():
            await stack.enter_async_context(tier)
        made = Real(store, tiers, folder)
        made.controller = Controller(
            store,
            list(tiers.values()),
            clock=clock,
            entropy=entropy,
            policy=policy or Policy(settle_s=0.1, tier_preference=("disk", "far")),
            settings=SETTINGS,
        )
        async with made.controller:
            yield made


def replicas(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and "groups" in path.parts]


async def test_the_whole_life_of_a_revision_on_real_media(tmp_path: Path) -> None:
    async with real(tmp_path) as r:
        data = await r.publish("mem")
        assert await r.converged() == (READY, Residency.HOT, NONE)
        await r.start(Residency.COLD)
        assert await r.converged() == (READY, Residency.COLD, NONE)
        assert await r.states("mem") == {MemberState.ABSENT}
        assert await r.read("disk") == data
        assert len(await r.store.evidence.rows(IDENTITY)) == len(data)
        await r.start(Residency.HOT)
        assert await r.converged() == (READY, Residency.HOT, NONE)
        assert await r.read("mem") == data
        record = (await r.store.get(identity=IDENTITY)).metadata
        await r.store.delete_revision(
            identity=IDENTITY, expected_metadata_generation=record.metadata_generation
        )
        assert (await r.converged())[0] is Availability.DELETED
        for name in r.tiers:
            assert await to_thread.run_sync(replicas, tmp_path / name) == []
            assert not (await r.tiers[name].inventory(payload_group_id(IDENTITY)))


async def test_a_restart_between_the_operations_loses_nothing(tmp_path: Path) -> None:
    async with real(tmp_path) as r:
        data = await r.publish("mem", "disk")
        await r.start(Residency.COLD)
    async with real(tmp_path) as r:
        assert await r.converged() == (READY, Residency.COLD, NONE)
        assert await r.read("disk") == data


def flip(folder: Path) -> None:
    victim = max(replicas(folder), key=lambda path: path.stat().st_size)
    with victim.open("r+b") as file:
        file.seek(SIZE // 2)
        byte = file.read(1)[0]
        file.seek(SIZE // 2)
        file.write(bytes([byte ^ 1]))


async def test_a_bit_flipped_on_the_disk_is_found_before_memory_is_dropped(tmp_path: Path) -> None:
    async with real(tmp_path) as r:
        data = await r.publish("mem", "disk")
        assert await r.converged() == (READY, Residency.HOT, NONE)
        await to_thread.run_sync(flip, tmp_path / "disk")
        await r.start(Residency.COLD)
        assert await r.converged() == (READY, Residency.COLD, NONE)
        await r.start(Residency.HOT)
        assert await r.converged() == (READY, Residency.HOT, NONE)
        assert await r.read("mem") == data


async def test_a_folder_taken_away_under_the_loop_is_unknown_and_comes_back(
    tmp_path: Path,
) -> None:
    async with real(tmp_path) as r:
        data = await r.publish("disk")
        assert await r.converged() == (READY, Residency.COLD, NONE)
        await to_thread.run_sync((tmp_path / "disk").rename, tmp_path / "away")
        await to_thread.run_sync((tmp_path / "disk").mkdir)
        await r.start(Residency.HOT)
        await asyncio.sleep(0.5)
        explained = await r.controller.explain(IDENTITY)
        assert explained.record.availability is READY, "no answer is not absence"
        assert {wait.reason for wait in explained.plan.waits} <= {
            Reason.TIER_UNKNOWN,
            Reason.UNSETTLED,
        }
        await to_thread.run_sync((tmp_path / "disk").rmdir)
        await to_thread.run_sync((tmp_path / "away").rename, tmp_path / "disk")
        assert await r.converged() == (READY, Residency.HOT, NONE)
        assert await r.read("mem") == data
