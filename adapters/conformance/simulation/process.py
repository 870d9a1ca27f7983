"""One simulated process: the real store and the real loop between simulated ports.

A kill cuts every port at once: from that step on nothing that the process does has an effect, and
its tasks are cancelled only to tidy up. A process may also be cut off from its disk alone; then it
goes on acting on what it knows, as a deposed leader does.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self, TypeVar

import anyio

from weightctl.adapters.conformance.faults import Call, Fault
from weightctl.adapters.conformance.simulation.clock import SimClock
from weightctl.adapters.conformance.simulation.disk import Hooks, open_store
from weightctl.adapters.conformance.simulation.entropy import Chance
from weightctl.adapters.conformance.simulation.script import Crash
from weightctl.adapters.conformance.simulation.traces import PassTrace
from weightctl.adapters.conformance.simulation.watching import watch
from weightctl.controller.core.identity import Identity
from weightctl.controller.core.observation import Member, Members, TierObservation
from weightctl.controller.core.policy import Policy
from weightctl.controller.errors import StateDirectoryError, TransientError
from weightctl.controller.ports import (
    DropItem,
    Fence,
    InventoryItem,
    Limiter,
    Outcome,
    RangedReader,
    StoreItem,
    Tier,
)
from weightctl.controller.runtime.controller import Controller
from weightctl.controller.runtime.forwarding import ForwardingTier
from weightctl.controller.store.commit import Committed, Rejected, Uncertain
from weightctl.controller.store.store import WeightMetadataStore

if TYPE_CHECKING:
    from weightctl.adapters.conformance.simulation.world import World

T = TypeVar("T")
SLOW_S_MAX = 5.0


class KilledError(TransientError):
    """The process that asks is no longer there."""


class Process:
    """Store and loop of one start; `run` lives in a task of the world's."""

    def __init__(self, world: "World", number: int) -> None:
        self.world = world
        self.number = number
        self.clock = SimClock(world.loop)
        self.alive = True
        self.deposed = False
        """Cut off from the disk; another process may have opened it."""
        self.notices = False
        """Deposed, it still has its disk: its journal must tell it."""
        self.started = asyncio.Event()
        self.ended = asyncio.Event()
        self.scope = anyio.CancelScope()
        self.passes: dict[Identity, PassTrace] = {}
        self.tiers: list[Tier] = [ProcessTier(self, network) for network in world.networks.values()]
        self.policy = world.policy
        """What the operator last told it."""
        self.known_epochs: dict[str, str] = {}
        """By tier, as the disk had them at the start."""
        self.store: WeightMetadataStore
        self.controller: Controller

    @property
    def ready(self) -> bool:
        """Whether it can be asked for something."""
        return self.alive and self.started.is_set() and not self.deposed

    @property
    def term(self) -> int:
        """Of its store."""
        return self.store.term

    def set_policy(self, policy: Policy) -> None:
        """The operator wants something else from now on."""
        self.policy = policy
        self.controller.set_policy(policy)

    def check(self) -> None:
        """Raises KilledError after a kill."""
        if not self.alive:
            raise KilledError("the process was killed")

    async def run(self) -> None:
        entropy = Chance(f"{self.world.script.seed}/{self.number}")
        try:
            with self.scope:
                async with open_store(
                    self.world.disk, clock=self.clock, entropy=entropy, hooks=JournalHooks(self)
                ) as self.store:
                    self.known_epochs = self.world.disk.epochs()
                    self.controller = Controller(
                        self.store,
                        self.tiers,
                        clock=self.clock,
                        entropy=entropy,
                        policy=self.policy,
                        settings=self.world.settings,
                    )
                    watch(self)
                    async with self.controller:
                        self.started.set()
                        await self.controller.run_until_stopped()
        except Exception as error:  # noqa: BLE001 - judged by the world
            if self.alive and not self.notices:
                self.world.process_failed(self, error)
        finally:
            self.alive = False
            self.ended.set()

    def kill(self) -> None:
        """From now on nothing of it has an effect."""
        if self.alive:
            self.alive = False
            self.world.note(f"kill process {self.number}")
            self.scope.cancel()
            self.world.killed(self)

    def depose(self, seconds: float) -> None:
        """Another one leads; this one has lost its disk, or only its lock (even seconds)."""
        if self.alive and not self.deposed:
            self.deposed = True
            self.notices = int(seconds) % 2 == 0
            self.world.note(f"depose process {self.number}")
            self.world.tasks.start_soon(self.world.take_over, self, seconds)


