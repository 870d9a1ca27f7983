"""One simulated sidecar: everything that `weightctl run` opens, on a simulated machine."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from tests.sim.mooncake.cluster import Act
from tests.sim.mooncake.seams import PROCESS, SimWorker
from weightctl.adapters.conformance.simulation.disk import open_store
from weightctl.adapters.conformance.simulation.entropy import Chance
from weightctl.adapters.conformance.simulation.process import JournalHooks, Process, ProcessTier
from weightctl.adapters.conformance.simulation.traces import PASS
from weightctl.adapters.conformance.simulation.watching import watch
from weightctl.controller import wiring
from weightctl.controller.api.app import App
from weightctl.controller.core.observation import Members, TierObservation
from weightctl.controller.ports import DropItem, Fence, Limiter, Outcome, StoreItem, Tier
from weightctl.controller.runtime.controller import Controller
from weightctl.controller.store.store import WeightMetadataStore

if TYPE_CHECKING:
    from tests.sim.mooncake.world import MooncakeWorld
    from weightctl.adapters.conformance.simulation.world import World

T = TypeVar("T")
CALL: ContextVar[tuple[str, float]] = ContextVar("CALL", default=("", 0.0))
"""The call of a tier for which something is done, and when it began."""

LOOKS = ("observe", "inventory", "capacity", "report")
LEASING = frozenset({"read", "get", "touch"})


class MooncakeProcess(Process):
    """A start of the sidecar."""

    is_judged = True

    def __init__(self, world: "World", number: int) -> None:
        super().__init__(world, number)
        self.moon = cast("MooncakeWorld", world)
        self.actor = f"sidecar {number}"
        self.config = self.moon.config
        self.entropy = Chance(f"{world.script.seed}/{number}")
        self.workers: list[SimWorker] = []
        self.app: App
        self._clients = 0
        self._mine: list[str] = []
        self._tasks: dict[asyncio.Task[Any], None] = {}

    async def run(self) -> None:
        PROCESS.set(self)
        try:
            with self.scope:
                async with wiring.open_app(self.config, loop=True) as self.app:
                    self.started.set()
                    await self.app.loop().run_until_stopped()
        except Exception as error:  # noqa: BLE001 - judged by the world
            if self.alive and not self.notices:
                self.world.process_failed(self, error)
        finally:
            self.alive = False
            self.ended.set()
            self._end_clients()

    # --- its machine ------------------------------------------------------------------------------

    @asynccontextmanager
    async def open_store(self) -> AsyncIterator[WeightMetadataStore]:
        """Its state directory's database."""
        self.known_epochs = self.world.disk.epochs()
        async with open_store(
            self.world.disk, clock=self.clock, entropy=self.entropy, hooks=JournalHooks(self)
        ) as self.store:
            yield self.store

    def controller_of(self, store: WeightMetadataStore, tiers: Any, **more: Any) -> Controller:
        """Its loop, seen by the judges."""
        self.tiers = list(tiers)
        return _Watched(self, store, tiers, **more)

    def took_task(self, task: "asyncio.Task[Any]") -> None:
        """A task of its own has begun."""
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    def new_client(self) -> str:
        """A client of the library that is connected now."""
        self._clients += 1
        name = f"client-{self.number}-{self._clients}"
        self._mine.append(name)
        return name

    def worker_gone(self, engine: object) -> None:
        """A worker process was killed, and the client in it."""
        store = getattr(engine, "_store", None)
        if store is not None and store._id in self._mine:
            self._mine.remove(store._id)
            self.moon.cluster.client_died(store._id)

    def act(self) -> Act:
        """What is done now, and why."""
        call, began_s = CALL.get()
        trace = PASS.get()
        return Act(self.actor, call, began_s, None if trace is None else trace.started_s)

    def takes_lease(self, name: str) -> None:
        """A call of the library is made; judge whether it may be."""
        if name in LEASING and CALL.get()[0] in LOOKS:
            self.world.violate("observe-lease", f"{name} was called for {CALL.get()[0]}")

    def kill(self) -> None:
        if self.alive:
            super().kill()
            for task in list(self._tasks):
                task.cancel()
            self._end_clients()

    def _end_clients(self) -> None:
        for worker in self.workers:
            worker.abandon("the sidecar has ended")
        for client in self._mine:
            self.moon.cluster.client_died(client)
        self._mine.clear()


class _Watched(Controller):
    """The product's, with the judges in it from the first pass on."""

    def __init__(self, process: MooncakeProcess, store: Any, tiers: Any, **more: Any) -> None:
        super().__init__(store, tiers, **more)
        self._process = process

    async def __aenter__(self) -> Self:
        self._process.controller = self
        watch(self._process)
        return await super().__aenter__()


class JudgedTier(ProcessTier):
    """A tier of the real adapter; what it is told and does is judged."""

    def __init__(self, process: MooncakeProcess, tier: Tier) -> None:
        super().__init__(process, tier)
        self._moon, self._moon_process = process.moon, process

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._inner.__aexit__(*exc_info)

    async def around(self, call: str, run: Callable[[], Awaitable[T]]) -> T:
        token, inside = CALL.set((call, self._world.loop.time())), PROCESS.set(self._moon_process)
        try:
            answer = await super().around(call, run)
        finally:
            CALL.reset(token)
            PROCESS.reset(inside)
        return answer

    async def observe(self, members: Members, *, detail: Sequence[int] = ()) -> TierObservation:
        answer = await super().observe(members, detail=detail)
        if answer.epoch:
            self._moon.oracles.seen()
        return answer

    async def store(
        self, batch: Sequence[StoreItem], fence: Fence, *, limit: Limiter | None = None
    ) -> Sequence[Outcome]:
        began_s = self._world.loop.time()
        outcomes = await super().store(batch, fence, limit=limit)
        keys = [item.member.key for item in batch]
        self._moon.oracles.told(self.name, keys, outcomes, began_s, there=True)
        return outcomes

    async def drop(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        began_s = self._world.loop.time()
        self._moon.oracles.drops(self._moon_process.actor, self.name, PASS.get())
        outcomes = await super().drop(batch, fence)
        keys = [item.member.key for item in batch]
        self._moon.oracles.told(self.name, keys, outcomes, began_s, there=False)
        return outcomes
