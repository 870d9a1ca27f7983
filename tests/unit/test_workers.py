"""Rules of the worker processes; what a medium that hangs does to them is in test_workers_hung."""

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.virtual_time import VirtualClock
from tests.support.worker_engine import ERRORS, Engine
from weightctl.adapters.shared.workers import EngineSpec, WorkerLimits, WorkerPool
from weightctl.controller.errors import (
    ThrottledError,
    TransientError,
    UnknownOutcomeError,
    WeightctlError,
)

FACTORY = "tests.support.worker_engine:Engine"
SMALL = 64 * 1024


def make_pool(factory: str = FACTORY, *, workers: int = 3, **options: Any) -> WorkerPool:
    limits = WorkerLimits(workers=workers, deadline_s=120.0, start_s=120.0, buffer_bytes=SMALL)
    return WorkerPool(
        "toy", EngineSpec(factory=factory, options=options), clock=VirtualClock(), limits=limits
    )


async def descriptors() -> int:
    return await anyio.to_thread.run_sync(lambda: len(list(Path("/proc/self/fd").iterdir())))


async def all_workers_run(pool: WorkerPool) -> None:
    while len(pool.pids) < WorkerLimits().workers:  # noqa: ASYNC110 - other processes start
        await asyncio.sleep(0.001)


@pytest.fixture
async def pool() -> AsyncIterator[WorkerPool]:
    async with make_pool() as opened:
        yield opened


async def test_a_call_returns_what_the_engine_returns(pool: WorkerPool) -> None:
    assert await pool.call(Engine.echo, "a", times=2) == ["a", "a"]


async def test_the_engine_is_made_with_the_options() -> None:
    async with make_pool(greeting="hello") as pool:
        assert await pool.call(Engine.greet) == "hello"


async def test_no_worker_starts_before_the_first_request(pool: WorkerPool) -> None:
    assert pool.pids == ()
    assert await pool.call(Engine.pid) == next(iter(pool.pids))


@pytest.mark.parametrize("kind", sorted(ERRORS))
async def test_an_error_of_the_engine_arrives_with_all_its_fields(
    pool: WorkerPool, kind: str
) -> None:
    with pytest.raises(WeightctlError) as caught:
        await pool.call(Engine.fail, kind)
    assert type(caught.value) is type(ERRORS[kind])
    assert vars(caught.value) == vars(ERRORS[kind])
    assert str(caught.value) == str(ERRORS[kind])


@pytest.mark.parametrize("method, named", [(Engine.burst, "OSError"), (Engine.unsendable, "Error")])
async def test_a_bug_of_the_engine_is_an_unknown_outcome_and_spares_the_worker(
    pool: WorkerPool, method: Any, named: str
) -> None:
    pid = await pool.call(Engine.pid)
    with pytest.raises(UnknownOutcomeError) as caught:
        await pool.call(method)
    assert named in caught.value.why
    assert await pool.call(Engine.pid) == pid


async def test_large_requests_and_answers_pass_in_parts(pool: WorkerPool) -> None:
    text = os.urandom(5_000_000)
    assert await pool.call(Engine.echo, text) == [text]


async def test_bulk_bytes_pass_through_the_shared_buffer(pool: WorkerPool) -> None:
    async with pool.lease() as worker:
        assert len(worker.buffer) == SMALL
        worker.buffer[10:14] = b"down"
        assert await worker.call(Engine.peek, 10, 4) == b"down"
        await worker.call(Engine.fill, 20, b"up")
        assert bytes(worker.buffer[20:22]) == b"up"


async def test_a_worker_has_no_descriptor_folder_or_session_of_its_parent(
    pool: WorkerPool, tmp_path: Path
) -> None:
    held = await anyio.open_file(tmp_path / "held", "wb")
    async with held:
        os.set_inheritable(held.wrapped.fileno(), True)
        names, session, folder = await pool.call(Engine.surroundings)
    assert session in pool.pids
    assert folder == "/"
    kinds = sorted(name.partition(":")[0].partition(" ")[0] for name in names)
    assert kinds == ["/dev/null"] * 3 + ["/memfd", "socket"]


async def test_many_callers_share_a_bounded_number_of_workers(pool: WorkerPool) -> None:
    pids = await asyncio.gather(*(pool.call(Engine.pid) for _ in range(50)))
    assert len(set(pids)) <= WorkerLimits().workers


async def test_transfers_leave_a_worker_to_short_calls(pool: WorkerPool, tmp_path: Path) -> None:
    go = tmp_path / "go"

    async def transfer() -> None:
        async with pool.lease(transfer=True) as worker:
            await worker.call(Engine.wait_for, str(go))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(transfer)
        assert await pool.call(Engine.echo, 1) == [1]
        await anyio.to_thread.run_sync(go.touch)


