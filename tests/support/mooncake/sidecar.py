"""Store, facade and loop beside a Mooncake cluster, in this process, for tests."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio

from tests.support.mooncake.harness import CAPACITY_BYTES, Medium, connection_options
from tests.support.rig import IDENTITY
from weightctl.adapters.mooncake.connection import shared
from weightctl.adapters.mooncake.options import MooncakeOptions
from weightctl.adapters.mooncake.tier import MooncakeTier
from weightctl.controller.clock import SystemClock, SystemEntropy
from weightctl.controller.core.observation import Members
from weightctl.controller.core.policy import Policy
from weightctl.controller.core.records import (
    Availability,
    Operation,
    Residency,
    RevisionMetadata,
)
from weightctl.controller.errors import ErrorCode, WeightError
from weightctl.controller.ports import Tier, TierContext, TierFactory
from weightctl.controller.runtime.controller import Controller
from weightctl.controller.runtime.settings import ResyncOptions, RuntimeSettings
from weightctl.controller.store.store import WeightMetadataStore
from weightctl.controller.weightstore.facade import WeightStore
from weightctl.controller.weightstore.options import WeightStoreOptions

WAIT_S = 300.0
"""For an operation to end, on a machine that may be busy."""
SETTINGS = RuntimeSettings(resync=ResyncOptions(working_s=0.5, published_s=0.5))
# One token for one hop of the loop: what a test waits for is a state, never a time.
POLICY = Policy(settle_s=1.0)


@dataclass(slots=True)
class Sidecar:
    """One controller process's parts."""

    store: WeightMetadataStore
    memory: MooncakeTier
    disk: MooncakeTier
    weights: WeightStore
    controller: Controller

    async def record(self) -> RevisionMetadata:
        return (await self.store.get(identity=IDENTITY)).metadata

    async def members(self) -> Members:
        record = await self.record()
        return await self.store.directory.members(record.manifest.payload_group_id)

    async def start(self, target: Residency) -> None:
        """Ask for a residency; the loop does the rest."""

        async def ask(record: RevisionMetadata) -> None:
            await self.store.start_residency_operation(
                identity=IDENTITY,
                expected_metadata_generation=record.metadata_generation,
                target_residency=target,
                member_count=record.manifest.payload_count + 1,
            )

        await self._of_the_present(ask)

    async def delete(self) -> None:
        async def ask(record: RevisionMetadata) -> None:
            await self.store.delete_revision(
                identity=IDENTITY, expected_metadata_generation=record.metadata_generation
            )

        await self._of_the_present(ask)

    async def _of_the_present(self, ask: Callable[[RevisionMetadata], Awaitable[None]]) -> None:
        """Ask with the record as it is; the loop may change it meanwhile."""
        while True:
            try:
                await ask(await self.record())
                return
            except WeightError as error:
                if error.code is not ErrorCode.STALE_GENERATION:
                    raise

    async def soon(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds."""
        with anyio.fail_after(WAIT_S):
            while True:
                if holds():
                    return
                await anyio.sleep(0.1)

    async def misses(self) -> None:
        """Wait until the loop says that a tier does not answer."""
        await self.soon(lambda: any(self.controller.health().tiers.values()))

    async def becomes(
        self,
        availability: Availability,
        residency: Residency,
        operation: Operation = Operation.NONE,
    ) -> RevisionMetadata:
        """Wait until the record says so."""
        with anyio.fail_after(WAIT_S):
            while True:
                record = await self.record()
                seen = (record.availability, record.residency, record.operation)
                if seen == (availability, residency, operation):
                    return record
                self.controller.wake(IDENTITY)
                await anyio.sleep(0.1)


@asynccontextmanager
async def sidecar(
    medium: Medium,
    folder: Path,
    *,
    policy: Policy = POLICY,
    also: TierFactory | None = None,
    claims: bool = False,
    term_above: int = 0,
    **changes: object,
) -> AsyncIterator[Sidecar]:
    """A controller over the cluster; its clients are killed when the block ends.

    `also` makes one more tier, called "also", with its files below the folder; `claims` is whether
    the cluster becomes the store's, and `term_above` the setting of that name.
    """
    clock, entropy = SystemClock(), SystemEntropy()
    # The loop itself waits for leases here, as it does for users.
    options = connection_options(medium, patience_s=0.001, **changes)
    async with AsyncExitStack() as stack:
        opening = WeightMetadataStore.open(
            folder / "state", clock=clock, entropy=entropy, term_above=term_above
        )
        store = await stack.enter_async_context(opening)
        context = TierContext(
            clock=clock,
            entropy=entropy,
            state_dir=str(folder),
            holder=store.holder if claims else "",
            fence=store.fence if claims else None,
        )
        connection = shared(options, context)

        def tier(kind: str, capacity_bytes: int | None) -> MooncakeTier:
            made = MooncakeOptions(kind=kind, connection=options, capacity_bytes=capacity_bytes)
            return MooncakeTier(kind, made, connection)

        memory, disk = tier("mooncake-memory", None), tier("mooncake-local-disk", CAPACITY_BYTES)
        tiers: list[Tier] = [memory, disk]
        if also is not None:
            tiers.append(also("also", {"path": str(folder / "also")}, context))
        for one in tiers:
            await stack.enter_async_context(one)
        controller = await stack.enter_async_context(
            Controller(
                store,
                tiers,
                clock=clock,
                entropy=entropy,
                policy=policy,
                settings=SETTINGS,
            )
        )
        weights = WeightStore(
            store,
            tiers,
            clock=clock,
            entropy=entropy,
            options=WeightStoreOptions(payload_bytes=1024 * 1024),
        )
        yield Sidecar(store, memory, disk, weights, controller)
