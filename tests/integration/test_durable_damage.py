"""A replica that was found damaged stays known as damaged: over restarts, in plans, for readers."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from anyio import to_thread

from tests.support.cli import IDENTITY as NAMED
from tests.support.cli import Cli
from tests.support.loop_rig import Rig, rig
from tests.support.models import Tensors, random_tensors, write_model
from tests.support.rig import IDENTITY, contents
from tests.support.virtual_time import SeededEntropy, VirtualClock
from weightctl.adapters import local_disk, memory
from weightctl.controller.api.app import StoreRecords
from weightctl.controller.api.planning import Planning
from weightctl.controller.core.damage import DamagedReplica
from weightctl.controller.core.identity import payload_group_id
from weightctl.controller.core.observation import MemberState
from weightctl.controller.core.plan import StepKind
from weightctl.controller.core.policy import Policy
from weightctl.controller.core.records import Availability, Operation, Residency
from weightctl.controller.errors import ErrorCode, IntegrityError, WeightError
from weightctl.controller.ports import Done, DropItem, Fence, StoreItem, Tier, TierContext
from weightctl.controller.weightstore.facade import WeightStore
from weightctl.controller.weightstore.options import WeightStoreOptions
from weightctl.controller.weightstore.targets import IntoArrays, IntoFolder

GROUP = payload_group_id(IDENTITY)
COLD = (Availability.READY, Residency.COLD, Operation.NONE)
LOST = (Availability.DEGRADED, Residency.MIXED, Operation.NONE)
POLICY = Policy(tier_preference=("disk", "far"), settle_s=0.0)
PAYLOAD_BYTES = 2000


@dataclass
class Real:
    """One process: store, loop, tiers and weight store over real files."""

    loop: Rig
    tiers: dict[str, Tier]
    weights: WeightStore
    model: Tensors

    async def put(self, folder: Path, *tiers: str) -> None:
        source = await to_thread.run_sync(write_model, folder / "model.safetensors", self.model)
        await self.weights.put(IDENTITY, source, tiers=tiers)
        await self.loop.converge(IDENTITY)

    async def cold(self) -> None:
        """Leave copies in the cold tiers only."""
        await self.loop.start(Residency.COLD, IDENTITY)
        await self.loop.converge(IDENTITY)
        assert await self.loop.summary(IDENTITY) == COLD

    async def verdict(self) -> str:
        """What a plan without the loop says."""
        planning = Planning(
            records=StoreRecords(self.loop.store),
            tiers=tuple(self.tiers.values()),
            policy=POLICY,
            clock=self.loop.clock,
        )
        plan = (await planning.look(await planning.records.subject(IDENTITY))).plan
        return f"{plan.verdict}: {[step.kind.value for step in plan.steps]} {plan.availability!r}"

    def damage(self) -> tuple[DamagedReplica, ...]:
        return self.loop.store.damage.rows(GROUP)

    async def load(self, folder: Path) -> dict[str, int]:
        """Load into files, every digest checked; the bytes by tier."""
        into = IntoFolder(path=folder / f"out-{self.loop.clock.monotonic_s()}")
        return (await self.weights.load(IDENTITY, into=into)).bytes_by_tier

    async def good(self, tier: str) -> bool:
        """Whether every replica of a tier has its digest."""
        members = await self.loop.store.directory.members(GROUP)
        batch = list(members.select(range(len(members))))
        outcomes = await self.tiers[tier].verify(batch)
        return all(isinstance(outcome, Done) for outcome in outcomes)


@asynccontextmanager
async def real(folder: Path, clock: VirtualClock, *, cold_copies: int = 1) -> AsyncIterator[Real]:
    policy = replace(POLICY, cold_copies=cold_copies)
    entropy = SeededEntropy(2)
    state_dir = folder / "state"
    context = TierContext(clock=clock, entropy=entropy, state_dir=str(state_dir))
    await to_thread.run_sync(partial(state_dir.mkdir, exist_ok=True))
    tiers: dict[str, Tier] = {
        "mem": memory.factory("mem", {"path": str(folder / "mem")}, context),
        "disk": local_disk.factory("disk", {"path": str(folder / "disk")}, context),
        "far": local_disk.factory("far", {"path": str(folder / "far")}, context),
    }
    async with AsyncExitStack() as stack:
        for tier in tiers.values():
            await stack.enter_async_context(tier)
        made = rig(state_dir, tuple(tiers.values()), clock=clock, policy=policy)
        loop = await stack.enter_async_context(made)
        weights = WeightStore(
            loop.store,
            tuple(tiers.values()),
            clock=clock,
            entropy=entropy,
            options=WeightStoreOptions(payload_bytes=PAYLOAD_BYTES),
        )
        yield Real(loop, tiers, weights, random_tensors())


def replicas(folder: Path) -> list[Path]:
    """The payload files of a tier, in the order of their names; the manifest is JSON."""
    found = [p for p in folder.rglob("*") if p.is_file() and "groups" in p.parts]
    return sorted(p for p in found if p.read_bytes()[:1] not in (b"", b"{"))


def flip(folder: Path) -> None:
    """Change one byte of one payload in a tier's folder."""
    victim = replicas(folder)[0]
    with victim.open("r+b") as file:
        first = file.read(1)[0]
        file.seek(0)
        file.write(bytes([first ^ 1]))


