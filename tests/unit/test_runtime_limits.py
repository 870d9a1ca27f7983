"""Bandwidth and admission under a virtual clock."""

import asyncio
from collections.abc import Sequence

import anyio
import pytest

from tests.support.virtual_time import VirtualClock, settle
from weightctl.controller.ports import Limiter
from weightctl.controller.runtime.admission import Admission, Ticket, TierLimits, WorkClass
from weightctl.controller.runtime.limits import JointLimiter, TokenBucket

MB = 1_000_000


async def flow(clock: VirtualClock, seconds: float, streams: Sequence[tuple[Limiter, int]]) -> int:
    """Bytes that the streams, each (limiter, piece size), move in so many seconds."""
    moved = [0]

    async def stream(limiter: Limiter, piece_bytes: int) -> None:
        while True:
            await limiter.charge(piece_bytes)
            moved[0] += piece_bytes

    async with anyio.create_task_group() as group:
        for limiter, piece_bytes in streams:
            group.start_soon(stream, limiter, piece_bytes)
        await clock.advance(seconds)
        group.cancel_scope.cancel()
    return moved[0]


@pytest.mark.parametrize("rate", [28 * MB, 100 * MB, 1000 * MB])
@pytest.mark.parametrize("streams", [1, 4])
async def test_bandwidth_stays_within_three_per_cent_over_ten_seconds(
    rate: int, streams: int
) -> None:
    clock = VirtualClock()
    bucket = TokenBucket(clock, rate)
    clock.jump(100)  # a long idle time must not be made up for
    moved = await flow(clock, 10.0, [(bucket, 8 << 20)] * streams)
    assert moved == pytest.approx(rate * 10, rel=0.03)


async def test_both_ends_of_a_transfer_are_charged() -> None:
    clock = VirtualClock()
    slow, fast = TokenBucket(clock, 10 * MB), TokenBucket(clock, 100 * MB)
    joint = JointLimiter([fast, slow])
    moved = await flow(clock, 10.0, [(joint, MB)])
    assert moved == pytest.approx(100 * MB, rel=0.03)
    assert abs(slow.charged_bytes - fast.charged_bytes) <= MB


async def test_a_new_rate_holds_at_once_even_for_who_waits() -> None:
    clock = VirtualClock()
    bucket = TokenBucket(clock, 1.0)
    paid = asyncio.create_task(bucket.charge(MB))
    await clock.advance(5)
    assert not paid.done()
    bucket.set_rate(MB)
    await clock.advance(1.01)
    assert paid.done()
    bucket.set_rate(None)
    await asyncio.wait_for(bucket.charge(10**15), 1)


async def test_a_cancelled_wait_pays_nothing_and_lets_the_next_one_go() -> None:
    clock = VirtualClock()
    bucket = TokenBucket(clock, 100.0)
    first = asyncio.create_task(bucket.charge(1000))
    second = asyncio.create_task(bucket.charge(100))
    await settle()
    first.cancel()
    await clock.advance(1.0)
    assert second.done()
    assert bucket.charged_bytes == 100


# --- admission ------------------------------------------------------------------------------------


class Yard:
    """Jobs that hold a place until they are told to end."""

    def __init__(self, **limits: TierLimits) -> None:
        self.admission = Admission(tuple(limits), limits)
        self.entered: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}
        self.tasks: list[asyncio.Task[None]] = []

    def ask(
        self,
        name: str,
        *tiers: str,
        work_class: WorkClass = WorkClass.EVICT,
        size_bytes: int = 0,
        owner: str = "",
    ) -> asyncio.Task[None]:
        ticket = Ticket(
            work_class=work_class, owner=owner or name, tiers=tiers, size_bytes=size_bytes
        )
        self.ends[name] = asyncio.Event()

        async def job() -> None:
            async with self.admission.place(ticket):
                self.entered.append(name)
                await self.ends[name].wait()

        self.tasks.append(asyncio.create_task(job()))
        return self.tasks[-1]

    async def end(self, *names: str) -> None:
        for name in names:
            self.ends[name].set()
        await settle()

    async def close(self) -> None:
        await self.end(*self.ends)
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for tier in self.admission._loads:
            assert self.admission.in_flight(tier) == (0, 0), "every place was given back"


