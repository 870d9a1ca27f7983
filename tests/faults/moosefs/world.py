"""A working controller with a memory, a disk and a dfs tier, and users who never rest.

Near revisions live in memory and on the disk, far ones in memory and on MooseFS.  Each has a user
of its own who imports, loads, evicts, rehydrates and, if far, deletes it, again and again, and who
compares every byte; what fails is tried again, as a person would.
"""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import anyio
from anyio import to_thread

from tests.support.loop_rig import identity
from tests.support.models import Tensors, random_tensors, write_model
from weightctl.adapters import dfs, local_disk, memory
from weightctl.controller.clock import SystemClock, SystemEntropy
from weightctl.controller.core.backoff import Backoff
from weightctl.controller.core.identity import Identity, payload_group_id
from weightctl.controller.core.policy import Policy
from weightctl.controller.core.records import Availability, Operation, Residency
from weightctl.controller.errors import IntegrityError, WeightctlError
from weightctl.controller.ports import Tier, TierContext
from weightctl.controller.runtime.controller import Controller
from weightctl.controller.runtime.observer import ObserverOptions
from weightctl.controller.runtime.settings import ResyncOptions, RuntimeSettings
from weightctl.controller.runtime.workqueue import QueueOptions
from weightctl.controller.store.reading import read_state
from weightctl.controller.store.store import WeightMetadataStore
from weightctl.controller.weightstore.facade import WeightStore
from weightctl.controller.weightstore.options import WeightStoreOptions

PATIENCE_S = 400.0
BREATH_S = 0.1
"""Between two cycles, so that a slow machine is not kept from everything else."""
NEAR, FAR = ("mem", "disk"), ("mem", "far")
SETTINGS = RuntimeSettings(
    observer=ObserverOptions(deadline_s=2.0),
    resync=ResyncOptions(working_s=1.0, published_s=1.0),
    queue=QueueOptions(backoff=Backoff(max_s=2.0)),
    wait_max_s=2.0,
    park_s=5.0,
)
OPTIONS = WeightStoreOptions(payload_bytes=200_000, attempts=2, observe_deadline_s=2.0)
POLICY = Policy(tier_preference=("disk", "far"), settle_s=0.2)

R = TypeVar("R")


@dataclass
class User:
    """The user of one revision after the other, each under the next weight generation."""

    world: "World"
    number: int
    where: tuple[str, ...]
    model: Tensors
    source: Path
    of: Identity = field(init=False)
    cycles: int = 0
    """How often everything was done from the first to the last step."""
    errors: Counter[str] = field(default_factory=Counter)
    """What was refused on the way, by name of the error."""
    said: str = ""
    """The last of them."""
    rests: bool = False

    def __post_init__(self) -> None:
        self.of = identity(self.number)

    async def work(self) -> None:
        """Until the world rests; ends between two cycles."""
        await self._do(self._import)
        while not self.world.resting:
            await self.cycle()
            await anyio.sleep(BREATH_S)
        await self._do(self._load)
        self.rests = True
        self.world.progressed()

    async def cycle(self) -> None:
        await self._do(self._load)
        await self._do(self._move, Residency.COLD)
        await self._do(self._load)
        await self._do(self._move, Residency.HOT)
        await self._do(self._load)
        if self.where is FAR:
            await self._do(self._delete)
            generation = self.of.weight_generation + 1
            self.of = replace(self.of, weight_generation=generation)
            await self._do(self._import)
        self.cycles += 1
        self.world.progressed()

    async def _do(self, step: Callable[..., Awaitable[None]], *words: object) -> None:
        while True:
            try:
                await step(*words)
            except IntegrityError:
                raise
            except WeightctlError as error:
                self.errors[type(error).__name__] += 1
                self.said = f"{step.__name__}{words}: {error!r}"
                await anyio.sleep(0.1)
            else:
                return

    async def _import(self) -> None:
        await self.world.weights.put(self.of, self.source, tiers=self.where)

    async def _load(self) -> None:
        report = await self.world.weights.load(self.of, verify=True)
        for name, (_, _, content) in self.model.items():
            assert bytes(report.tensors[name].data) == content

    async def _move(self, target: Residency) -> None:
        store = self.world.store
        record = (await store.get(identity=self.of)).metadata
        if record.operation is Operation.NONE:
            await store.start_residency_operation(
                identity=self.of,
                expected_metadata_generation=record.metadata_generation,
                target_residency=target,
                member_count=record.manifest.payload_count + 1,
            )
        report = await self.world.controller.wait_converged(self.of)
        assert report.record.residency is target

    async def _delete(self) -> None:
        record = (await self.world.store.get(identity=self.of)).metadata
        if record.availability is not Availability.DELETED:
            await self.world.store.delete_revision(
                identity=self.of, expected_metadata_generation=record.metadata_generation
            )
        await self.world.controller.wait_converged(self.of)


