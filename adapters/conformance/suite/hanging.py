"""Cases of a medium that hangs: it takes what it is asked and gives no answer.  Layer: conformance.

The loop gives a look some seconds and then cancels it, and the tier may have a deadline of its own:
each call ends by one or the other.  Whatever a tier says meanwhile, it does not say what it cannot
know.  A harness that cannot let its medium hang skips these with a hint.

A short deadline is also that of the calls before and after the hang, and a machine may be slow:
they are made again for as long as their answers ask for that.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import ClassVar

import anyio
import pytest
from anyio import to_thread

from weightctl.adapters.conformance.grades import Grade
from weightctl.adapters.conformance.suite.cases import TierCases
from weightctl.adapters.conformance.suite.harness import TierHarness
from weightctl.adapters.conformance.suite.material import (
    drop_item,
    fence,
    item_of,
    kinds,
    member_of,
    members_of,
    read_all,
    states,
    store,
)
from weightctl.controller.core.observation import Member, MemberState, TierObservation
from weightctl.controller.errors import ReconcileError, TransientError, UnknownOutcomeError
from weightctl.controller.ports import DropItem, Outcome, StoreItem, Tier

UNKNOWN, ABSENT, COMPLETE = MemberState.UNKNOWN, MemberState.ABSENT, MemberState.COMPLETE
CONTENT = b"content"
UNANSWERED = frozenset({"Retry", "Unknown", "Permanent"})
"""Permanent: what the tier can never do, which it knows without its medium."""
ANSWERS_S = 10.0
"""What a call may take by itself before it is cancelled."""
UNDER_WAY_S = 0.1
"""After which a call has asked the medium."""
ENDS_S = 15.0
"""What a cancelled call may still take: at once, on a machine that is held up meanwhile."""
LEAVES_S = 180.0
PATIENCE_S = 180.0
"""What all may take after the medium goes on."""

_PAUSE_S = 0.05
_PASSING = frozenset({"Busy", "Retry", "Unknown"})
_HAPPENED = frozenset({"Done", "NoOp"})

Calls = Mapping[str, Callable[[], Awaitable[object]]]
Record = Callable[[str, object], None]


def _calls(tier: Tier, kept: Member, victim: DropItem, late: StoreItem) -> Calls:
    return {
        "observe": lambda: tier.observe(members_of([kept, late.member]), detail=[0]),
        "inventory": tier.inventory,
        "capacity": tier.capacity,
        "open": lambda: read_all(tier, kept),
        "verify": lambda: tier.verify([kept]),
        "store": lambda: tier.store([late], fence()),
        "drop": lambda: tier.drop([victim], fence()),
        "quarantine": lambda: tier.quarantine([victim], fence()),
    }


class ContractOfHangingMedia(TierCases):
    """A medium that hangs is UNKNOWN, holds up nobody, and loses nothing."""

    grade = Grade.SILVER
    answers_s: ClassVar[float] = ANSWERS_S
    """A runner whose tier has no deadline of its own may wait for less."""

    async def test_a_medium_that_hangs_is_unknown_and_right_afterwards(
        self, harness: TierHarness, record_property: Record
    ) -> None:
        _needs_hang(harness, record_property)
        said: dict[str, object] = {}
        async with harness.hasty_tier() as tier:
            kept, old = await _stored(tier, "kept"), await _stored(tier, "old")
            victim, late = await _drop_item(tier, old), item_of(member_of("late", CONTENT), CONTENT)
            calls = _calls(tier, kept, victim, late)

            async def ask(name: str) -> None:
                with anyio.move_on_after(self.answers_s):
                    try:
                        said[name] = await calls[name]()
                    except ReconcileError:
                        said[name] = None

            async with _hanging(harness):
                with anyio.fail_after(self.answers_s + ENDS_S):
                    async with anyio.create_task_group() as group:
                        for name in calls:
                            group.start_soon(ask, name)
            for name, answer in said.items():
                _assert_unanswered(name, answer)
            await _all_is_right(tier, kept, victim, late)

    async def test_a_call_is_cancelled_at_once_while_the_medium_hangs(
        self, harness: TierHarness, record_property: Record
    ) -> None:
        _needs_hang(harness, record_property)
        async with harness.tier() as tier:
            kept, old = await store(tier, {"kept": CONTENT, "old": CONTENT})
            victim, late = await drop_item(tier, old), item_of(member_of("late", CONTENT), CONTENT)
            calls = _calls(tier, kept, victim, late)
            scopes = {name: anyio.CancelScope() for name in calls}

            async def ask(name: str) -> None:
                with scopes[name], suppress(ReconcileError):
                    await calls[name]()

            async with _hanging(harness):
                tasks = {name: asyncio.ensure_future(ask(name)) for name in calls}
                await anyio.sleep(UNDER_WAY_S)
                for scope in scopes.values():
                    scope.cancel()  # as the loop does, which a shield holds off
                await asyncio.wait(tasks.values(), timeout=ENDS_S)
                still = [name for name, task in tasks.items() if not task.done()]
            await asyncio.gather(*tasks.values())
            assert not still, "cancelled, they went on waiting"
            await _all_is_right(tier, kept, victim, late)

    async def test_a_tier_is_left_and_entered_while_the_medium_hangs(
        self, harness: TierHarness, record_property: Record
    ) -> None:
        _needs_hang(harness, record_property)
        tier = harness.hasty_tier()
        await tier.__aenter__()
        kept = await _stored(tier, "kept")
        async with _hanging(harness):
            with anyio.move_on_after(UNDER_WAY_S):
                await tier.verify([kept])
            with anyio.fail_after(LEAVES_S):
                await tier.__aexit__(None, None, None)
            again = harness.hasty_tier()
            with anyio.fail_after(LEAVES_S):
                await again.__aenter__()
                with anyio.move_on_after(self.answers_s):
                    assert await states(again, kept) == [UNKNOWN]
        try:
            if again.profile.capabilities.persistent:
                await _answers(again, kept)
                assert await _read(again, kept) == CONTENT
        finally:
            await again.__aexit__(None, None, None)


def _needs_hang(harness: TierHarness, record_property: Record) -> None:
    if type(harness).hang is TierHarness.hang:
        record_property("hint", "not tried: a medium that hangs; give the harness `hang`, `resume`")
        pytest.skip("the harness has no `hang` for this medium")


@asynccontextmanager
async def _hanging(harness: TierHarness) -> AsyncIterator[None]:
    """The medium hangs for the length of the block."""
    await to_thread.run_sync(harness.hang)
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(harness.resume)


def _assert_unanswered(name: str, answer: object) -> None:
    match answer:
        case TierObservation():
            assert set(answer.states) == {UNKNOWN}, name
            assert not answer.epoch
            assert not answer.details
        case None:
            assert name in {"inventory", "capacity", "open"}
        case list() | tuple():
            assert set(kinds(answer)) <= UNANSWERED, (name, answer)
        case _:
            pytest.fail(f"{name} answered while the medium hung: {answer!r}")


async def _stored(tier: Tier, key: str) -> Member:
    member = member_of(key, CONTENT)
    assert await _ends(lambda: tier.store([item_of(member, CONTENT)], fence())) in _HAPPENED
    return member


async def _drop_item(tier: Tier, member: Member) -> DropItem:
    """Naming the replica that a look shows."""
    while True:
        shown = (await tier.observe(members_of([member]), detail=[0])).details
        if shown:
            return DropItem(member=member, instance_id=shown[0].instance_id)
        await anyio.sleep(_PAUSE_S)


async def _read(tier: Tier, member: Member) -> bytes:
    """The replica, read again where that did not end in time."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            try:
                return await read_all(tier, member)
            except (TransientError, UnknownOutcomeError):
                await anyio.sleep(_PAUSE_S)


