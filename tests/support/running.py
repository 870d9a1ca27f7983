"""A running controller over a real store and simulated tiers, under a virtual clock."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from tests.support.loop_rig import (
    IDENTITY,
    contents,
    members_of,
    place,
    reference_of,
    sim_tiers,
)
from tests.support.sim_tier import SimTier
from tests.support.virtual_time import SeededEntropy, VirtualClock
from weightctl.controller.core.identity import Identity
from weightctl.controller.core.policy import Policy
from weightctl.controller.core.records import Availability, Operation, Residency
from weightctl.controller.runtime.controller import Controller
from weightctl.controller.runtime.settings import RuntimeSettings
from weightctl.controller.store.store import WeightMetadataStore


class Running:
    """A controller over a real store, and the virtual clock that drives it."""

    def __init__(
        self, store: WeightMetadataStore, tiers: tuple[SimTier, ...], controller: Controller
    ) -> None:
        self.store = store
        self.tiers = tiers
        self.controller = controller

    async def publish(self, of: Identity = IDENTITY, *where: int) -> dict[str, bytes]:
        data = contents(of, 2)
        reference = reference_of(of, data)
        await self.store.begin_import(
            identity=of,
            expected_payload_count=reference.payload_count,
            expected_logical_bytes=reference.logical_bytes,
        )
        await self.store.directory.register(of, members_of(of, data))
        for index in where:
            place(self.tiers[index], of, data)
        await self.store.commit_import(
            identity=of, expected_metadata_generation=1, manifest=reference
        )
        return data

    async def start(self, target: Residency, of: Identity = IDENTITY) -> None:
        record = (await self.store.get(identity=of)).metadata
        await self.store.start_residency_operation(
            identity=of,
            expected_metadata_generation=record.metadata_generation,
            target_residency=target,
            member_count=3,
        )

    async def summary(self, of: Identity = IDENTITY) -> tuple[Availability, Residency, Operation]:
        record = (await self.store.get(identity=of)).metadata
        return record.availability, record.residency, record.operation


@asynccontextmanager
async def running(
    folder: Path, clock: VirtualClock, settings: RuntimeSettings | None = None
) -> AsyncIterator[Running]:
    tiers = sim_tiers()
    entropy = SeededEntropy(3)
    async with WeightMetadataStore.open(folder, clock=clock, entropy=entropy) as store:
        policy = Policy(import_abandon_ms=10**12)  # virtual time runs faster than a real import
        controller = Controller(
            store, tiers, clock=clock, entropy=entropy, policy=policy, settings=settings
        )
        made = Running(store, tiers, controller)
        async with moving(clock), controller:
            yield made


@asynccontextmanager
async def moving(clock: VirtualClock) -> AsyncIterator[None]:
    """Let virtual time pass while the test waits for something real."""

    async def move() -> None:
        while True:
            await asyncio.sleep(0.001)
            await clock.advance(0.1)

    task = asyncio.create_task(move())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def eventually(check: Callable[[], Awaitable[bool]]) -> None:
    with anyio.fail_after(240):
        while not await check():  # noqa: ASYNC110 - what is waited for is real and says nothing
            await asyncio.sleep(0.001)
