"""What no host offloads is put anew, for an import alone, over an imitated Master.

Time passes by sleeping only, so that a wait in vain costs none.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.support.mooncake.fake import FakeMooncake, Paces
from tests.support.mooncake.harness import CAPACITY_BYTES, connection_options
from weightctl.adapters.conformance.suite.material import (
    BytesReader,
    context,
    fence,
    member_of,
    opened_with,
    states,
)
from weightctl.adapters.mooncake.belated import NEVER, TRIES
from weightctl.adapters.mooncake.connection import shared
from weightctl.adapters.mooncake.options import MooncakeOptions
from weightctl.adapters.mooncake.tier import MooncakeTier
from weightctl.controller.clock import SystemClock
from weightctl.controller.core.observation import MemberState
from weightctl.controller.errors import FencedError
from weightctl.controller.ports import Busy, Done, Fence, Fenced, Outcome, Retry, StoreItem, Unknown

IMPORT = replace(fence(), operation_id=0)
CONTENT = b"content"
ENDLESS = 1000
RPC_TIMEOUT = -901


class Hasty(SystemClock):
    """Sleeping takes no time and is time that has passed."""

    slept_s = 0.0

    def monotonic_s(self) -> float:
        """As the port."""
        return super().monotonic_s() + self.slept_s

    async def sleep(self, seconds: float) -> None:
        """As the port."""
        self.slept_s += seconds
        await asyncio.sleep(0)


class Coming(FakeMooncake):
    """Hosts that have memory and not yet their disks: so many puts are offloaded by nobody."""

    def __init__(self) -> None:
        super().__init__(Paces(offload_s=0.0))
        self.skips = 0
        self.puts = 0
        self.loses_removals = False

    def rpc_remove(self, keys: list[str]) -> list[int]:
        return [RPC_TIMEOUT] * len(keys) if self.loses_removals else super().rpc_remove(keys)

    def rpc_end(self, client: str, key: str) -> int:
        code = super().rpc_end(client, key)
        self.puts += 1
        if self.skips > 0 and key != "late":
            self.skips -= 1
            self.objects[key].offload_at = None
        return code


@pytest.fixture
def master() -> Iterator[Coming]:
    made = Coming()
    yield made
    made.close()


@dataclass
class Importing:
    """Stores of one import, with what it was answered."""

    tier: MooncakeTier
    master: Coming
    said: list[Outcome] = field(default_factory=list)

    async def store(self, key: str = "k", under: Fence = IMPORT, source: str = "") -> Outcome:
        """Store one object as an import does, whose source has no instance."""
        return (await self.store_all([key], under, source))[0]

    async def store_all(
        self, keys: list[str], under: Fence = IMPORT, source: str = ""
    ) -> list[Outcome]:
        reader = BytesReader(CONTENT, len(CONTENT), instance_id=source)
        items = [
            StoreItem(member=member_of(key, CONTENT), open_source=opened_with(reader))
            for key in keys
        ]
        self.said += await self.tier.store(items, under)
        return self.said[-len(keys) :]


@asynccontextmanager
async def importing(master: Coming, folder: Path, skips: int) -> AsyncIterator[Importing]:
    options = connection_options(master, library="tests.support.mooncake.fake_client", appear_s=2.0)
    made = MooncakeOptions(
        kind="mooncake-local-disk", connection=options, capacity_bytes=CAPACITY_BYTES
    )
    hurried = replace(context(folder), clock=Hasty())
    async with MooncakeTier("ssd", made, shared(options, hurried)) as tier:
        await tier.capacity()  # the cluster's own small objects are put before
        master.skips, master.puts = skips, 0
        yield Importing(tier, master)


def details(said: list[Outcome]) -> list[str]:
    return [str(getattr(outcome, "detail", "")) for outcome in said]


async def test_an_import_puts_anew_what_no_host_offloads(master: Coming, tmp_path: Path) -> None:
    async with importing(master, tmp_path, skips=1) as one:
        first = await one.store()
        assert isinstance(first, Retry)
        assert NEVER in first.detail
        assert master.puts == 1, "it was only waited for"
        assert isinstance(await one.store(), Done)
        assert master.puts == 2
        assert await states(one.tier, member_of("k", CONTENT)) == [MemberState.COMPLETE]
        assert bytes(master.objects["k"].content) == CONTENT


async def test_a_host_that_offloads_nothing_is_asked_a_few_times_only(
    master: Coming, tmp_path: Path
) -> None:
    async with importing(master, tmp_path, skips=ENDLESS) as one:
        for _ in range(TRIES + 3):
            assert isinstance(await one.store(), Retry)
        assert master.puts == 1 + TRIES
        assert "see whether its host's disk takes anything" in details(one.said)[-1]
        assert master.objects["k"].complete


@pytest.mark.parametrize(
    "under, source", [(fence(), ""), (fence(), "replica"), (IMPORT, "replica")]
)
async def test_nothing_else_than_an_import_removes_what_is_there(
    master: Coming, tmp_path: Path, under: Fence, source: str
) -> None:
    """A published revision's memory replica may be the last one that can be read."""
    async with importing(master, tmp_path, skips=ENDLESS) as one:
        await one.store()
        kept = master.objects["k"]
        for _ in range(3):
            refused = await one.store(under=under, source=source)
            assert isinstance(refused, Retry)
            assert NEVER in refused.detail
        assert master.objects["k"] is kept
        assert master.puts == 1


