"""Rules of the worker processes when what they call never returns, and even SIGKILL does not help.

A stopped process stands for one that hangs in the kernel: it answers nothing.  Where a rule is
about processes that do not even end when they are killed, `unkillable` turns the kill into a stop,
and `mend` lets them go, as the kernel does when the medium is back.
"""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import anyio
import pytest

from tests.support.agility import agile
from tests.support.virtual_time import VirtualClock
from tests.support.worker_engine import Engine
from weightctl.adapters.shared.worker_process import WorkerProcess
from weightctl.adapters.shared.workers import EngineSpec, WorkerLimits, WorkerPool
from weightctl.controller.errors import ThrottledError, UnknownOutcomeError

DEADLINE_S = 0.05
PATIENCE_S = 120.0
R = TypeVar("R")
ENGINE = EngineSpec(factory="tests.support.worker_engine:Engine")


class Unkillable:
    """Processes that hang so that a kill does not end them; `mend` ends the hang."""

    def __init__(self) -> None:
        self.pids: list[int] = []

    def mend(self) -> None:
        while self.pids:
            with suppress(ProcessLookupError):
                os.kill(self.pids.pop(), signal.SIGKILL)


@pytest.fixture
def unkillable(monkeypatch: pytest.MonkeyPatch) -> Iterator[Unkillable]:
    hung = Unkillable()

    def stop(worker: WorkerProcess) -> None:
        hung.pids.append(worker.pid)
        os.kill(worker.pid, signal.SIGSTOP)

    monkeypatch.setattr(WorkerProcess, "_kill", stop)
    yield hung
    hung.mend()


def make_pool(clock: VirtualClock | None = None, **limits: float) -> WorkerPool:
    bounds = WorkerLimits(
        workers=int(limits.get("workers", 2)),
        deadline_s=limits.get("deadline_s", DEADLINE_S),
        hung_max=int(limits.get("hung_max", 5)),
        start_s=PATIENCE_S,
        probe_s=8.0,
        stop_s=limits.get("stop_s", 0.05),
        buffer_bytes=4096,
    )
    return WorkerPool("toy", ENGINE, clock=clock or VirtualClock(), limits=bounds)


async def ask(pool: WorkerPool, method: Callable[..., R], *args: object) -> R:
    """What must be answered, however long that takes: the pool's own deadline is for what hangs."""
    async with pool.lease(deadline_s=PATIENCE_S) as worker:
        return await worker.call(method, *args)


async def hang(pool: WorkerPool) -> None:
    """One call whose answer never comes."""
    with pytest.raises(UnknownOutcomeError):
        await pool.call(Engine.wait_for, "/nowhere/never")


async def all_ended(pool: WorkerPool) -> None:
    while pool.hung:  # noqa: ASYNC110 - the kernel says when a process has ended
        await asyncio.sleep(0.001)


async def test_a_stopped_worker_is_an_unknown_outcome_and_is_replaced() -> None:
    async with make_pool() as pool:
        pid = await ask(pool, Engine.pid)
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(UnknownOutcomeError) as caught:
            await pool.call(Engine.pid)
        assert caught.value.why == f"pid did not end within {DEADLINE_S} s"
        assert await ask(pool, Engine.pid) != pid
        await all_ended(pool)


