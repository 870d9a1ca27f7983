"""Tiers over a Mooncake, imitated or real, for one store or several."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from anyio import to_thread

from tests.support.mooncake.fake import LEASE_TTL_S, FakeMooncake
from tests.support.mooncake.harness import CAPACITY_BYTES, Named, connection_options
from weightctl.adapters.conformance.suite.material import HOLDER, context, store
from weightctl.adapters.mooncake.connection import shared
from weightctl.adapters.mooncake.options import MooncakeOptions
from weightctl.adapters.mooncake.tier import MooncakeTier
from weightctl.controller.clock import SystemClock
from weightctl.controller.core.observation import Member
from weightctl.controller.ports import Clock, Fence

IMITATED, REAL = "tests.support.mooncake.fake_client", "mooncake.store"


class Shifted(SystemClock):
    """The clock of the machine, with hours that a test lets pass."""

    ahead_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.ahead_s


def tier_of(
    medium: Named,
    folder: Path,
    holder: str = HOLDER,
    *,
    clock: Clock | None = None,
    library: str = IMITATED,
    fence: Fence | None = None,
    **changes: object,
) -> MooncakeTier:
    """A memory tier with a state directory for each store; fence: for whom it acts."""
    options = connection_options(medium, library=library, **changes)
    made = MooncakeOptions(kind="mooncake-memory", connection=options)
    opened = replace(context(folder / holder, holder=holder), fence=fence)
    if clock is not None:
        opened = replace(opened, clock=clock)
    return MooncakeTier("memory", made, shared(options, opened))


@asynccontextmanager
async def settled(medium: Named, folder: Path, **changes: object) -> AsyncIterator[MooncakeTier]:
    """A memory tier that knows that the cluster is its store's."""
    async with tier_of(medium, folder, **changes) as tier:  # type: ignore[arg-type]
        await tier.capacity()
        yield tier


@asynccontextmanager
async def both_of(
    medium: Named, folder: Path, *, library: str = IMITATED, **changes: object
) -> AsyncIterator[tuple[MooncakeTier, MooncakeTier]]:
    """The memory tier and that of the hosts' disks, over one connection."""
    options = connection_options(medium, library=library, **changes)
    connection = shared(options, context(folder))
    hot = MooncakeOptions(kind="mooncake-memory", connection=options)
    cold = MooncakeOptions(
        kind="mooncake-local-disk", connection=options, capacity_bytes=CAPACITY_BYTES
    )
    async with (
        MooncakeTier("memory", hot, connection) as memory,
        MooncakeTier("disk", cold, connection) as disk,
    ):
        yield memory, disk


def impatient(master: FakeMooncake, folder: Path) -> MooncakeTier:
    """A memory tier that does not wait for leases, over an imitated Master."""
    return tier_of(master, folder, lease_ttl_s=LEASE_TTL_S, patience_s=0.001)


async def offloaded(tier: MooncakeTier, master: FakeMooncake) -> Member:
    """One object, "k", with a cold copy, whose leases have run out."""
    (member,) = await store(tier, {"k": b"content"})
    await to_thread.run_sync(master.settle)
    master.objects["k"].lease_until = 0.0
    return member