async def spoil(folder: Path) -> None:
    await to_thread.run_sync(flip, folder)


async def test_a_load_that_finds_the_only_copy_damaged_makes_it_degraded_for_good(
    tmp_path: Path,
) -> None:
    clock = VirtualClock()
    async with real(tmp_path, clock) as r:
        await r.put(tmp_path, "mem", "disk")
        await r.cold()
        heard: list[object] = []
        r.loop.store.subscribe(heard.append)
        await spoil(tmp_path / "disk")
        with pytest.raises(IntegrityError, match="disk is damaged"):
            await r.load(tmp_path)
        (row,) = r.damage()
        assert (row.tier, len(row.found_sha256), row.at_ms) == ("disk", 32, clock.wall_ms())
        assert IDENTITY in heard, "the loop hears of it"
        assert await r.verdict() == f"work: ['publish'] {Availability.DEGRADED!r}"
        await r.loop.reconciler.reconcile(IDENTITY)  # as the loop does when it is woken
        await r.loop.converge(IDENTITY)
        assert await r.loop.summary(IDENTITY) == LOST
        with pytest.raises(WeightError) as refused:
            await r.load(tmp_path)
        assert refused.value.code is ErrorCode.NOT_READY
    for _ in range(2):
        async with real(tmp_path, clock) as r:
            assert await r.loop.summary(IDENTITY) == LOST
            assert await r.verdict() == f"lost: [] {Availability.DEGRADED!r}"
            await r.loop.converge(IDENTITY)
            assert await r.loop.summary(IDENTITY) == LOST
            assert r.damage() == (row,)


