"""The dfs tier while a server stands still: calls hang in the kernel and ignore every signal.

A process that hangs so ends, even when killed, only when it is served or the client has gone.
What must succeed is asked of a tier with patience; one without it meets the fault, so that this
costs seconds and no step that must succeed depends on them.
"""

from collections.abc import Iterable
from pathlib import Path

import anyio
import pytest

from tests.faults.moosefs.lab import CHUNKSERVER, MASTER, PATIENCE_S, Lab
from tests.support.agility import agile
from tests.support.dfs_tiers import FENCE, away, item, member, observe, read, states, store
from weightctl.adapters.dfs.options import parse
from weightctl.adapters.dfs.tier import DfsTier
from weightctl.controller.clock import SystemClock, SystemEntropy
from weightctl.controller.core.observation import MemberState
from weightctl.controller.ports import Done, Retry, TierContext, Unknown

HASTY_S = 1.0
AGILE = 1 / 10
CONTENT = bytes(range(256)) * 65536
UNKNOWN, ABSENT = MemberState.UNKNOWN, MemberState.ABSENT


def tier_on(
    mount: Path, tmp_path: Path, host: str = "one", deadline_s: float = PATIENCE_S
) -> DfsTier:
    """A tier on a folder of its own, with the state directory off the file system."""
    context = TierContext(
        clock=SystemClock(),
        entropy=SystemEntropy(),
        state_dir=str(tmp_path / host),
        holder="store",
    )
    given = {"path": str(mount / tmp_path.name), "deadline_s": deadline_s}
    return DfsTier("moose", parse("moose", given, context), context)


async def stored(lab: Lab, tmp_path: Path) -> None:
    """One replica, while all serves."""
    async with tier_on(lab.mount, tmp_path) as tier:
        await store(tier, "k", CONTENT)


async def hangs(tier: DfsTier) -> set[int]:
    """Ask until workers that were killed for their silence are still there; their process ids."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            (outcome,) = await tier.store([item("j", CONTENT)], FENCE)
            assert isinstance(outcome, Unknown | Retry)
            killed = [worker.pid for worker in tier._pool._hung]
            if hung := await away(waiting_in_kernel, killed):
                return hung


def waiting_in_kernel(pids: Iterable[int]) -> set[int]:
    return {pid for pid in pids if waits_in_kernel(pid)}


def waits_in_kernel(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state == "D"


async def converged(tier: DfsTier) -> None:
    """The replica verifies, and no worker hangs any more."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            (outcome,) = await tier.verify([member("k", CONTENT)])
            if isinstance(outcome, Done) and not tier._pool.hung:
                return
            assert isinstance(outcome, Done | Retry | Unknown)
            await anyio.sleep(0.2)


@pytest.mark.parametrize("server", [MASTER, CHUNKSERVER])
async def test_calls_that_hang_hold_up_nobody_and_all_converges_when_they_are_served(
    lab: Lab, tmp_path: Path, server: str
) -> None:
    await stored(lab, tmp_path)
    async with tier_on(lab.mount, tmp_path, deadline_s=HASTY_S) as tier:
        await away(lab.freeze, server)
        try:
            async with agile(AGILE):
                (outcome,) = await tier.verify([member("k", CONTENT)])
                assert isinstance(outcome, Unknown | Retry)
                await hangs(tier)
                assert ABSENT not in await states(tier, "k")
        finally:
            await away(lab.thaw, server)
        await converged(tier)
    async with tier_on(lab.mount, tmp_path) as tier:
        assert await read(tier, "k", CONTENT) == CONTENT


@pytest.mark.parametrize("server", [MASTER, CHUNKSERVER])
async def test_a_tier_is_entered_and_left_while_its_calls_hang(
    lab: Lab, tmp_path: Path, server: str
) -> None:
    await stored(lab, tmp_path)
    await away(lab.freeze, server)
    try:
        async with tier_on(lab.mount, tmp_path, deadline_s=HASTY_S) as tier:  # may meet it as well
            seen = await observe(tier, "k")
            if server == MASTER:
                assert (list(seen.states), seen.epoch) == ([UNKNOWN], "")
            hung = await hangs(tier)
        assert await away(waiting_in_kernel, hung), "they were waited for"
    finally:
        await away(lab.thaw, server)
    async with tier_on(lab.mount, tmp_path) as tier:
        await converged(tier)