async def test_the_loop_runs_on_while_every_worker_hangs(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    async with make_pool(deadline_s=1.0) as pool, agile(1 / 10):
        calls = [pool.call(Engine.open_blocked, str(fifo)) for _ in range(2)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [UnknownOutcomeError] * 2


async def test_an_answer_after_the_deadline_is_not_heard(tmp_path: Path) -> None:
    async with make_pool() as pool:
        await hang(pool)
        assert await ask(pool, Engine.echo, "fresh") == ["fresh"]


async def test_hung_workers_are_bounded_and_then_requests_fail_at_once_unsent(
    unkillable: Unkillable,
) -> None:
    clock = VirtualClock()
    async with make_pool(clock, hung_max=4) as pool:
        for expected in (1, 2):
            await hang(pool)
            assert pool.hung == expected
        # As many hang as work: from now on only a probe is sent, after 8 s, 16 s, ...
        for wait_s, expected in ((8.0, 3), (16.0, 4)):
            with pytest.raises(ThrottledError) as caught:
                await pool.call(Engine.echo, 1)
            assert caught.value.after_s == DEADLINE_S  # no longer: what hangs may end at any time
            assert "hang" in caught.value.why
            clock.jump(wait_s)
            await hang(pool)
            assert pool.hung == expected
        clock.jump(1e6)
        for _ in range(20):
            with pytest.raises(ThrottledError):
                await pool.call(Engine.echo, 1)
        assert pool.hung == 4
        unkillable.mend()
        await all_ended(pool)
        assert await ask(pool, Engine.echo, "back") == ["back"]


async def test_a_probe_that_succeeds_opens_the_way_again(unkillable: Unkillable) -> None:
    clock = VirtualClock()
    async with make_pool(clock) as pool:
        for _ in range(2):
            await hang(pool)
        clock.jump(8.0)
        for turn in range(5):
            assert await ask(pool, Engine.echo, turn) == [turn]


async def test_those_who_wait_when_the_last_worker_is_lost_are_told_so(
    unkillable: Unkillable,
) -> None:
    async with make_pool(workers=1) as pool:
        calls = [pool.call(Engine.wait_for, "/nowhere/never") for _ in range(3)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [
            UnknownOutcomeError,
            ThrottledError,
            ThrottledError,
        ]


async def test_closing_does_not_wait_for_workers_that_do_not_end(unkillable: Unkillable) -> None:
    pool = make_pool()
    async with pool:
        for _ in range(2):
            await hang(pool)
    pids = set(unkillable.pids)
    assert pool.hung == 0
    assert await anyio.to_thread.run_sync(states_of, pids) == {"T"}
    unkillable.mend()
    while await anyio.to_thread.run_sync(states_of, pids) != {"Z"}:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    async with make_pool() as another:  # which collects what was left behind
        await ask(another, Engine.echo, 1)
    assert await anyio.to_thread.run_sync(states_of, pids) == {""}


def states_of(pids: set[int]) -> set[str]:
    """The kernel's one-letter states; empty for a process that is not there."""
    found = set()
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/stat").read_text("ascii")
        except (FileNotFoundError, ProcessLookupError):
            found.add("")
        else:
            found.add(text.rpartition(")")[2].split()[0])
    return found


async def test_cancelling_while_workers_hang_ends_at_once(unkillable: Unkillable) -> None:
    async with make_pool(deadline_s=3600.0) as pool:
        pid = await pool.call(Engine.pid)
        os.kill(pid, signal.SIGSTOP)
        with anyio.move_on_after(0.01) as scope:
            await pool.call(Engine.echo, 1)
        assert scope.cancelled_caught


PARENT = """
    import asyncio, os, signal, sys, time
    from tests.support.worker_engine import Engine
    from weightctl.adapters.shared.worker_process import WorkerProcess
    from weightctl.adapters.shared.workers import EngineSpec, WorkerLimits, WorkerPool
    from weightctl.controller.clock import SystemClock

    WorkerProcess._kill = lambda worker: None
    ENGINE = EngineSpec(factory="tests.support.worker_engine:Engine")

    async def main():
        limits = WorkerLimits(stop_s=0.05, buffer_bytes=4096)
        async with WorkerPool("toy", ENGINE, clock=SystemClock(), limits=limits) as pool:
            pid = await pool.call(Engine.pid)
            os.kill(pid, signal.SIGSTOP)
            print(pid, flush=True)
            if sys.argv[1] == "killed":
                time.sleep(600)

    asyncio.run(main())
"""


@pytest.mark.parametrize("end", ["closed", "killed"])
def test_the_process_ends_although_a_worker_hangs_and_takes_it_along(end: str) -> None:
    code = textwrap.dedent(PARENT)
    with subprocess.Popen(
        [sys.executable, "-c", code, end],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        if end == "killed":
            parent.kill()
        assert parent.stdout.read() == b""  # nobody else holds the parent's streams
        assert parent.wait() == (-signal.SIGKILL if end == "killed" else 0)
    while not states_of({pid}) <= {"", "Z"}:
        time.sleep(0.001)