async def test_what_a_load_found_without_a_loop_is_known_after_a_restart(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with real(tmp_path, clock) as r:
        await r.put(tmp_path, "mem", "disk")
        await r.cold()
        await spoil(tmp_path / "disk")
        with pytest.raises(IntegrityError):
            await r.load(tmp_path)
    async with real(tmp_path, clock) as r:
        assert await r.verdict() == f"work: ['publish'] {Availability.DEGRADED!r}"
        with pytest.raises(IntegrityError, match="damaged"):
            await r.load(tmp_path)
        assert len(r.damage()) == 1
        await r.loop.converge(IDENTITY)
        assert await r.loop.summary(IDENTITY) == LOST


async def test_a_load_goes_on_with_the_good_copy_and_repair_replaces_the_other(
    tmp_path: Path,
) -> None:
    clock = VirtualClock()
    async with real(tmp_path, clock, cold_copies=2) as r:
        await r.put(tmp_path, "disk", "far")
        await spoil(tmp_path / "disk")
        by_tier = await r.load(tmp_path)
        assert set(by_tier) == {"disk", "far"}, "only the damaged object comes from elsewhere"
        assert [row.tier for row in r.damage()] == ["disk"]
        await r.loop.converge(IDENTITY)
        assert await r.loop.summary(IDENTITY) == COLD
        clock.jump(1)
        assert await r.load(tmp_path) == by_tier
    async with real(tmp_path, clock, cold_copies=2) as r:
        assert [row.tier for row in r.damage()] == ["disk"]
        await r.loop.repair(Residency.COLD, IDENTITY)
        await r.loop.converge(IDENTITY)
        assert await r.loop.summary(IDENTITY) == COLD
        assert await r.good("disk")
        assert r.damage() == ()


async def test_bytes_of_a_copy_that_is_known_to_be_damaged_are_not_handed_out(
    tmp_path: Path,
) -> None:
    async with real(tmp_path, VirtualClock()) as r:
        await r.put(tmp_path, "mem", "disk")
        await spoil(tmp_path / "mem")
        report = await r.weights.load(IDENTITY, into=IntoArrays(), verify=True)
        assert contents(report.tensors) == r.model
        assert [row.tier for row in r.damage()] == ["mem"]
        unchecked = await r.weights.load(IDENTITY, into=IntoArrays(), verify=False)
        assert contents(unchecked.tensors) == r.model
        assert unchecked.mapped_bytes
        assert "disk" in unchecked.bytes_by_tier


async def test_what_the_loop_read_back_wrong_outlives_it(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with real(tmp_path, clock) as r:
        await r.put(tmp_path, "mem", "disk")
        await spoil(tmp_path / "disk")
        await r.loop.start(Residency.COLD, IDENTITY)
        await r.loop.step(IDENTITY)
        assert [row.tier for row in r.damage()] == ["disk"]
    async with real(tmp_path, clock) as r:
        plan = (await r.loop.reconciler.ask(IDENTITY)).plan
        assert next((s.kind, s.count) for s in plan.steps) == (StepKind.QUARANTINE, 1)
        await r.loop.converge(IDENTITY)
        assert await r.loop.summary(IDENTITY) == COLD
        assert await r.good("disk")
        assert r.damage() == ()


async def test_another_copy_in_its_place_refutes_the_verdict(tmp_path: Path) -> None:
    async with real(tmp_path, VirtualClock()) as r:
        await r.put(tmp_path, "disk", "far")
        await spoil(tmp_path / "disk")
        await r.load(tmp_path)
        (row,) = r.damage()
        disk, far = r.tiers["disk"], r.tiers["far"]
        members = await r.loop.store.directory.members(GROUP)
        member = members.member(members.keys.index(row.member_key))
        fence = Fence(
            holder=r.loop.store.holder, term=r.loop.store.term, operation_id=0, generation=1
        )
        await disk.drop([DropItem(member=member, instance_id=row.instance_id)], fence)
        await r.loop.converge(IDENTITY)
        assert r.damage() == (row,), "absence alone refutes nothing"
        await disk.store([StoreItem(member=member, open_source=partial(far.open, member))], fence)
        await r.loop.converge(IDENTITY)
        assert r.damage() == ()
        seen = await r.loop.observer.observe(members, POLICY)
        assert set(seen.states("disk")) == {MemberState.COMPLETE}


async def test_a_deleted_revision_leaves_no_verdict(tmp_path: Path) -> None:
    async with real(tmp_path, VirtualClock()) as r:
        await r.put(tmp_path, "mem", "disk")
        await spoil(tmp_path / "mem")
        await r.weights.load(IDENTITY, verify=True)
        assert r.damage()
        await r.loop.delete(IDENTITY)
        await r.loop.converge(IDENTITY)
        assert r.damage() == ()


def test_the_commands_know_it_without_a_running_controller(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    cli.imported()
    cli.json("evict", NAMED, "--wait")
    flip(tmp_path / "local_disk")
    cli.run("load", NAMED, str(tmp_path / "out"), code=8)
    plan = cli.json("plan", NAMED)
    assert [step["step"] for step in plan["steps"]] == ["publish"]
    (row,) = cli.json("describe", NAMED)["damage"]
    assert row["tier"] == "local_disk"
    assert "WrongDigest" in {hold["reason"] for hold in cli.json("explain", NAMED)["holds"]}
    with cli.running():
        cli.wait(lambda: cli.json("get", NAMED)["availability"] == "DEGRADED", cli.log)
    assert cli.json("get", NAMED)["availability"] == "DEGRADED"
    assert cli.json("plan", NAMED)["verdict"] == "lost"
    assert "DAMAGED IN" in cli.run("describe", NAMED).out
