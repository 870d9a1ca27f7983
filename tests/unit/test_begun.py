"""A task that foreign code begins cannot end the process."""

import asyncio
import signal
from contextvars import Context, copy_context

import pytest

from weightctl.controller.runtime.begun import EndedError, contained
from weightctl.controller.runtime.holding import Owner, running

OWNER = Owner(name="bad", plugin="bad_tiers:Bad")


async def ends(error: BaseException) -> None:
    await asyncio.sleep(0)
    raise error


async def begins(error: BaseException) -> asyncio.Task[None]:
    """In a task, so that what it begins is of the second generation."""
    return asyncio.create_task(ends(error))


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
async def test_what_would_end_the_process_ends_only_the_task(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signal, "getsignal", lambda number: None)  # no Ctrl-C comes from Python
    with contained():
        with running(OWNER):
            first = asyncio.create_task(ends(error))
            context = copy_context()
            second = asyncio.create_task(begins(error))
        third = asyncio.create_task(ends(error), context=context)
        for task in (first, await second, third):
            with pytest.raises(EndedError, match=r"tier bad \(plugin bad_tiers:Bad\) began raised"):
                await task


async def test_a_task_of_weightctl_s_own_is_begun_as_ever() -> None:
    async def own() -> int:
        return 1

    former = asyncio.get_running_loop().get_task_factory()
    with contained():
        for context in (None, Context()):
            work = own()
            task = asyncio.create_task(work, context=context, name="own")
            assert (task.get_coro(), task.get_name()) == (work, "own")
            assert await task == 1
    assert asyncio.get_running_loop().get_task_factory() is former


async def test_what_else_it_raises_and_its_end_are_as_ever() -> None:
    with contained():
        with running(OWNER):
            fails = asyncio.create_task(ends(ValueError("x")))
            sleeps = asyncio.create_task(asyncio.sleep(3600))
        with pytest.raises(ValueError, match="x"):
            await fails
        await asyncio.wait([sleeps], timeout=0)
        sleeps.cancel()
        await asyncio.wait([sleeps])
        assert sleeps.cancelled()
