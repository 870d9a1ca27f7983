"""An object that is put onto a real host before its disk is there gets its cold copy by an import.

Costs about ten seconds: hosts start until one is met in the moment between its memory and its disk.
"""

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from tests.support.mooncake.harness import CAPACITY_BYTES, connection_options
from tests.support.mooncake.lab import Cluster, cluster, needs_wheel, until
from weightctl.adapters.conformance.suite.material import (
    BytesReader,
    content_of,
    context,
    fence,
    member_of,
    opened_with,
    states,
)
from weightctl.adapters.mooncake.connection import shared
from weightctl.adapters.mooncake.lab.cluster import MIB, Host
from weightctl.adapters.mooncake.options import MooncakeOptions
from weightctl.adapters.mooncake.tier import MooncakeTier
from weightctl.controller.core.observation import MemberState
from weightctl.controller.ports import Done, Outcome, Retry, StoreItem

pytestmark = needs_wheel

IMPORT = replace(fence(), operation_id=0)
CONTENT = content_of(100_000)
WAIT_S = 600.0


class Coming:
    """A host that is being started."""

    def __init__(self, real: Cluster, folder: Path) -> None:
        self.host = Host(real, folder, 64 * MIB, True)
        real.hosts.append(self.host)
        self._real = real
        self._start = threading.Thread(target=self.host.start)

    def begin(self) -> None:
        """Start it; there is its memory when this returns, and its disk perhaps not yet."""
        self.host.prepare()
        self._start.start()
        until("its memory is there", lambda: self.host.name in self._real.get("/get_all_segments"))

    def join(self) -> None:
        """Wait until it has its disk."""
        self._start.join()


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster with one host, for what is small, and a folder for the state."""
    for folder in ("cluster", "state"):
        (tmp_path / folder).mkdir()
    with cluster(tmp_path / "cluster", hosts=1, segment_mib=64) as made:
        yield made


@asynccontextmanager
async def placing(real: Cluster, folder: Path, host: Host) -> AsyncIterator[MooncakeTier]:
    """A tier of the disks that puts onto that host, and soon takes a wait for one in vain."""
    options = connection_options(real, segments=(host.name,), appear_s=3.0)
    made = MooncakeOptions(
        kind="mooncake-local-disk", connection=options, capacity_bytes=CAPACITY_BYTES
    )
    async with MooncakeTier("ssd", made, shared(options, context(folder))) as tier:
        yield tier


async def imported(tier: MooncakeTier, key: str) -> Outcome:
    """Store as an import does."""
    item = StoreItem(
        member=member_of(key, CONTENT),
        open_source=opened_with(BytesReader(CONTENT, len(CONTENT), instance_id="")),
    )
    return (await tier.store([item], IMPORT))[0]


async def test_an_import_gets_a_cold_copy_of_what_was_put_before_the_disk_was_there(
    real: Cluster, tmp_path: Path
) -> None:
    for number in range(20):
        coming, key = Coming(real, tmp_path / f"host{number}"), f"early-{number}"
        async with placing(real, tmp_path / "state", coming.host) as tier:
            await tier.capacity()  # the cluster's own small objects are put before
            await to_thread.run_sync(coming.begin)
            first = await imported(tier, key)
            await to_thread.run_sync(coming.join)
            if isinstance(first, Retry):
                await becomes_cold(tier, key)
                return
        await to_thread.run_sync(coming.host.kill)
    raise AssertionError("no host was met between its memory and its disk")


async def becomes_cold(tier: MooncakeTier, key: str) -> None:
    """What was never offloaded is put anew, and is; for who repeats the import."""
    member = member_of(key, CONTENT)
    with anyio.fail_after(WAIT_S):
        outcome: Outcome | None = None
        while not isinstance(outcome, Done):
            outcome = await imported(tier, key)
    assert await states(tier, member) == [MemberState.COMPLETE]
    assert isinstance((await tier.verify([member]))[0], Done)
