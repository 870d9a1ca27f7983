"""The whole product on one disk: import a model, evict it, and look after it when all goes dark.

State directory and local_disk tier lie on the disk in question, the memory tier does not: it is
gone after a power loss, as memory is.  The rule: once an import said READY, the model can be loaded
whole from what is left, whatever comes.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread

from tests.support.loop_rig import IDENTITY, Rig, rig
from tests.support.models import random_tensors, write_model
from tests.support.virtual_time import SeededEntropy, VirtualClock
from weightctl.adapters import local_disk, memory
from weightctl.controller.core.policy import Policy
from weightctl.controller.core.records import Availability, Residency, RevisionMetadata
from weightctl.controller.errors import ErrorCode, WeightError
from weightctl.controller.ports import Tier, TierContext
from weightctl.controller.weightstore.facade import WeightStore
from weightctl.controller.weightstore.options import WeightStoreOptions
from weightctl.controller.weightstore.targets import IntoArrays

MODEL = random_tensors(rows=16)
POLICY = Policy(tier_preference=("disk",), settle_s=0.0)
Note = Callable[[object], Awaitable[None]]


@dataclass
class Product:
    """One process."""

    loop: Rig
    weights: WeightStore
    model: Path

    async def put(self) -> None:
        await self.weights.put(IDENTITY, self.model)

    async def check_loads(self) -> None:
        """Every byte of every tensor, each object by its digest."""
        report = await self.weights.load(IDENTITY, into=IntoArrays(), verify=True)
        found = {name: bytes(tensor.data) for name, tensor in report.tensors.items()}
        assert found == {name: content for name, (_, _, content) in MODEL.items()}


@asynccontextmanager
async def product(
    disk: Path, hot: Path, *, seed: int = 1, state_dir: Path | None = None
) -> AsyncIterator[Product]:
    """Open everything; `hot` is the folder of the memory tier and of the model to import.

    state_dir: on the disk in question unless it is given.
    """
    state_dir = state_dir or disk / "state"
    clock = VirtualClock(monotonic_s=1000.0 * seed)
    entropy = SeededEntropy(seed)
    context = TierContext(clock=clock, entropy=entropy, state_dir=str(state_dir))
    model = await to_thread.run_sync(write_model, hot / "model.safetensors", MODEL)
    tiers: tuple[Tier, ...] = (
        memory.factory("mem", {"path": str(hot / "mem")}, context),
        local_disk.factory("disk", {"path": str(disk / "disk")}, context),
    )
    async with AsyncExitStack() as stack:
        for tier in tiers:
            await stack.enter_async_context(tier)
        made = rig(state_dir, tiers, clock=clock, policy=POLICY)
        loop = await stack.enter_async_context(made)
        options = WeightStoreOptions(payload_bytes=2000)
        weights = WeightStore(loop.store, tiers, clock=clock, entropy=entropy, options=options)
        yield Product(loop, weights, model)


async def live(disk: Path, hot: Path, note: Note) -> None:
    """Import, evict, rehydrate, delete; notes each when it is reported."""
    async with product(disk, hot) as one:
        await one.put()
        await note("ready")
        await one.loop.start(Residency.COLD)
        await one.loop.converge()
        await note("cold")
        await one.loop.start(Residency.HOT)
        await one.loop.converge()
        await note("hot")
        await note("deleting")
        await one.loop.delete()
        await one.loop.converge()
        await note("deleted")


async def judge(disk: Path, hot: Path, facts: Sequence[object]) -> None:
    """Start again on what is left, with empty memory."""
    async with product(disk, hot, seed=2) as one:
        record: RevisionMetadata | None = None
        try:
            record = await one.loop.record()
        except WeightError as error:
            if error.code is not ErrorCode.NOT_FOUND or facts:
                raise
        if "deleted" in facts:
            assert record is not None
            assert record.availability is Availability.DELETED
        if "deleting" in facts:
            await one.loop.converge()
            return
        if "ready" in facts:
            assert record is not None
            assert record.availability is Availability.READY
        if record is None or record.availability is Availability.IMPORTING:
            await one.put()
        await one.loop.converge()
        await one.check_loads()
        assert (await one.loop.record()).availability is Availability.READY