async def test_a_cancelled_call_neither_blocks_nor_answers_the_next_one(tmp_path: Path) -> None:
    go = tmp_path / "go"
    async with make_pool(workers=2) as pool:
        pid = await pool.call(Engine.pid)
        call = asyncio.create_task(pool.call(Engine.wait_for, str(go)))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        other = await pool.call(Engine.pid)
        assert other != pid
        await anyio.to_thread.run_sync(go.touch)
        # The first worker comes back when its forgotten call has ended, and answers for itself.
        seen: set[int] = set()
        while seen != {pid, other}:
            seen.update(await asyncio.gather(pool.call(Engine.pid), pool.call(Engine.pid)))
        assert set(pool.pids) == seen


async def test_a_lease_goes_on_after_a_cancelled_call_when_that_has_ended(
    pool: WorkerPool, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    async with pool.lease() as worker:
        call = asyncio.ensure_future(worker.call(Engine.wait_for, str(go)))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
        await anyio.to_thread.run_sync(go.touch)
        assert await worker.call(Engine.echo, 7) == [7]


@pytest.mark.parametrize("cancelled", [False, True])
async def test_the_last_call_of_a_lease_is_made_before_the_worker_is_used_again(
    tmp_path: Path, cancelled: bool
) -> None:
    go, last = tmp_path / "go", tmp_path / "last"

    async def leased(pool: WorkerPool) -> None:
        async with pool.lease() as worker:
            worker.at_end(Engine.touch, str(last))
            await worker.call(Engine.wait_for, str(go))

    async with make_pool(workers=1) as pool:
        task = asyncio.create_task(leased(pool))
        while not pool.pids:  # noqa: ASYNC110
            await asyncio.sleep(0)
        if cancelled:
            task.cancel()
        await anyio.to_thread.run_sync(go.touch)
        await asyncio.wait([task])
        if not cancelled:
            assert await pool.call(Engine.wait_for, str(last)) == str(last)


async def test_a_last_call_can_be_taken_back(pool: WorkerPool, tmp_path: Path) -> None:
    last = tmp_path / "last"
    async with pool.lease() as worker:
        worker.at_end(Engine.touch, str(last))
        worker.at_end(None)
    await pool.call(Engine.echo, 1)
    assert not await anyio.Path(last).exists()


async def test_a_caller_that_is_cancelled_while_it_waits_takes_no_worker_with_it(
    tmp_path: Path,
) -> None:
    go = tmp_path / "go"
    async with make_pool() as pool, anyio.create_task_group() as tasks:
        for _ in range(WorkerLimits().workers):
            tasks.start_soon(pool.call, Engine.wait_for, str(go))
        waiting = [asyncio.create_task(pool.call(Engine.echo, n)) for n in range(10)]
        await all_workers_run(pool)
        for task in waiting[::2]:
            task.cancel()
        await anyio.to_thread.run_sync(go.touch)
        assert [await task for task in waiting[1::2]] == [[n] for n in range(1, 10, 2)]


async def test_early_doubled_and_unasked_answers_are_not_heard(pool: WorkerPool) -> None:
    assert await pool.call(Engine.echo, "first") == ["first"]
    assert await pool.call(Engine.answer_before_and_twice, 2, "early") == "early"
    assert await pool.call(Engine.echo, "next") == ["next"]
    assert len(pool.pids) == 1


async def test_a_worker_killed_in_a_call_is_an_unknown_outcome_and_is_replaced(
    pool: WorkerPool, tmp_path: Path
) -> None:
    pid = await pool.call(Engine.pid)
    call = asyncio.create_task(pool.call(Engine.wait_for, str(tmp_path / "never")))
    await asyncio.sleep(0)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(UnknownOutcomeError) as caught:
        await call
    assert "died" in caught.value.why
    assert await pool.call(Engine.pid) != pid


async def test_a_worker_that_dies_while_nobody_uses_it_is_replaced(pool: WorkerPool) -> None:
    pid = await pool.call(Engine.pid)
    os.kill(pid, signal.SIGKILL)
    while pool.pids or pool.hung:  # noqa: ASYNC110 - the kernel reports it
        await asyncio.sleep(0.001)
    assert await pool.call(Engine.pid) != pid


@pytest.mark.parametrize("seed", range(4))
async def test_callers_that_come_go_and_kill_at_random_leave_every_worker_free(
    pool: WorkerPool, seed: int
) -> None:
    chance = random.Random(seed)
    answers: dict[int, object] = {}

    async def caller(number: int, turns: int) -> None:
        async with pool.lease(transfer=bool(number % 3)) as worker:
            worker.at_end(Engine.greet)
            for _ in range(turns):
                answers[number] = await worker.call(Engine.echo, number)

    async def life(number: int) -> None:
        await asyncio.sleep(chance.random() / 50)
        with anyio.move_on_after(chance.random() / 20 if number % 2 else None):
            try:
                await (pool.call(Engine.die) if number % 23 == 0 else caller(number, number % 5))
            except (UnknownOutcomeError, TransientError, ThrottledError):
                answers.pop(number, None)

    async with anyio.create_task_group() as tasks:
        for number in range(150):
            tasks.start_soon(life, number)
    assert answers == {number: [number] for number in answers}
    assert answers
    while pool.hung or len(pool._idle) < len(pool.pids):  # noqa: ASYNC110 - last calls end
        await asyncio.sleep(0.001)
    assert not pool._waiters
    assert not pool._leased
    assert await pool.call(Engine.echo, "on") == ["on"]


async def test_a_call_that_kills_its_worker_is_an_unknown_outcome(pool: WorkerPool) -> None:
    with pytest.raises(UnknownOutcomeError):
        await pool.call(Engine.die)
    assert await pool.call(Engine.echo, 1) == [1]


async def test_a_lease_whose_worker_was_lost_says_that_nothing_was_sent(pool: WorkerPool) -> None:
    async with pool.lease() as worker:
        with pytest.raises(UnknownOutcomeError):
            await worker.call(Engine.die)
        with pytest.raises(TransientError) as caught:
            await worker.call(Engine.echo, 1)
        assert "not sent" in caught.value.what


@pytest.mark.parametrize(
    "factory, why",
    [
        ("tests.support.worker_engine:broken", "on purpose"),
        ("tests.support.worker_engine:missing", "missing"),
        ("tests.support.no_such_module:x", "no_such_module"),
    ],
)
async def test_an_engine_that_cannot_be_made_is_a_passing_error_with_the_cause(
    factory: str, why: str
) -> None:
    async with make_pool(factory) as pool:
        for _ in range(2):
            with pytest.raises(TransientError) as caught:
                await pool.call(Engine.echo, 1)
            assert why in caught.value.why


async def test_a_pool_that_is_closed_refuses_and_ends_what_waits(tmp_path: Path) -> None:
    pool = make_pool()
    async with pool:
        calls = [
            asyncio.create_task(pool.call(Engine.wait_for, str(tmp_path / "never")))
            for _ in range(5)
        ]
        await all_workers_run(pool)
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} <= {UnknownOutcomeError, TransientError}
    with pytest.raises(TransientError):
        await pool.call(Engine.echo, 1)


