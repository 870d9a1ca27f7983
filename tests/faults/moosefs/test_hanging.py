"""The dfs tier while a server stands still: calls hang in the kernel and ignore every signal.

A process that hangs so ends, even when killed, only when it is served or the client has gone.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from tests.faults.moosefs.lab import CHUNKSERVER, MASTER, Lab
from tests.support.dfs_tiers import FENCE, away, item, member, observe, read, states, store
from weightctl.adapters.dfs.options import parse
from weightctl.adapters.dfs.tier import DfsTier
from weightctl.controller.clock import SystemClock, SystemEntropy
from weightctl.controller.core.observation import MemberState
from weightctl.controller.ports import Done, Retry, TierContext, Unknown

DEADLINE_S = 1.0
CONTENT = bytes(range(256)) * 65536
UNKNOWN, ABSENT, COMPLETE = MemberState.UNKNOWN, MemberState.ABSENT, MemberState.COMPLETE


def tier_on(mount: Path, tmp_path: Path, host: str = "one", **options: object) -> DfsTier:
    """A tier on a folder of its own, with the state directory off the file system."""
    context = TierContext(
        clock=SystemClock(),
        entropy=SystemEntropy(),
        state_dir=str(tmp_path / host),
        holder="store",
    )
    given = {"path": str(mount / tmp_path.name), "deadline_s": DEADLINE_S, **options}
    return DfsTier("moose", parse("moose", given, context), context)


@asynccontextmanager
async def counting() -> AsyncIterator[list[int]]:
    """How often the loop came around while the body ran."""
    turns = [0]

    async def turn() -> None:
        while True:
            await asyncio.sleep(0.005)
            turns[0] += 1

    task = asyncio.create_task(turn())
    yield turns
    task.cancel()
    await asyncio.wait([task])


async def converged(tier: DfsTier, *contents: tuple[str, bytes]) -> None:
    """Every member verifies, and no worker hangs any more."""
    with anyio.fail_after(120):
        while True:
            outcomes = await tier.verify([member(*content) for content in contents])
            if all(isinstance(outcome, Done) for outcome in outcomes) and not tier._pool.hung:
                return
            assert {type(outcome) for outcome in outcomes} <= {Done, Retry, Unknown}
            await anyio.sleep(0.2)


@pytest.mark.parametrize("server", [MASTER, CHUNKSERVER])
async def test_calls_that_hang_hold_up_nobody_and_all_converges_when_they_are_served(
    lab: Lab, tmp_path: Path, server: str
) -> None:
    async with tier_on(lab.mount, tmp_path) as tier:
        await store(tier, "k", CONTENT)
        await away(lab.freeze, server)
        try:
            async with counting() as turns:
                (outcome,) = await tier.verify([member("k", CONTENT)])
                assert isinstance(outcome, Unknown)
                assert tier._pool.hung > 0  # killed, and still there
                assert ABSENT not in await states(tier, "k")
                (outcome,) = await tier.store([item("j", CONTENT)], FENCE)
                assert isinstance(outcome, Unknown | Retry)
            assert turns[0] > 100  # of about 400 in two seconds
        finally:
            await away(lab.thaw, server)
        await converged(tier, ("k", CONTENT))
        assert await read(tier, "k", CONTENT) == CONTENT


@pytest.mark.parametrize("server", [MASTER, CHUNKSERVER])
async def test_a_tier_is_entered_and_left_while_its_calls_hang(
    lab: Lab, tmp_path: Path, server: str
) -> None:
    async with tier_on(lab.mount, tmp_path) as tier:
        await store(tier, "k", CONTENT)
    await away(lab.freeze, server)
    try:
        async with tier_on(lab.mount, tmp_path) as tier:  # entering may meet the hang as well
            seen = await observe(tier, "k")
            if server == MASTER:
                assert (list(seen.states), seen.epoch) == ([UNKNOWN], "")
            assert isinstance((await tier.store([item("j", b"x")], FENCE))[0], Unknown | Retry)
            left_at_s = time.monotonic()
        assert time.monotonic() - left_at_s < 10  # hung calls would hold it for minutes
    finally:
        await away(lab.thaw, server)
    async with tier_on(lab.mount, tmp_path) as tier:
        await converged(tier, ("k", CONTENT))
