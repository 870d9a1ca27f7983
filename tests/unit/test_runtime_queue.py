"""Work queue, timer and runner on a loop, under a virtual clock."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from tests.support.virtual_time import SeededEntropy, VirtualClock, settle
from weightctl.controller.core.backoff import Backoff
from weightctl.controller.errors import InvariantViolationError
from weightctl.controller.runtime.runner import Again, Failed, Finished, Next, Runner
from weightctl.controller.runtime.timer import Timer
from weightctl.controller.runtime.workqueue import (
    Priority,
    QueueClosedError,
    QueueOptions,
    WorkQueue,
)


class Rig:
    """A queue with its clock and a running timer."""

    def __init__(self, **options: int) -> None:
        self.clock = VirtualClock()
        self.timer = Timer(self.clock)
        backoff = Backoff(base_s=1.0, max_s=60.0, jitter=0.0)
        self.queue: WorkQueue[str] = WorkQueue(
            self.clock, SeededEntropy(), self.timer, QueueOptions(backoff=backoff, **options)
        )


@asynccontextmanager
async def rig(**options: int) -> AsyncIterator[Rig]:
    made = Rig(**options)
    async with anyio.create_task_group() as group:
        group.start_soon(made.timer.run)
        await settle()
        yield made
        group.cancel_scope.cancel()


async def test_a_delayed_key_is_claimed_at_its_time_and_not_before() -> None:
    async with rig() as r:
        claims: list[tuple[str, float]] = []

        async def claimer() -> None:
            key = await r.queue.claim()
            claims.append((key, r.clock.monotonic_s()))

        async with anyio.create_task_group() as group:
            group.start_soon(claimer)
            r.queue.add_after("a", 5.0)
            await r.clock.advance(4.9)
            assert claims == []
            await r.clock.advance(0.2)
        assert claims == [("a", 1005.0)]


async def test_the_earlier_of_two_delays_wins_and_an_immediate_add_supersedes_both() -> None:
    async with rig() as r:
        r.queue.add_after("a", 9.0)
        r.queue.add_after("a", 3.0)
        r.queue.add_after("a", 6.0)
        assert r.queue.next_due_s() == 1003.0
        r.queue.add("a")
        assert await r.queue.claim() == "a"
        r.queue.done("a")
        await r.clock.advance(20)
        assert not r.queue.has_due(), "the superseded delay does not ring a second time"


async def test_a_key_added_while_it_is_worked_on_gets_exactly_one_more_pass() -> None:
    async with rig() as r:
        r.queue.add("a")
        assert await r.queue.claim() == "a"
        for _ in range(3):
            r.queue.add("a")
        assert not r.queue.has_due(), "one pass per key at a time"
        r.queue.done("a")
        assert await r.queue.claim() == "a"
        r.queue.done("a")
        assert len(r.queue) == 0


async def test_fresh_work_overtakes_a_resync_of_many_keys_without_starving_it() -> None:
    async with rig(claims_per_lower=4) as r:
        for number in range(100):
            r.queue.add(f"resync-{number}", Priority.RESYNC)
        for number in range(9):
            r.queue.add(f"fresh-{number}")
        first = [await r.queue.claim() for _ in range(12)]
        assert [key for key in first if key.startswith("resync")] == [
            "resync-0",
            "resync-1",
            "resync-2",
        ]
        assert first[3] == "resync-0"


@pytest.mark.parametrize("victims", [[0], [1], [2], [0, 1], [0, 2], [1, 2]])
async def test_a_cancelled_claimer_takes_no_key_with_it(victims: list[int]) -> None:
    async with rig() as r:
        got: list[str] = []

        async def claimer() -> None:
            got.append(await r.queue.claim())

        tasks = [asyncio.create_task(claimer()) for _ in range(3)]
        await settle()
        r.queue.add("a")  # wakes one of them, which may be cancelled before it can run
        r.queue.add("b")
        for victim in victims:
            tasks[victim].cancel()
        await settle()
        left = 2 - len(got)
        assert left == max(0, len(victims) - 1), "each claimer that stays gets a key"
        assert r.queue.due_count(Priority.FRESH) == left
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_closing_ends_every_claimer() -> None:
    async with rig() as r:
        ended: list[bool] = []

        async def claimer() -> None:
            with pytest.raises(QueueClosedError):
                await r.queue.claim()
            ended.append(True)

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(claimer)
            await settle()
            r.queue.close()
        assert ended == [True] * 3


async def test_backoff_resets_on_success_or_a_new_generation_and_on_nothing_else() -> None:
    async with rig() as r:
        r.queue.add("a")
        delays: list[float] = []
        for generation in (1, 1, 1, 2, 2):
            r.queue.add("a")  # an event makes it due at once and does not reset the count
            await r.queue.claim()
            delays.append(r.queue.fail("a", generation))
            r.queue.done("a")
        assert delays == [1.0, 2.0, 4.0, 1.0, 2.0]
        r.queue.add("a")
        await r.queue.claim()
        r.queue.succeed("a")
        assert r.queue.fail("a", 2) == 1.0


async def test_a_full_queue_refuses_resync_and_gives_its_places_to_fresh_work() -> None:
    async with rig(keys_max=2) as r:
        assert r.queue.add("a", Priority.RESYNC)
        assert r.queue.add("b")
        assert not r.queue.add("c", Priority.RESYNC)
        assert r.queue.refused == 1
        assert r.queue.add("d")
        assert "a" not in r.queue
        assert not r.queue.add("e"), "every place is held by fresh work"
        assert r.queue.add("b"), "a known key is never refused"


async def test_the_heap_of_delays_stays_bounded_when_delays_are_superseded() -> None:
    async with rig() as r:
        for number in range(5000):
            r.queue.add_after("a", 1000.0 - number / 10)
            r.queue.add_after("b", 5000.0)
            r.queue.add("b")
            await r.queue.claim()
            r.queue.done("b")
        assert len(r.queue._delayed) < 200
        assert len(r.timer._heap) < 200


# --- runner ---------------------------------------------------------------------------------------


async def test_the_runner_never_works_on_one_key_twice_at_a_time() -> None:
    async with rig() as r:
        running: set[str] = set()
        passes: list[str] = []
        chance = random.Random(7)

        async def handle(key: str) -> Next:
            assert key not in running
            running.add(key)
            await asyncio.sleep(0)
            if chance.random() < 0.3:
                r.queue.add(key)
            await asyncio.sleep(0)
            running.remove(key)
            passes.append(key)
            return Finished()

        async with anyio.create_task_group() as group:
            group.start_soon(Runner(r.queue, handle, slots=4).run)
            for _ in range(50):
                for key in "abcdef":
                    r.queue.add(key)
                await asyncio.sleep(0)
            await settle(2000)
            assert len(r.queue) == 0
            r.queue.close()
        assert set(passes) == set("abcdef")


async def test_the_runner_requeues_as_the_pass_says() -> None:
    async with rig() as r:
        script: list[Next] = [
            Failed(generation=1),
            Failed(generation=1),
            Again(after_s=10, progressed=False),
            Failed(generation=1),
            Again(after_s=0),
            Failed(generation=1, at_least_s=7),
            Finished(),
        ]
        times: list[float] = []

        async def handle(key: str) -> Next:
            times.append(r.clock.monotonic_s() - 1000)
            return script[len(times) - 1]

        async with anyio.create_task_group() as group:
            group.start_soon(Runner(r.queue, handle, slots=2).run)
            r.queue.add("a")
            await r.clock.advance(100)
            r.queue.close()
        assert times == [0, 1, 3, 13, 17, 17, 24]
        assert len(r.queue) == 0


async def test_a_cancelled_pass_leaves_its_key_due() -> None:
    async with rig() as r:

        async def handle(key: str) -> Next:
            await anyio.sleep_forever()
            return Finished()

        async with anyio.create_task_group() as group:
            group.start_soon(Runner(r.queue, handle, slots=1).run)
            r.queue.add("a")
            await settle()
            assert r.queue.active_count == 1
            group.cancel_scope.cancel()
        assert r.queue.active_count == 0
        assert r.queue.has_due()
        assert r.queue.take() == "a"


async def test_an_error_of_the_handler_ends_the_runner_loudly_and_keeps_the_key() -> None:
    async with rig() as r:

        async def handle(key: str) -> Next:
            raise InvariantViolationError("broken")

        r.queue.add("a")
        with pytest.RaisesGroup(InvariantViolationError):
            await Runner(r.queue, handle, slots=1).run()
        assert r.queue.has_due()


async def test_closing_the_queue_lets_the_passes_under_way_finish() -> None:
    async with rig() as r:
        release = anyio.Event()
        finished: list[str] = []

        async def handle(key: str) -> Next:
            await release.wait()
            finished.append(key)
            return Finished()

        async with anyio.create_task_group() as group:
            group.start_soon(Runner(r.queue, handle, slots=1).run)
            r.queue.add("a")
            r.queue.add("b")
            await settle()
            r.queue.close()
            release.set()
        assert finished == ["a"]
        assert "b" in r.queue


# --- timer ----------------------------------------------------------------------------------------


async def test_the_timer_rings_in_order_and_not_when_cancelled() -> None:
    async with rig() as r:
        rung: list[str] = []
        r.timer.call_later(3, lambda: rung.append("c"))
        r.timer.call_later(1, lambda: rung.append("a"))
        gone = r.timer.call_later(2, lambda: rung.append("b"))
        gone.cancel()
        gone.cancel()
        await r.clock.advance(2.5)
        assert rung == ["a"]
        await r.clock.advance(1)
        assert rung == ["a", "c"]
        assert len(r.timer) == 0


async def test_a_deadline_cancels_only_what_takes_too_long() -> None:
    async with rig() as r:
        with r.timer.deadline(5) as scope:
            pass
        assert not scope.cancelled_caught
        late: list[bool] = []

        async def slow() -> None:
            with r.timer.deadline(5) as scope:
                await anyio.sleep_forever()
            late.append(scope.cancelled_caught)

        async with anyio.create_task_group() as group:
            group.start_soon(slow)
            await r.clock.advance(4.9)
            assert late == []
            await r.clock.advance(0.2)
        assert late == [True]


@pytest.mark.parametrize("failures", [1, 2, 3, 10, 10_000])
@pytest.mark.parametrize("chance", [0.0, 0.5, 0.999999])
def test_backoff_stays_within_its_bounds(failures: int, chance: float) -> None:
    backoff = Backoff(base_s=0.1, max_s=60.0, jitter=0.5)
    undisturbed_s = min(60.0, 0.1 * 2 ** min(failures - 1, 100))
    delay_s = backoff.delay_s(failures, chance)
    assert undisturbed_s * 0.5 < delay_s <= undisturbed_s
