"""What weightctl itself reads in Mooncake: its leases, its budget, and standing back for drops."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from tests.support.mooncake.fake import FakeMooncake, Paces, fake
from tests.support.mooncake.tiers import tier_of
from tests.support.virtual_time import VirtualClock
from weightctl.adapters.conformance.suite.material import (
    content_of,
    drop_item,
    fence,
    kinds,
    member_of,
    states,
    store,
)
from weightctl.adapters.mooncake.client.reads import (
    DROP_FORGOTTEN_S,
    LATE_S,
    NAP_S,
    READ_ON_LEASES,
    REST_S,
    STEPS,
    Reads,
)
from weightctl.adapters.mooncake.options import parse
from weightctl.adapters.mooncake.tier import MooncakeTier
from weightctl.controller.core.observation import Member, MemberState
from weightctl.controller.errors import ConfigError
from weightctl.controller.ports import Busy, Done

TTL_S = 10.0
RATE = 1_000_000
GROUP, OTHER = "weight:a", "weight:b"


def member(size_bytes: int = 0, group_id: str = GROUP) -> Member:
    return Member(group_id=group_id, key="k", size_bytes=size_bytes, sha256=bytes(32))


def reads() -> tuple[VirtualClock, Reads]:
    clock = VirtualClock()
    return clock, Reads(clock, TTL_S, RATE)


# --- leases ---


def test_a_lease_on_a_group_is_renewed_by_a_read_when_half_of_it_is_left() -> None:
    clock, ours = reads()
    ours.note(GROUP)
    taken_ms = clock.wall_ms()
    assert ours.leased_until_ms(GROUP) == taken_ms + TTL_S * 1000 + 1
    assert ours.leased_until_ms(OTHER) is None
    clock.jump(TTL_S * 0.4)
    ours.note(GROUP)
    assert ours.leased_until_ms(GROUP) == taken_ms + TTL_S * 1000 + 1 + LATE_S * 1000
    clock.jump(TTL_S * 0.2)
    ours.note(GROUP)
    assert ours.leased_until_ms(GROUP) == clock.wall_ms() + TTL_S * 1000 + 1
    assert ours.count == 3


def test_a_lease_that_has_not_run_out_when_it_should_is_asked_for_until_it_must_have() -> None:
    clock, ours = reads()
    ours.note(GROUP)
    clock.jump(TTL_S * 0.4)
    ours.note(GROUP)
    last_ms = clock.wall_ms() + TTL_S * 1000 + 1
    clock.jump(TTL_S * 0.7)
    asked = 0
    while (until_ms := ours.leased_until_ms(GROUP)) is not None:
        assert clock.wall_ms() < until_ms <= last_ms
        clock.jump((until_ms - clock.wall_ms()) / 1000)
        asked += 1
    assert asked <= STEPS
    assert clock.wall_ms() >= last_ms


# --- the budget ---


async def test_what_is_verified_takes_as_long_as_its_bytes_may() -> None:
    clock, ours = reads()
    started_s, verified = clock.monotonic_s(), 0

    async def verify() -> None:
        nonlocal verified
        for _ in range(5):
            assert await ours.may_verify(member(2 * RATE)) is None
            verified += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(verify)
        for due in range(5):
            await clock.advance(0 if due == 0 else 2.0)
            assert verified == due + 1
    assert clock.monotonic_s() - started_s == 8.0
    assert ours.verified_bytes == 10 * RATE


async def test_what_the_budget_does_not_allow_soon_is_busy_until_it_does() -> None:
    clock, ours = reads()
    large_s = NAP_S + 10
    assert await ours.may_verify(member(int(large_s) * RATE)) is None
    refused = await ours.may_verify(member(RATE))
    assert isinstance(refused, Busy)
    assert refused.until_ms == clock.wall_ms() + large_s * 1000 + 1
    clock.jump(large_s)
    assert await ours.may_verify(member(RATE)) is None
    assert ours.put_off == 1


@pytest.mark.parametrize("rate", ["1MiB", 1, "15MiB"])
def test_a_budget_in_which_no_batch_would_end_is_refused(rate: object) -> None:
    with pytest.raises(ConfigError, match="no answer"):
        parse("tier", "mooncake-memory", {"master": "a:1", "verify_bytes_per_s": rate})


# --- standing back ---


async def test_a_drop_that_waits_is_read_into_for_some_leases_and_then_has_its_turn() -> None:
    clock, ours = reads()
    ours.drop_waits(GROUP)
    for _ in range(READ_ON_LEASES):
        assert await ours.may_verify(member()) is None
        clock.jump(TTL_S)
        ours.drop_waits(GROUP)
    refused = await ours.may_verify(member())
    assert isinstance(refused, Busy)
    assert refused.until_ms == clock.wall_ms() + TTL_S * 1000 + 1
    assert await ours.may_verify(member(group_id=OTHER)) is None, "another group waits for nothing"
    ours.drop_went(GROUP)
    assert await ours.may_verify(member()) is None


async def test_a_drop_that_nobody_wants_any_more_puts_nothing_off() -> None:
    clock, ours = reads()
    ours.drop_waits(GROUP)
    clock.jump(READ_ON_LEASES * TTL_S)
    assert isinstance(await ours.may_verify(member()), Busy)
    clock.jump(DROP_FORGOTTEN_S)
    assert await ours.may_verify(member()) is None
    ours.drop_waits(GROUP)
    assert await ours.may_verify(member()) is None, "its wait begins anew"


async def test_what_has_just_left_memory_is_not_read_back_into_it() -> None:
    clock, ours = reads()
    ours.dropped(["k"])
    clock.jump(1.0)
    refused = await ours.may_verify(member())
    assert isinstance(refused, Busy)
    assert refused.until_ms == clock.wall_ms() + (REST_S - 1) * 1000 + 1
    clock.jump(REST_S - 1)
    assert await ours.may_verify(member()) is None
    assert not ours._dropped
    ours.dropped(["k"])
    ours.wanted_back(["k"])
    assert await ours.may_verify(member()) is None


# --- over an imitated Master ---

LEASE_S = 0.5
"""Longer than one turn of the stream below, or every drop would find a moment without a lease."""


@pytest.fixture
def imitated() -> Iterator[FakeMooncake]:
    with fake(Paces(lease_ttl_s=LEASE_S)) as made:
        yield made


def memory(medium: FakeMooncake, folder: Path) -> MooncakeTier:
    return tier_of(medium, folder, lease_ttl_s=LEASE_S, patience_s=0.001)


async def verified_all_the_time(
    tier: MooncakeTier, members: Sequence[Member], begun: anyio.Event
) -> None:
    while True:
        await tier.verify(members)
        begun.set()
        await anyio.sleep(0.01)


async def each_dropped_once(tier: MooncakeTier, members: Sequence[Member], *, whole: bool) -> None:
    """Ask again and again, as the loop does; what was dropped may be promoted by a read."""
    left = {one.key: one for one in members}
    while left:
        asked = list(left.values())
        seen = await states(tier, *asked)
        items = [
            replace(await drop_item(tier, one), whole=whole)
            for one, state in zip(asked, seen, strict=True)
            if state is MemberState.COMPLETE
        ]
        outcomes = await tier.drop(items, fence())
        for item, outcome in zip(items, outcomes, strict=True):
            if isinstance(outcome, Done):
                del left[item.member.key]
        await anyio.sleep(0.02)


@pytest.mark.parametrize("whole", [False, True], ids=["evicted", "deleted"])
async def test_a_stream_of_verifications_keeps_no_drop_from_ending(
    imitated: FakeMooncake, tmp_path: Path, whole: bool
) -> None:
    async with memory(imitated, tmp_path) as tier:
        members = await store(tier, {f"k{n}": content_of(1000 + n) for n in range(3)})
        await to_thread.run_sync(imitated.settle)
        async with anyio.create_task_group() as tasks:
            begun = anyio.Event()
            tasks.start_soon(verified_all_the_time, tier, members, begun)
            await begun.wait()
            with anyio.fail_after(120):
                await each_dropped_once(tier, members, whole=whole)
            tasks.cancel_scope.cancel()


async def test_health_tells_what_was_verified_and_what_was_put_off(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    async with memory(imitated, tmp_path) as tier:
        (one,) = await store(tier, {"k": b"content"})
        assert kinds(await tier.verify([one])) == ["Done"]
        numbers = (await tier.report()).numbers
        assert numbers["verified_bytes"] == len(b"content")
        assert numbers["verifications_put_off"] == 0
        tier._connection.reads.drop_waits(one.group_id)
        tier._connection.reads._waiting[one.group_id] = (0.0, 1e12)
        assert kinds(await tier.verify([member_of("k", b"content")])) == ["Busy"]
        assert (await tier.report()).numbers["verifications_put_off"] == 1


async def test_in_another_epoch_it_is_read_again_however_long_a_drop_has_waited() -> None:
    clock, ours = reads()
    ours.saw("one")
    ours.drop_waits(GROUP)
    for _ in range(READ_ON_LEASES + 1):
        clock.jump(TTL_S)
        ours.drop_waits(GROUP)
        ours.saw("one")
    assert isinstance(await ours.may_verify(member()), Busy)
    ours.saw("another")
    assert await ours.may_verify(member()) is None


def test_a_step_of_the_machines_clock_makes_no_lease_longer() -> None:
    clock, ours = reads()
    ours.note(GROUP)
    clock.jump_wall(-86_400)
    assert ours.leased_until_ms(GROUP) == clock.wall_ms() + TTL_S * 1000 + 1
    clock.jump(TTL_S)
    assert ours.leased_until_ms(GROUP) is None
