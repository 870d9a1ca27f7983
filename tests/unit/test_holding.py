"""What holds up the loop is interrupted where it is, and nothing else ever is."""

import asyncio
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

import anyio
import pytest

from weightctl.controller.clock import SystemClock
from weightctl.controller.runtime import holding
from weightctl.controller.runtime.holding import HeldUpError, Owner, Watch, running, watched
from weightctl.controller.runtime.turns import Turns

LIMIT_S = 0.1
Ended = list[tuple[Owner, str]]


@pytest.fixture
def ended() -> Ended:
    return []


@contextmanager
def watching(ended: Ended) -> Iterator[None]:
    """As in a process of its own: here the tests' thread is the main one."""
    with watched(LIMIT_S, lambda owner, stack: ended.append((owner, stack))):
        yield


async def driven(owner: Owner, work: Awaitable[object]) -> object:
    return await Turns(
        lambda: work,
        owner=owner,
        clock=SystemClock(),
        limit_s=60.0,
        held=lambda _: None,
        left=lambda: None,
    )


async def spins() -> None:
    while True:
        pass


async def spins_after_a_while() -> None:
    await asyncio.sleep(0.01)
    while True:
        pass


@pytest.mark.parametrize("work", [spins, spins_after_a_while])
async def test_an_endless_loop_is_ended_where_it_is(
    work: Callable[[], Awaitable[None]], ended: Ended
) -> None:
    owner = Owner(name="bad")
    with watching(ended):
        with pytest.raises(HeldUpError, match=f"test_holding.py:.* in {work.__name__}"):
            await driven(owner, work())
        await asyncio.sleep(2 * LIMIT_S)
    assert len(owner.places) == 1
    assert not ended


async def test_a_task_that_it_has_begun_is_ended_too(ended: Ended) -> None:
    owner = Owner(name="bad")
    tasks: list[asyncio.Task[None]] = []

    async def begin() -> None:
        tasks.append(asyncio.get_running_loop().create_task(spins_after_a_while()))

    with watching(ended):
        await driven(owner, begin())
        with anyio.fail_after(240):
            await asyncio.wait(tasks)
    assert isinstance(tasks[0].exception(), HeldUpError)
    assert len(owner.places) == 1


async def test_what_runs_for_nobody_is_left_alone(ended: Ended) -> None:
    with watching(ended):
        _compute(3 * LIMIT_S)
    assert not ended


async def test_the_innermost_owner_is_the_one_to_blame(ended: Ended) -> None:
    outer, inner = Owner(name="outer"), Owner(name="inner")

    async def asks() -> None:
        with suppress(HeldUpError):
            await driven(inner, spins())
        await asyncio.sleep(0)

    with watching(ended):
        await driven(outer, asks())
    assert len(inner.places) == 1
    assert not outer.places


async def test_what_cannot_be_interrupted_ends_the_process_by_name(ended: Ended) -> None:
    owner = Owner(name="stubborn")

    async def refuses() -> None:
        while not ended:
            try:
                _spin(ended)
            except BaseException:  # noqa: BLE001 - that is its kind
                continue

    with watching(ended):
        await driven(owner, refuses())
    assert [who.name for who, _ in ended] == ["stubborn"]
    assert "in refuses" in ended[0][1]
    assert len(owner.places) >= 2


async def test_a_synchronous_piece_of_it_is_ended_too(ended: Ended) -> None:
    owner = Owner(name="bad")
    with watching(ended), pytest.raises(HeldUpError):
        _sync(owner)
    assert len(owner.places) == 1


def _sync(owner: Owner) -> None:
    with running(owner):
        while True:
            pass


def test_a_thread_other_than_the_main_one_watches_nothing() -> None:
    found: list[object] = []

    async def look() -> None:
        with watched(LIMIT_S, lambda *_: None):
            found.append([one.name for one in threading.enumerate()])

    thread = threading.Thread(target=lambda: asyncio.run(look()))
    thread.start()
    thread.join()
    assert "weightctl-watch" not in str(found)


async def test_a_late_signal_finds_another_turn_and_does_nothing(ended: Ended) -> None:
    owner = Owner(name="innocent")
    with Watch(60.0, lambda *_: None) as watch:
        watch._target = watch._runs()
        await driven(owner, _signalled())
    assert not owner.places


async def _signalled() -> None:
    signal.raise_signal(holding.SIGNAL)


def _spin(ended: Ended) -> None:
    while not ended:
        pass


def _compute(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
