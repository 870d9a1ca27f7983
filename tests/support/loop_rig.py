"""A real store, tiers and a reconciler under a virtual clock, driven pass by pass.

The store is the real one on a real SQLite file; the tiers are `SimTier` or any others.  `converge`
plays the queue: it repeats passes and lets the time pass that a pass asks to wait.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from tests.support.sim_tier import SimTier, World
from tests.support.virtual_time import SeededEntropy, VirtualClock
from weightctl.adapters.conformance.revisions import (
    contents,
    identity,
    members_of,
    reference_of,
)
from weightctl.controller.core.identity import (
    Identity,
)
from weightctl.controller.core.policy import Policy
from weightctl.controller.core.records import (
    Availability,
    Operation,
    Residency,
    RevisionMetadata,
)
from weightctl.controller.ports import Tier
from weightctl.controller.runtime.conditions import ConditionBoard
from weightctl.controller.runtime.dispatch import Dispatch
from weightctl.controller.runtime.drift import DriftWatch
from weightctl.controller.runtime.executor import Executor
from weightctl.controller.runtime.observer import Observer
from weightctl.controller.runtime.reconciler import PassReport, Reconciler
from weightctl.controller.runtime.runner import Again, Failed, Finished, Next
from weightctl.controller.runtime.settings import RuntimeSettings
from weightctl.controller.runtime.survey import Survey
from weightctl.controller.runtime.timer import Timer
from weightctl.controller.store.store import WeightMetadataStore

__all__ = ["contents", "identity", "members_of", "reference_of"]
"""Beside what is defined here."""

IDENTITY = Identity(namespace="prod", resource_id="model", revision="v1", weight_generation=1)
PASSES_MAX = 200


@dataclass
class Rig:
    """One process's loop, without its queue."""

    store: WeightMetadataStore
    tiers: Sequence[Tier]
    clock: VirtualClock
    timer: Timer
    observer: Observer
    dispatch: Dispatch
    reconciler: Reconciler
    survey: Survey
    board: ConditionBoard
    drift: DriftWatch
    reports: list[PassReport] = field(default_factory=list)

    async def publish(
        self, of: Identity = IDENTITY, payloads: int = 3, size_bytes: int = 64, *, empty: int = 0
    ) -> dict[str, bytes]:
        """Import a revision whose replicas the test places itself; gives its bytes by key."""
        data = contents(of, payloads, size_bytes, empty=empty)
        reference = reference_of(of, data)
        record = await self.store.begin_import(
            identity=of,
            expected_payload_count=reference.payload_count,
            expected_logical_bytes=reference.logical_bytes,
        )
        await self.store.directory.register(of, members_of(of, data))
        await self.store.commit_import(
            identity=of,
            expected_metadata_generation=record.metadata_generation,
            manifest=reference,
        )
        return data

    async def record(self, of: Identity = IDENTITY) -> RevisionMetadata:
        return (await self.store.get(identity=of)).metadata

    async def summary(self, of: Identity = IDENTITY) -> tuple[Availability, Residency, Operation]:
        record = await self.record(of)
        return record.availability, record.residency, record.operation

    async def start(self, target: Residency, of: Identity = IDENTITY) -> int:
        record = await self.record(of)
        operation = await self.store.start_residency_operation(
            identity=of,
            expected_metadata_generation=record.metadata_generation,
            target_residency=target,
            member_count=record.manifest.payload_count + 1,
        )
        return operation.operation_id

    async def repair(self, target: Residency = Residency.HOT, of: Identity = IDENTITY) -> None:
        record = await self.record(of)
        await self.store.start_repair(
            identity=of,
            expected_metadata_generation=record.metadata_generation,
            target_residency=target,
            member_count=record.manifest.payload_count + 1,
            copies_short=True,
        )

    async def delete(self, of: Identity = IDENTITY) -> None:
        record = await self.record(of)
        await self.store.delete_revision(
            identity=of, expected_metadata_generation=record.metadata_generation
        )

    async def step(self, of: Identity = IDENTITY) -> Next:
        """One pass, as after a wake-up by hand."""
        self.drift.forget(of)
        return await self.reconciler.reconcile(of)

    async def converge(self, of: Identity = IDENTITY, passes: int = PASSES_MAX) -> int:
        """Passes until nothing is left to do; waiting makes the clock jump.  Gives their number."""
        for count in range(1, passes + 1):
            match await self.step(of):
                case Finished():
                    return count
                case Again(after_s=after_s):
                    self.clock.jump(after_s)
                case Failed(at_least_s=at_least_s):
                    self.clock.jump(max(at_least_s, 1.0))
        raise AssertionError(f"{of} did not converge in {passes} passes: {self.board.of(of)}")

    async def settle(self, of: Identity = IDENTITY, passes: int = 8) -> None:
        """A bounded number of passes, for what does not converge."""
        for _ in range(passes):
            match await self.step(of):
                case Again(after_s=after_s):
                    self.clock.jump(after_s)
                case _:
                    self.clock.jump(1.0)


@asynccontextmanager
async def rig(
    folder: Path,
    tiers: Sequence[Tier],
    *,
    clock: VirtualClock | None = None,
    policy: Policy | None = None,
    settings: RuntimeSettings | None = None,
    wrap: Callable[[Any], Any] = lambda store: store,
) -> AsyncIterator[Rig]:
    """Open the store in `folder` and build a loop over `tiers`; again for a restart."""
    clock = clock or VirtualClock()
    settings = settings or RuntimeSettings()
    async with (
        WeightMetadataStore.open(folder, clock=clock, entropy=SeededEntropy(1)) as opened,
        anyio.create_task_group() as group,
    ):
        store = wrap(opened)
        timer = Timer(clock)
        observer = Observer(tiers, clock=clock, timer=timer, options=settings.observer)
        known = {name: store.tier_epochs.get(name) for name in observer.tiers}
        observer.gate.restore({name: epoch for name, epoch in known.items() if epoch})
        dispatch = Dispatch(
            observer,
            store,
            clock=clock,
            timer=timer,
            options=settings.executor,
            limits=settings.tiers,
        )
        survey = Survey(observer, policy=policy or Policy(), clock=clock)
        board = ConditionBoard(clock, stuck_after_s=settings.stuck_after_s)
        drift = DriftWatch(observer)
        reports: list[PassReport] = []
        reconciler = Reconciler(
            store,
            observer,
            survey,
            Executor(dispatch),
            clock=clock,
            settings=settings,
            drift=drift,
            board=board,
            report=reports.append,
        )
        group.start_soon(timer.run)
        yield Rig(
            store=store,
            tiers=tiers,
            clock=clock,
            timer=timer,
            observer=observer,
            dispatch=dispatch,
            reconciler=reconciler,
            survey=survey,
            board=board,
            drift=drift,
            reports=reports,
        )
        group.cancel_scope.cancel()


def sim_tiers(world: World | None = None, **changes: Any) -> tuple[SimTier, SimTier, SimTier]:
    """One hot and two cold tiers."""
    world = world or World()
    return (
        SimTier("mem", hot=True, world=world, **changes),
        SimTier("disk", hot=False, world=world, **changes),
        SimTier("far", hot=False, world=world, **changes),
    )


def place(tier: SimTier, of: Identity, data: dict[str, bytes]) -> None:
    """Put a whole revision into a tier."""
    for member in members_of(of, data):
        tier.put(member, data[member.key])
