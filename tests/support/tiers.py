"""The file tiers that ship, in a test's own folder."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from weightctl.adapters import local_disk, memory
from weightctl.controller.ports import Clock, Entropy, Tier, TierContext


@asynccontextmanager
async def file_tiers(folder: Path, *, clock: Clock, entropy: Entropy) -> AsyncIterator[list[Tier]]:
    """Enter a memory tier in `folder`/memory and a disk tier in `folder`/disk."""
    context = TierContext(clock=clock, entropy=entropy, state_dir=str(folder / "state"))
    tiers: list[Tier] = [
        memory.factory("memory", {"path": str(folder / "memory")}, context),
        local_disk.factory("disk", {"path": str(folder / "disk")}, context),
    ]
    async with AsyncExitStack() as stack:
        for tier in tiers:
            await stack.enter_async_context(tier)
        yield tiers