async def test_a_request_that_finds_every_worker_busy_is_refused_unsent(tmp_path: Path) -> None:
    go = tmp_path / "go"
    limits = WorkerLimits(workers=1, deadline_s=0.02, start_s=120.0, buffer_bytes=SMALL)
    engine = EngineSpec(factory=FACTORY)
    async with WorkerPool("toy", engine, clock=VirtualClock(), limits=limits) as pool:
        async with pool.lease(deadline_s=120.0) as worker, anyio.create_task_group() as tasks:
            tasks.start_soon(worker.call, Engine.wait_for, str(go))
            with pytest.raises(ThrottledError):
                await pool.call(Engine.echo, 1)
            await anyio.to_thread.run_sync(go.touch)
        async with pool.lease(deadline_s=120.0) as worker:
            assert await worker.call(Engine.echo, 1) == [1]


async def test_a_thousand_requests_leak_no_descriptor(pool: WorkerPool) -> None:
    await asyncio.gather(*(pool.call(Engine.echo, n) for n in range(30)))
    before = await descriptors()
    for turn in range(1000):
        call = asyncio.create_task(pool.call(Engine.echo, turn))
        if turn % 3 == 1:
            await asyncio.sleep(0)
            call.cancel()
        await asyncio.wait([call])
        if turn % 3 == 2:
            with pytest.raises(WeightctlError):
                await pool.call(Engine.fail, "busy")
    assert await descriptors() == before
    assert len(pool.pids) <= WorkerLimits().workers


async def test_lost_workers_and_closed_pools_leak_no_descriptor() -> None:
    counts = []
    for _ in range(12):
        async with make_pool() as pool:
            for _ in range(2):
                with pytest.raises(UnknownOutcomeError):
                    await pool.call(Engine.die)
        counts.append(await descriptors())
    assert len(set(counts[1:])) == 1