async def _answers(tier: Tier, *members: Member) -> None:
    """The medium goes on; until it has noticed, UNKNOWN is right and everything else is not."""
    with anyio.fail_after(PATIENCE_S):
        # No event tells when it has.
        while UNKNOWN in (seen := await states(tier, *members)):  # noqa: ASYNC110
            await anyio.sleep(_PAUSE_S)
    assert seen == [COMPLETE] * len(members)


async def _all_is_right(tier: Tier, kept: Member, victim: DropItem, late: StoreItem) -> None:
    """What was asked meanwhile has happened or not, and all of it can be asked again."""
    await _answers(tier, kept)
    assert await _read(tier, kept) == CONTENT
    assert await _ends(lambda: tier.drop([victim], fence())) in _HAPPENED
    assert await _ends(lambda: tier.store([late], fence())) in _HAPPENED
    assert await _stored(tier, victim.member.key) == victim.member
    members = [kept, victim.member, late.member]
    await _answers(tier, *members)
    assert await _ends(lambda: tier.verify(members[:1])) == "Done"
    assert await _ends(lambda: tier.verify(members[1:2])) == "Done"
    assert await _ends(lambda: tier.verify(members[2:])) == "Done"


async def _ends(act: Callable[[], Awaitable[Sequence[Outcome]]]) -> str:
    """The kind of the first outcome that does not ask to try again."""
    with anyio.fail_after(PATIENCE_S):
        while (kind := kinds(await act())[0]) in _PASSING:  # noqa: ASYNC110
            await anyio.sleep(_PAUSE_S)
    return kind
