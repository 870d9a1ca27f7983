"""The dfs tier on a real distributed file system whose servers stop: calls hang in the kernel.

MooseFS runs in a network namespace of its own (moosefs_lab.sh).  Where that cannot be, the tests
are skipped with the reason.  A process that hangs on it ends, even when killed, only when it is
served.
"""

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from tests.support.dfs_tiers import (
    FENCE,
    away,
    dropping,
    item,
    member,
    observe,
    read,
    states,
    store,
)
from weightctl.adapters.dfs.options import parse
from weightctl.adapters.dfs.tier import DfsTier
from weightctl.controller.clock import SystemClock, SystemEntropy
from weightctl.controller.core.observation import MemberState
from weightctl.controller.ports import Done, Retry, TierContext, Unknown

LAB = Path(__file__).with_name("moosefs_lab.sh")
DEADLINE_S = 2.0
CONTENT = bytes(range(256)) * 65536
UNKNOWN, ABSENT, COMPLETE = MemberState.UNKNOWN, MemberState.ABSENT, MemberState.COMPLETE

Verb = Callable[[str], None]


def missing() -> str:
    """Why the laboratory cannot run here; empty when it can."""
    if os.geteuid() != 0:
        return "MooseFS needs root"
    if not Path("/dev/fuse").exists():
        return "MooseFS needs /dev/fuse"
    for tool in ("mfsmaster", "mfschunkserver", "mfsmount", "ip", "nsenter"):
        if shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
            return f"{tool} is not installed (moosefs-master moosefs-chunkserver moosefs-client)"
    probe = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
    return "" if probe.returncode == 0 else "no network namespace can be made here"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Verb]:
    """Sends a verb to the laboratory; its file system is mounted at `mnt` below the folder."""
    if reason := missing():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("moosefs")

    def send(verb: str) -> None:
        environment = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
        command = [str(LAB), verb, str(folder)]
        subprocess.run(command, check=True, env=environment, timeout=90, capture_output=True)

    try:
        send("start")
    except subprocess.SubprocessError as error:
        send("stop")
        pytest.skip(f"MooseFS did not start: {error}")
    yield send
    send("stop")


@pytest.fixture
def mount(lab: Verb, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.getbasetemp() / "moosefs0" / "mnt"


def tier_on(mount: Path, tmp_path: Path) -> DfsTier:
    """A tier on a folder of its own, with the state directory off the file system."""
    context = TierContext(
        clock=SystemClock(), entropy=SystemEntropy(), state_dir=str(tmp_path / "state")
    )
    given = {"path": str(mount / tmp_path.name), "deadline_s": DEADLINE_S}
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


async def serving(tier: DfsTier) -> None:
    """A chunkserver is there: it takes a moment after a start of the master."""
    with anyio.fail_after(60):
        while (await tier.capacity()).free_bytes == 0:  # noqa: ASYNC110 - other processes start
            await anyio.sleep(0.1)


async def converged(tier: DfsTier, *contents: tuple[str, bytes]) -> None:
    """Every member verifies, and no worker hangs any more."""
    with anyio.fail_after(120):
        while True:
            outcomes = await tier.verify([member(*content) for content in contents])
            if all(isinstance(outcome, Done) for outcome in outcomes) and not tier._pool.hung:
                return
            assert {type(outcome) for outcome in outcomes} <= {Done, Retry, Unknown}
            await anyio.sleep(0.2)


async def test_replicas_are_stored_read_verified_and_dropped(mount: Path, tmp_path: Path) -> None:
    async with tier_on(mount, tmp_path) as tier:
        await serving(tier)
        instance = await store(tier, "k", CONTENT)
        assert await read(tier, "k", CONTENT) == CONTENT
        assert isinstance((await tier.verify([member("k", CONTENT)]))[0], Done)
        assert (await tier.capacity()).used_bytes == len(CONTENT)
        assert isinstance((await tier.drop([dropping("k", instance, CONTENT)], FENCE))[0], Done)
        assert await states(tier, "k") == [ABSENT]


async def test_reads_that_hang_hold_up_nobody_and_all_converges_when_they_are_served(
    lab: Verb, mount: Path, tmp_path: Path
) -> None:
    async with tier_on(mount, tmp_path) as tier:
        await serving(tier)
        await store(tier, "k", CONTENT)
        await away(lab, "chunkserver-stop")
        try:
            async with counting() as turns:
                (outcome,) = await tier.verify([member("k", CONTENT)])
                assert isinstance(outcome, Unknown)
                assert tier._pool.hung > 0  # killed, and still there
                assert ABSENT not in await states(tier, "k")
            assert turns[0] > 100  # of about 400 in two seconds
        finally:
            await away(lab, "chunkserver-start")
        await converged(tier, ("k", CONTENT))
        assert await states(tier, "k") == [COMPLETE]
        assert await read(tier, "k", CONTENT) == CONTENT


async def test_a_tier_is_left_while_its_calls_hang(lab: Verb, mount: Path, tmp_path: Path) -> None:
    async with tier_on(mount, tmp_path) as tier:
        await serving(tier)
        await store(tier, "k", CONTENT)
    await away(lab, "master-stop")
    try:
        async with tier_on(mount, tmp_path) as tier:  # entering meets the hang as well
            seen = await observe(tier, "k")
            assert (list(seen.states), seen.epoch) == ([UNKNOWN], "")
            assert isinstance((await tier.store([item("j", b"x")], FENCE))[0], Unknown | Retry)
            left_at_s = time.monotonic()
        assert time.monotonic() - left_at_s < 10  # hung calls would hold it for minutes
    finally:
        await away(lab, "master-start")
    async with tier_on(mount, tmp_path) as tier:
        await converged(tier, ("k", CONTENT))
