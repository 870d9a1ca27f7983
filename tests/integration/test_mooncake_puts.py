"""A put that something comes in between of is never told to be done: beside an imitated Master."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.mooncake.fake import LEASE_TTL_S, FakeMooncake, Object, fake
from tests.support.mooncake.harness import MooncakeHarness
from weightctl.adapters.conformance.suite.material import (
    fence,
    item_of,
    kinds,
    member_of,
    members_of,
    source_of,
    states,
    store_one,
)
from weightctl.controller.core.observation import MemberState
from weightctl.controller.ports import StoreItem

CONTENT = b"content"
QUICK = {"library": "tests.support.mooncake.fake_client", "lease_ttl_s": LEASE_TTL_S}


@pytest.fixture
def imitated() -> Iterator[FakeMooncake]:
    with fake() as made:
        yield made


@pytest.fixture
def harness(imitated: FakeMooncake, tmp_path: Path) -> MooncakeHarness:
    return MooncakeHarness(imitated, "mooncake-memory", tmp_path, **QUICK)


def interrupted(key: str, when_read: Callable[[], Awaitable[None]]) -> StoreItem:
    """An item between whose beginning and end something happens."""
    source = source_of(CONTENT, before_read=when_read)
    return StoreItem(member=member_of(key, CONTENT), open_source=source)


async def test_what_a_master_forgot_while_it_was_put_is_not_done(
    imitated: FakeMooncake, harness: MooncakeHarness
) -> None:
    async with harness.tier() as tier:
        await store_one(tier, "kept", CONTENT)

        async def forget() -> None:
            del imitated.objects["payload"]

        assert kinds(await tier.store([interrupted("payload", forget)], fence())) == ["Retry"]
        assert await states(tier, member_of("payload", CONTENT)) == [MemberState.ABSENT]
        await store_one(tier, "payload", CONTENT)


@pytest.mark.parametrize("content,then", [(CONTENT, "NoOp"), (b"another", "Conflict")])
async def test_what_somebody_else_began_since_the_look_is_judged_by_the_next_one(
    imitated: FakeMooncake, harness: MooncakeHarness, content: bytes, then: str
) -> None:
    async with harness.tier() as tier:
        await store_one(tier, "kept", CONTENT)
        item = item_of(member_of("payload", CONTENT), CONTENT)
        opened = item.open_source

        def while_another_puts() -> Any:
            there = Object("somebody", bytearray(content), complete=True)
            assert imitated._place(there, "")
            imitated.objects["payload"] = there
            return opened()

        raced = replace(item, open_source=while_another_puts)
        assert kinds(await tier.store([raced], fence())) == ["Busy"]
        assert kinds(await tier.store([item], fence())) == [then]


async def test_an_object_of_another_size_under_a_key_is_absent_and_told_to_who_asks_for_details(
    imitated: FakeMooncake, harness: MooncakeHarness
) -> None:
    async with harness.tier() as tier:
        await store_one(tier, "payload", b"hello world")
        wanted = members_of([member_of("payload", CONTENT), member_of("none", CONTENT)])
        seen = await tier.observe(wanted, detail=range(2))
        assert seen.states == bytes([MemberState.ABSENT] * 2)
        assert {index: one.size_bytes for index, one in seen.details.items()} == {0: 11}
        assert not (await tier.observe(wanted)).details
