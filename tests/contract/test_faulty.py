"""The fault injector keeps the contract while nothing goes wrong; each fault is what it says."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.contract.test_reference import ReferenceHarness
from weightctl.adapters.conformance.faults import ERRORS, Call, Fault, FaultyTier, Kind
from weightctl.adapters.conformance.reference import ReferenceMedium, ReferenceTier
from weightctl.adapters.conformance.suite.material import (
    fence,
    instance,
    item_of,
    kinds,
    member_of,
    members_of,
    read_all,
    states,
    store_one,
)
from weightctl.adapters.conformance.suite.tier_suite import TierSuite
from weightctl.controller.clock import SystemClock
from weightctl.controller.core.observation import Member, MemberState
from weightctl.controller.errors import TransientError
from weightctl.controller.ports import DropItem, Tier

ABSENT, COMPLETE, UNKNOWN = MemberState.ABSENT, MemberState.COMPLETE, MemberState.UNKNOWN
CONTENT = b"content"


def spawn(work: Coroutine[Any, Any, None]) -> object:
    return asyncio.get_running_loop().create_task(work)


class FaultyHarness(ReferenceHarness):
    """The reference tier behind the injector, without a fault."""

    def tier(self, *, capacity_bytes: int | None = None, read_only: bool = False) -> Tier:
        inner = super().tier(capacity_bytes=capacity_bytes, read_only=read_only)
        return FaultyTier(inner, lambda *_: None, clock=SystemClock(), spawn=spawn)


class TestFaulty(TierSuite):
    answers_s = 0.5

    @pytest.fixture
    def harness(self, tmp_path: Path) -> FaultyHarness:
        return FaultyHarness(tmp_path)


class Wrapped:
    """A reference tier behind the injector; `faults` are used up in order, one for each call."""

    def __init__(self, *, detached: bool = False) -> None:
        self.medium = ReferenceMedium()
        self.inner = ReferenceTier("tier", self.medium)
        self.other = ReferenceTier("other", ReferenceMedium(epoch="other"))
        self.faults: dict[Call, list[Fault | None]] = {}
        self.tasks: list[asyncio.Task[None]] = []
        self.tier = FaultyTier(
            self.inner,
            self._next,
            clock=SystemClock(),
            spawn=lambda work: self.tasks.append(asyncio.ensure_future(work)),
            detached=detached,
            foreign=self.other,
            damage=self._damage,
        )

    def _next(self, tier: str, call: Call) -> Fault | None:
        assert tier == "tier"
        waiting = self.faults.get(call, [])
        return waiting.pop(0) if waiting else None

    def _damage(self, member: Member, kind: str) -> None:
        stored = self.medium.seen(member)
        assert stored is not None
        stored.content[0] ^= 1

    def will(self, call: Call, kind: Kind, amount: float = 0) -> None:
        self.faults.setdefault(call, []).append(Fault(kind=kind, amount=amount))

    async def come_to_rest(self) -> None:
        await asyncio.gather(*self.tasks)


@asynccontextmanager
async def wrapped(*, detached: bool = False) -> AsyncIterator[Wrapped]:
    made = Wrapped(detached=detached)
    async with made.tier:
        yield made


PAYLOADS = [member_of(key, CONTENT) for key in ("a", "b", "c")]


async def store_all(tier: Tier, members: Sequence[Member] = PAYLOADS) -> list[str]:
    return kinds(await tier.store([item_of(member, CONTENT) for member in members], fence()))


@pytest.mark.parametrize(
    "kind, answers, there",
    [
        (Kind.PART, ["Done"], 1),
        (Kind.CUT, ["Done", "Done"], 3),
        (Kind.SURPLUS, ["Done", "Done", "Done", "Done"], 3),
        (Kind.SHUFFLE, ["Done", "Done", "Done"], 3),
        (Kind.FALSE_DONE, ["Done", "Done", "Done"], 0),
        (Kind.BUSY, ["Busy", "Busy", "Busy"], 0),
        (Kind.NO_SPACE, ["NoCapacity", "NoCapacity", "NoCapacity"], 0),
        (Kind.FLIP, ["Corrupt", "Corrupt", "Corrupt"], 0),
        (Kind.DOUBLE, ["Done", "Done", "Done"], 3),
        (Kind.DELAY, ["Done", "Done", "Done"], 3),
    ],
)
async def test_an_answer_goes_wrong(kind: Kind, answers: list[str], there: int) -> None:
    async with wrapped() as made:
        made.will(Call.STORE, kind)
        assert await store_all(made.tier) == answers
        await made.come_to_rest()
        assert (await states(made.inner, *PAYLOADS)).count(COMPLETE) == there


@pytest.mark.parametrize("kind", [Kind.LOSE_REQUEST, Kind.LOSE_ANSWER, Kind.LATE])
async def test_no_answer_comes(kind: Kind) -> None:
    async with wrapped() as made:
        made.will(Call.STORE, kind)
        with anyio.move_on_after(0.05) as scope:
            await store_all(made.tier)
        assert scope.cancelled_caught
        await made.come_to_rest()
        happened = kind is not Kind.LOSE_REQUEST
        assert (await states(made.inner, *PAYLOADS)).count(COMPLETE) == 3 * happened


@pytest.mark.parametrize("number", range(len(ERRORS)))
@pytest.mark.parametrize("kind", [Kind.ERROR, Kind.FAIL_AFTER])
async def test_every_class_of_error_arrives_before_or_after_the_act(
    kind: Kind, number: int
) -> None:
    async with wrapped() as made:
        made.will(Call.STORE, kind, number)
        with pytest.raises(type(ERRORS[number]()), match="injected"):
            await store_all(made.tier)
        happened = kind is Kind.FAIL_AFTER
        assert (await states(made.inner, *PAYLOADS)).count(COMPLETE) == 3 * happened


async def test_what_is_stored_may_rot_unnoticed_until_it_is_read_back() -> None:
    async with wrapped() as made:
        made.will(Call.STORE, Kind.ROT)
        assert await store_all(made.tier, PAYLOADS[:1]) == ["Done"]
        assert await states(made.tier, PAYLOADS[0]) == [COMPLETE]
        assert kinds(await made.tier.verify(PAYLOADS[:1])) == ["Corrupt"]


async def test_a_stale_look_is_as_it_was_so_many_changes_ago() -> None:
    member = PAYLOADS[0]
    async with wrapped() as made:
        assert await states(made.tier, member) == [ABSENT]
        await store_all(made.tier, [member])
        assert await states(made.tier, member) == [COMPLETE]
        first = await instance(made.tier, member)
        await made.tier.drop([DropItem(member=member, instance_id=first)], fence())
        assert await states(made.tier, member) == [ABSENT]
        await store_all(made.tier, [member])
        assert await instance(made.tier, member) != first
        for depth, expected in ((1, ABSENT), (2, COMPLETE), (3, ABSENT), (9, ABSENT)):
            made.will(Call.OBSERVE, Kind.STALE, depth)
            assert await states(made.tier, member) == [expected]
        made.will(Call.OBSERVE, Kind.STALE, 2)
        assert await instance(made.tier, member) == first


async def test_a_look_lies_or_says_nothing() -> None:
    member = PAYLOADS[0]
    members = members_of([member])
    async with wrapped() as made:
        await store_all(made.tier, [member])
        honest = await made.tier.observe(members)
        made.will(Call.OBSERVE, Kind.EMPTY)
        empty = await made.tier.observe(members)
        assert (list(empty.states), empty.epoch) == ([ABSENT], honest.epoch)
        made.will(Call.OBSERVE, Kind.WRONG_EPOCH)
        other = await made.tier.observe(members)
        assert other.states == honest.states
        assert other.epoch != honest.epoch
        made.will(Call.OBSERVE, Kind.UNKNOWN)
        assert list((await made.tier.observe(members)).states) == [UNKNOWN]
        made.will(Call.OBSERVE, Kind.FOREIGN)
        foreign = await made.tier.observe(members)
        assert (list(foreign.states), foreign.epoch) == ([ABSENT], "other")
        made.will(Call.OBSERVE, Kind.CUT)
        assert (await made.tier.observe(members)).states == b""
        made.will(Call.OBSERVE, Kind.SURPLUS)
        assert len((await made.tier.observe(members)).states) == 2
        made.will(Call.INVENTORY, Kind.EMPTY)
        assert await made.tier.inventory() == {}
        made.will(Call.CAPACITY, Kind.EMPTY)
        assert (await made.tier.capacity()).free_bytes == 0


async def test_a_reader_meets_errors_and_turned_bits() -> None:
    async with wrapped() as made:
        member = await store_one(made.tier, "a", CONTENT)
        made.will(Call.OPEN, Kind.ERROR)
        with pytest.raises(TransientError):
            await read_all(made.tier, member)
        made.will(Call.READ, Kind.ERROR)
        with pytest.raises(TransientError):
            await read_all(made.tier, member)
        made.will(Call.READ, Kind.FLIP)
        assert await read_all(made.tier, member) != CONTENT
        assert await read_all(made.tier, member) == CONTENT


async def test_a_detached_tier_carries_out_what_its_client_gave_up() -> None:
    async with wrapped(detached=True) as made:
        made.will(Call.STORE, Kind.DELAY, 0.0)
        task = asyncio.create_task(store_all(made.tier))
        await anyio.wait_all_tasks_blocked()
        task.cancel()
        await made.come_to_rest()
        assert await states(made.inner, *PAYLOADS) == [COMPLETE] * 3
        assert kinds(await made.tier.verify(PAYLOADS)) == ["Done"] * 3
