"""Cases of callers who go at any await.  Layer: conformance.

A call is cancelled at its first await, then at its second, and so on until it ends before it could
be: each time once before what it waits for has happened, and once when it has and only the answer
is lost.  By `Task.cancel`, which also `asyncio.timeout` uses and which no shield holds off.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from functools import partial
from typing import Any, ClassVar

import anyio
import pytest

from weightctl.adapters.conformance.grades import Grade
from weightctl.adapters.conformance.suite.cases import TierCases
from weightctl.adapters.conformance.suite.harness import TierHarness
from weightctl.adapters.conformance.suite.material import (
    GROUP,
    drop_item,
    fence,
    item_of,
    kinds,
    member_of,
    members_of,
    read_all,
    states,
    store,
    store_one,
)
from weightctl.controller.core.observation import MemberState
from weightctl.controller.ports import DropItem, Outcome, Tier

ABSENT, COMPLETE = MemberState.ABSENT, MemberState.COMPLETE
CONTENT = b"content"
AWAITS_MAX = 12
"""At which a call is cancelled; those behind are like those before."""
PATIENCE_S = 180.0
"""Bound of a wait for what a cancelled call left to a worker."""


class _CancelledAt:
    """Awaits `work` and cancels its task at await number `await_number`."""

    reached = False
    """Whether there was such an await."""

    def __init__(self, work: Awaitable[object], await_number: int, *, answered: bool) -> None:
        self._inner = work.__await__()
        self._left = await_number
        self._answered = answered

    def __await__(self) -> Generator[Any, Any, None]:
        task = asyncio.current_task()
        assert task is not None
        step: Callable[[], object] = partial(next, self._inner)
        while True:
            try:
                wanted: Any = step()
            except StopIteration:
                return
            self._left -= 1
            self.reached |= not self._left
            if not self._left and self._answered and wanted is not None:
                wanted.add_done_callback(lambda _: task.cancel())
            elif not self._left:
                task.cancel()
            try:
                yield wanted
            except BaseException as error:  # noqa: BLE001 - it is the call's
                step = partial(self._inner.throw, error)
            else:
                step = partial(next, self._inner)


async def cancelled(work: Awaitable[object], await_number: int, *, answered: bool) -> bool:
    """Whether the call was cancelled there; False: it ended before.  Raises what it raised.

    AssertionError where it was cancelled and answers all the same: who cancelled it, a deadline or
    a task group, would wait for what has ended.
    """
    work_at = _CancelledAt(work, await_number, answered=answered)

    async def run() -> None:
        await work_at

    task = asyncio.ensure_future(run())
    with anyio.fail_after(PATIENCE_S):
        await asyncio.wait([task])
    if task.cancelled():
        return True
    task.result()
    assert not work_at.reached, f"cancelled at await {await_number}, it answered all the same"
    return False


class ContractOfCancellation(TierCases):
    """It may have happened or not, nothing is held, and the next call works."""

    grade = Grade.SILVER
    awaits: ClassVar[int] = AWAITS_MAX
    """At how many a call is cancelled; lowered by runners of slow media."""

    @pytest.mark.parametrize("call", ["observe", "inventory", "capacity"])
    async def test_a_look_cancelled_at_any_await_changes_nothing(
        self, tier: Tier, call: str
    ) -> None:
        member = await store_one(tier, "payload", CONTENT)
        looks: dict[str, Callable[[], Awaitable[object]]] = {
            "observe": lambda: tier.observe(members_of([member]), detail=[0]),
            "inventory": tier.inventory,
            "capacity": tier.capacity,
        }
        before = await tier.capacity()
        for number in range(1, self.awaits + 1):
            ended = [
                not await cancelled(looks[call](), number, answered=answered)
                for answered in (False, True)
            ]
            with anyio.fail_after(PATIENCE_S):
                await looks[call]()
                assert await states(tier, member) == [COMPLETE]
            if all(ended):
                break
        with anyio.fail_after(PATIENCE_S):
            assert [item.key for item in (await tier.inventory())[GROUP]] == ["payload"]
            assert (await tier.capacity()).used_bytes == before.used_bytes
            assert await read_all(tier, member) == CONTENT
            item = await drop_item(tier, member)
            assert kinds(await _settled(tier, [item], hide=False)) == ["Done"]

    @pytest.mark.parametrize("call", ["store", "verify", "open"])
    async def test_a_cancelled_call_ends_as_cancelled(self, tier: Tier, call: str) -> None:
        stored = await store_one(tier, "payload", CONTENT)
        for number in range(1, self.awaits + 1):
            ended = []
            for answered in (False, True):
                item = item_of(member_of(f"key-{number}-{answered}", CONTENT), CONTENT)
                calls: dict[str, Callable[[], Awaitable[object]]] = {
                    "store": partial(tier.store, [item], fence()),
                    "verify": partial(tier.verify, [stored]),
                    "open": partial(read_all, tier, stored),
                }
                ended.append(not await cancelled(calls[call](), number, answered=answered))
            if all(ended):
                break
        assert await read_all(tier, stored) == CONTENT

    @pytest.mark.parametrize("call", ["drop", "quarantine"])
    async def test_a_removal_cancelled_at_any_await_is_before_or_after(
        self, tier: Tier, call: str
    ) -> None:
        hide = call == "quarantine"
        act = tier.quarantine if hide else tier.drop
        numbers = range(1, self.awaits + 1)
        contents = {f"key-{number}-{end}": CONTENT for number in numbers for end in range(2)}
        members = await store(tier, contents)
        items = [await drop_item(tier, member) for member in members]
        left = iter(items)
        for number in numbers:
            ended = []
            for answered in (False, True):
                item = next(left)
                gone = await cancelled(act([item], fence()), number, answered=answered)
                ended.append(not gone)
                assert (await states(tier, item.member))[0] in (ABSENT, COMPLETE)
            if all(ended):
                break
        # The rest all at once: where a replica is leased for a while, that is waited for once.
        outcomes = kinds(await _settled(tier, items, hide=hide))
        if hide and set(outcomes) == {"Permanent"}:
            pytest.skip("nothing can be quarantined")
        assert set(outcomes) <= {"Done", "NoOp"}
        assert await states(tier, *members) == [ABSENT] * len(items)
        await store(tier, contents)
        assert [await read_all(tier, member) for member in members] == [CONTENT] * len(items)
        for named in (items, [await drop_item(tier, member) for member in members]):
            outcomes = kinds(await _settled(tier, named, hide=False))
            assert set(outcomes) <= {"Done", "NoOp", "Conflict"}
        assert await states(tier, *members) == [ABSENT] * len(items)
        assert not await tier.inventory()

    async def test_entering_cancelled_at_any_await_can_be_repeated(
        self, harness: TierHarness
    ) -> None:
        for number in range(1, self.awaits + 1):
            ended = []
            for answered in (False, True):
                tier = harness.tier()
                gone = await cancelled(tier.__aenter__(), number, answered=answered)
                ended.append(not gone)
                if not gone:
                    await tier.__aexit__(None, None, None)
            with anyio.fail_after(PATIENCE_S):
                async with harness.tier() as tier:
                    member = await store_one(tier, f"key-{number}", CONTENT)
                    assert await states(tier, member) == [COMPLETE]
                    item = await drop_item(tier, member)
                    assert kinds(await tier.drop([item], fence())) == ["Done"]
            if all(ended):
                break


async def _settled(tier: Tier, items: Sequence[DropItem], *, hide: bool) -> Sequence[Outcome]:
    """The outcomes of removing them, once none is Busy with what a cancelled call left."""
    act = tier.quarantine if hide else tier.drop
    with anyio.fail_after(PATIENCE_S):
        # No event tells when a worker process is done.
        while "Busy" in kinds(outcomes := await act(items, fence())):  # noqa: ASYNC110
            await anyio.sleep(0.01)
    return outcomes