async def test_no_more_batches_than_slots_at_either_end() -> None:
    yard = Yard(a=TierLimits(concurrency=2), b=TierLimits(concurrency=1))
    for number in range(4):
        yard.ask(f"j{number}", "a", "b")
    yard.ask("alone", "a")
    await settle()
    assert yard.entered == ["j0", "alone"]
    await yard.end("j0")
    assert yard.entered == ["j0", "alone", "j1"]
    await yard.close()


async def test_bytes_in_flight_are_bounded_and_a_huge_batch_goes_alone() -> None:
    yard = Yard(a=TierLimits(concurrency=9, bytes_in_flight=100))
    yard.ask("x", "a", size_bytes=60)
    yard.ask("y", "a", size_bytes=60)
    await settle()
    assert yard.entered == ["x"]
    await yard.end("x")
    yard.ask("huge", "a", size_bytes=1000)
    await settle()
    assert yard.entered == ["x", "y"]
    await yard.end("y")
    assert yard.entered == ["x", "y", "huge"]
    await yard.close()


async def test_every_class_gets_its_share_under_the_load_of_another() -> None:
    yard = Yard(a=TierLimits(concurrency=4))
    for number in range(20):
        yard.ask(f"r{number}", "a", work_class=WorkClass.REHYDRATE, owner="busy")
    yard.ask("v", "a", work_class=WorkClass.VERIFY)
    yard.ask("d", "a", work_class=WorkClass.DELETE)
    await settle()
    assert yard.entered == ["r0", "r1", "r2", "r3"]
    await yard.end("r0")
    await yard.end("r1")
    assert set(yard.entered[4:6]) == {"v", "d"}, "an unserved class goes before a served one"
    await yard.close()


async def test_revisions_of_one_class_take_turns() -> None:
    yard = Yard(a=TierLimits(concurrency=1))
    for number in range(3):
        yard.ask(f"big{number}", "a", owner="big")
    yard.ask("small", "a", owner="small")
    await settle()
    await yard.end("big0")
    assert yard.entered == ["big0", "small"]
    await yard.close()


async def test_a_batch_that_needs_two_busy_tiers_is_not_passed_over_for_ever() -> None:
    yard = Yard(a=TierLimits(concurrency=1), b=TierLimits(concurrency=1))
    yard.ask("a-first", "a", owner="a")
    yard.ask("b-first", "b", owner="b")
    yard.ask("both", "a", "b", owner="c")
    for number in range(20):
        yard.ask(f"a{number}", "a", owner=f"oa{number}")
        yard.ask(f"b{number}", "b", owner=f"ob{number}")
    await settle()
    for _ in range(30):
        await yard.end(*[name for name in yard.entered if not yard.ends[name].is_set()][:1])
    assert "both" in yard.entered
    await yard.close()


async def test_a_cancelled_wait_and_a_cancelled_job_give_their_places_back() -> None:
    yard = Yard(a=TierLimits(concurrency=1))
    holder = yard.ask("holder", "a")
    waiter = yard.ask("waiter", "a")
    yard.ask("next", "a")
    await settle()
    waiter.cancel()
    await settle()
    assert yard.admission.waiting_count == 1
    holder.cancel()
    await settle()
    assert yard.entered == ["holder", "next"]
    await yard.close()


async def test_new_limits_let_more_in_at_once() -> None:
    yard = Yard(a=TierLimits(concurrency=1))
    yard.ask("x", "a")
    yard.ask("y", "a")
    await settle()
    yard.admission.set_limits({"a": TierLimits(concurrency=2)})
    await settle()
    assert yard.entered == ["x", "y"]
    await yard.close()