async def test_an_import_that_was_ended_removes_nothing(master: Coming, tmp_path: Path) -> None:
    async def ended() -> None:
        raise FencedError("the import", "it was ended", "")

    async with importing(master, tmp_path, skips=ENDLESS) as one:
        await one.store()
        kept = master.objects["k"]
        reader = BytesReader(CONTENT, len(CONTENT), before_read=ended, instance_id="")
        item = StoreItem(member=member_of("k", CONTENT), open_source=opened_with(reader))
        (refused,) = await one.tier.store([item], IMPORT)
        assert isinstance(refused, Fenced)
        assert master.objects["k"] is kept


async def test_what_a_reader_holds_is_put_anew_when_the_lease_has_ended(
    master: Coming, tmp_path: Path
) -> None:
    async with importing(master, tmp_path, skips=1) as one:
        await one.store()
        master.objects["k"].lease_until = float("inf")
        assert isinstance(await one.store(), Busy)
        assert master.puts == 1
        master.objects["k"].lease_until = 0.0
        assert isinstance(await one.store(), Done)


async def test_a_removal_without_an_answer_is_not_tried_again(
    master: Coming, tmp_path: Path
) -> None:
    """It may still happen, when another put has come."""
    async with importing(master, tmp_path, skips=ENDLESS) as one:
        await one.store()
        master.loses_removals = True
        assert isinstance(await one.store(), Unknown)
        master.loses_removals = False
        for _ in range(3):
            assert isinstance(await one.store(), Retry)
        assert master.puts == 1


async def test_a_removal_whose_answer_is_lost_costs_a_put(master: Coming, tmp_path: Path) -> None:
    async with importing(master, tmp_path, skips=1) as one:
        await one.store()
        master.loses_removals = True
        assert isinstance(await one.store(), Unknown)
        del master.objects["k"]
        assert isinstance(await one.store(), Done)


async def test_while_others_are_offloaded_it_is_only_waited_for(
    master: Coming, tmp_path: Path
) -> None:
    """It may be later in its host's queue."""
    async with importing(master, tmp_path, skips=1) as one:
        first, second = await one.store_all(["k", "late"])
        assert isinstance(second, Done)
        assert isinstance(first, Retry)
        assert NEVER not in first.detail
        assert isinstance(await one.store(), Retry)
        assert master.puts == 2
        assert isinstance(await one.store(), Done)
        assert master.puts == 3