class JournalHooks(Hooks):
    """What happens around the transactions of one process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._faults: dict[str, Fault | None] = {}

    async def before(self, kind: str) -> Committed | Rejected | Uncertain | None:
        process, world = self._process, self._process.world
        await world.latency()
        process.check()
        self._faults[kind] = fault = world.incident(f"disk.{kind}")
        match fault.kind if fault else "":
            case Crash.KILL_BEFORE:
                process.kill()
                process.check()
            case Crash.DEPOSE if fault is not None:
                process.depose(fault.amount)
            case Crash.UNREADABLE:
                raise StateDirectoryError("rows cannot be read", "injected")
            case Crash.REFUSED:
                return Rejected(why="DiskFull: injected", todo="")
            case Crash.UNCERTAIN_LOST:
                return Uncertain(why="CommitUncertain: injected")
            case Crash.SLOW if fault is not None:
                await asyncio.sleep(min(fault.amount, SLOW_S_MAX))
                process.check()
        if process.deposed and not process.notices and kind != "rows":
            return Rejected(why="Unplugged: the disk is gone", todo="")
        return None

    async def after(self, kind: str, outcome: object) -> object:
        process = self._process
        if kind == "commit":
            if isinstance(outcome, Committed) and process.term < process.world.last_term:
                process.world.violate("term", f"process {process.number} was deposed and commits")
            process.world.committed(process)
        fault = self._faults[kind]
        match fault.kind if fault else "":
            case Crash.KILL_AFTER:
                process.kill()
            case Crash.UNCERTAIN_KEPT:
                outcome = Uncertain(why="CommitUncertain: injected")
        await process.world.latency()
        process.check()
        return outcome


class ProcessTier(ForwardingTier):
    """A tier as one process sees it: what it is told and what it does is judged here."""

    def __init__(self, process: Process, network: Tier) -> None:
        super().__init__(network)
        self._process = process
        self._world = process.world
        self.name = network.profile.name

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """The tier outlives the process."""

    async def around(self, call: str, run: Callable[[], Awaitable[T]]) -> T:
        process, world = self._process, self._world
        process.check()
        await world.gate(self.name)
        await world.latency()
        process.check()
        fault = world.incident(f"{self.name}.{call}")
        if fault is not None and fault.kind == Crash.KILL_BEFORE:
            process.kill()
            process.check()
        if fault is not None and fault.kind == Crash.DEPOSE:
            process.depose(fault.amount)
        world.pending, world.calling = fault, process
        result = await run()
        if fault is not None and fault.kind == Crash.KILL_AFTER:
            process.kill()
        process.check()
        await world.latency()
        process.check()
        world.tell(fault, self.name)
        return result

    async def observe(self, members: Members, *, detail: Sequence[int] = ()) -> TierObservation:
        answer = await super().observe(members, detail=detail)
        self._world.judge.answered(self._process, self.name, members, answer, detail)
        return answer

    async def store(
        self, batch: Sequence[StoreItem], fence: Fence, *, limit: Limiter | None = None
    ) -> Sequence[Outcome]:
        members = [item.member for item in batch]
        with self._world.judge.sending(self._process, self.name, Call.STORE, members, fence):
            outcomes = await super().store(batch, fence, limit=limit)
        self._world.judge.told(self._process, self.name, Call.STORE, members, outcomes)
        return outcomes

    async def drop(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        return await self._remove(Call.DROP, batch, fence, super().drop)

    async def quarantine(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        return await self._remove(Call.QUARANTINE, batch, fence, super().quarantine)

    async def _remove(
        self,
        call: Call,
        batch: Sequence[DropItem],
        fence: Fence,
        run: Callable[[Sequence[DropItem], Fence], Awaitable[Sequence[Outcome]]],
    ) -> Sequence[Outcome]:
        members = [item.member for item in batch]
        judge = self._world.judge
        with judge.sending(self._process, self.name, call, members, fence):
            judge.removing(self._process, self.name, call, batch)
            outcomes = await run(batch, fence)
        judge.told(self._process, self.name, call, members, outcomes)
        return outcomes

    @asynccontextmanager
    async def _open(self, member: Member) -> AsyncIterator[RangedReader]:
        self._process.check()
        await self._world.gate(self.name)
        await self._world.latency()
        self._process.check()
        async with self._inner.open(member) as reader:
            self._process.check()
            yield reader

    async def verify(
        self, batch: Sequence[Member], *, limit: Limiter | None = None
    ) -> Sequence[Outcome]:
        with self._world.judge.sending(self._process, self.name, Call.VERIFY, batch, None):
            outcomes = await super().verify(batch, limit=limit)
        self._world.judge.verified(self._process, self.name, batch, outcomes)
        return outcomes

    async def inventory(self, group_id: str | None = None) -> Mapping[str, Sequence[InventoryItem]]:
        listed = await super().inventory(group_id)
        self._world.judge.listed(self._process, self.name, group_id, listed)
        return listed