@dataclass
class World:
    """Store, tiers, loop and users."""

    state_dir: Path
    store: WeightMetadataStore
    tiers: dict[str, Tier]
    weights: WeightStore
    controller: Controller
    users: list[User] = field(default_factory=list)
    resting: bool = False
    degraded: list[Identity] = field(default_factory=list)
    """Revisions that were published as DEGRADED; nothing is ever lost here, so there are none."""
    _progress: anyio.Event = field(default_factory=anyio.Event)

    def cycles(self, *kinds: tuple[str, ...]) -> list[int]:
        return [user.cycles for user in self.users if user.where in (kinds or (NEAR, FAR))]

    def errors(self) -> Counter[str]:
        """What users were refused with so far."""
        return sum((user.errors for user in self.users), Counter())

    async def come_further(self, where: tuple[str, ...], cycles: int = 1) -> None:
        """Every user of that kind does everything that often from now on."""
        wanted = [count + cycles for count in self.cycles(where)]

        def done() -> bool:
            return all(now >= then for now, then in zip(self.cycles(where), wanted, strict=True))

        await self._until(done)

    def progressed(self) -> None:
        """Somebody has come further."""
        self._progress.set()
        self._progress = anyio.Event()

    async def _until(self, done: Callable[[], bool]) -> None:
        with anyio.move_on_after(PATIENCE_S):
            while not done():
                await self._progress.wait()
            return
        raise AssertionError(await self.told())

    async def told(self) -> str:
        """Where everybody stands, for people."""
        lines = []
        for user in self.users:
            explained = await self.controller.explain(user.of)
            lines += [f"{user.of} {user.cycles} {user.errors} {user.said}"]
            lines += [f"  {explained.record}", f"  {explained.plan.verdict} {explained.plan.waits}"]
            lines += [f"  {explained.conditions} {explained.failures}"]
        return "\n".join(lines)

    def note(self, of: Identity) -> None:
        for record in self.store.records():
            if record.identity == of and record.availability is Availability.DEGRADED:
                self.degraded.append(of)

    async def rest(self) -> None:
        """Let the users end, then see that everything is as it should be and stays so."""
        self.resting = True
        await self._until(lambda: all(user.rests for user in self.users))
        for user in self.users:
            ends = Availability.READY, Residency.HOT, Operation.NONE
            with anyio.fail_after(PATIENCE_S):
                record = (await self.controller.wait_converged(user.of)).record
            assert (record.availability, record.residency, record.operation) == ends
        assert self.degraded == []
        await self._is_quiet()
        alive = {payload_group_id(user.of) for user in self.users}
        for tier in self.tiers.values():
            assert set(await tier.inventory()) <= alive

    async def _is_quiet(self) -> None:
        """Some rounds in which everything is looked at write nothing."""
        before = await to_thread.run_sync(self._written)
        await anyio.sleep(3 * SETTINGS.resync.published_s)
        assert await to_thread.run_sync(self._written) == before

    def _written(self) -> int:
        with read_state(self.state_dir) as stored:
            return stored.last_sequence


@asynccontextmanager
async def world(folder: Path, root: Path, *, near: int, far: int) -> AsyncIterator[World]:
    """Everything, at work; the users end with the block."""
    clock, entropy = SystemClock(), SystemEntropy()
    state = folder / "state"
    async with (
        WeightMetadataStore.open(state, clock=clock, entropy=entropy) as store,
        AsyncExitStack() as stack,
    ):
        context = TierContext(
            clock=clock, entropy=entropy, state_dir=str(state), holder=store.holder
        )
        options = {"path": str(root), "deadline_s": 1.0}
        tiers = {
            "mem": memory.factory("mem", {"path": str(folder / "mem")}, context),
            "disk": local_disk.factory("disk", {"path": str(folder / "disk")}, context),
            "far": dfs.factory("far", options, context),
        }
        for tier in tiers.values():
            await stack.enter_async_context(tier)
        parts = list(tiers.values())
        async with Controller(
            store, parts, clock=clock, entropy=entropy, policy=POLICY, settings=SETTINGS
        ) as controller:
            weights = WeightStore(store, parts, clock=clock, entropy=entropy, options=OPTIONS)
            made = World(state, store, tiers, weights, controller)
            unsubscribe = store.subscribe(made.note)
            for number in range(near + far):
                model = random_tensors(seed=number, rows=4096)
                source = folder / f"model-{number}.safetensors"
                await to_thread.run_sync(write_model, source, model)
                made.users.append(User(made, number, NEAR if number < near else FAR, model, source))
            async with anyio.create_task_group() as users:
                for user in made.users:
                    users.start_soon(user.work)
                yield made
                made.resting = True
            unsubscribe()
