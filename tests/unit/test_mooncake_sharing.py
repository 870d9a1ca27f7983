"""One connection for one cluster in one state directory, and one cluster for one book."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from anyio import to_thread

from tests.support.mooncake.fake import FakeMooncake, fake
from tests.support.mooncake.harness import connection_options
from tests.support.mooncake.tiers import Shifted, tier_of
from weightctl.adapters.conformance.suite.material import (
    context,
    fence,
    item_of,
    member_of,
    members_of,
    states,
    store,
)
from weightctl.adapters.mooncake.connection import Connection, shared
from weightctl.controller.core.observation import MemberState
from weightctl.controller.errors import ConfigError
from weightctl.controller.ports import Permanent

MEMBER = member_of("payload", b"content")


@pytest.fixture
def other() -> Iterator[FakeMooncake]:
    with fake() as made:
        yield made


def test_tiers_of_one_cluster_share_one_connection_or_are_told_what_differs(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    options, opened = connection_options(imitated), context(tmp_path)
    first = shared(options, opened)
    assert shared(options, opened) is first
    for change, told in (
        ({"appear_s": 4.5}, "appear_s = 60.0 and 4.5"),
        ({"master": "10.9.9.9:1"}, "master = "),
        ({"adopt": True}, "adopt = False and True"),
    ):
        with pytest.raises(ConfigError, match=told) as refused:
            shared(replace(options, **change), opened)
        assert "[mooncake]" in str(refused.value)
    assert shared(replace(options, cluster="other"), opened) is not first


async def test_a_connection_that_is_in_use_is_not_opened_with_other_options(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    options = connection_options(imitated, library="tests.support.mooncake.fake_client")
    other = replace(options, appear_s=4.5)
    async with entered(shared(options, context(tmp_path))):
        with pytest.raises(ConfigError, match="appear_s"):
            shared(other, context(tmp_path))
    async with entered(shared(other, context(tmp_path))):
        pass


async def test_how_a_cluster_was_looked_at_is_told_for_the_process_and_apart_from_its_reads(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    async with tier_of(imitated, tmp_path) as tier:
        await store(tier, {"payload": b"content"})
        before = tier.remark()
        assert before.startswith("since this process began ")
        assert before.endswith("; no object was read")
        await tier.verify([MEMBER])
        assert tier.remark().endswith(
            " reads of objects took one, none of them for a plan or a dry run"
        )


async def test_objects_that_others_put_are_told_as_soon_as_they_are_managed(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    async with tier_of(imitated, tmp_path / "old") as tier:
        await store(tier, {"payload": b"content"})
    candidate = replace(members_of([MEMBER]), sha256=bytes(32))
    async with tier_of(imitated, tmp_path / "new", adopt=True) as tier:
        for members, count in ((candidate, 0), (members_of([MEMBER]), 1)):
            assert (await tier.observe(members)).states == bytes([MemberState.COMPLETE])
            told = f"; {count} objects were there before weightctl knew them" in tier.remark()
            assert told is bool(count)


# --- one Master ---------------------------------------------------------------------------------


class Crossed(NamedTuple):
    """The HTTP port of one Master and the RPC port of another one."""

    admin: str
    master: str


async def test_two_masters_named_as_one_are_told_and_nothing_is_left_in_either(
    imitated: FakeMooncake, other: FakeMooncake, tmp_path: Path
) -> None:
    clock = Shifted()
    async with tier_of(Crossed(imitated.admin, other.master), tmp_path, clock=clock) as tier:
        for _ in range(4):
            observation = await tier.observe(members_of([MEMBER]))
            assert observation.states == bytes([MemberState.UNKNOWN])
            assert "are different Masters" in observation.problem
            await to_thread.run_sync(other.settle)
            clock.ahead_s += 3600
    assert not imitated.objects
    assert len(other.objects) <= 1, "what its host is just offloading is removed the next time"


async def test_a_book_is_not_used_beside_another_master(
    imitated: FakeMooncake, other: FakeMooncake, tmp_path: Path
) -> None:
    async with tier_of(imitated, tmp_path) as tier:
        await store(tier, {"payload": b"content"})
    for _ in range(2):
        async with tier_of(other, tmp_path) as tier:
            observation = await tier.observe(members_of([MEMBER]))
            assert observation.states == bytes([MemberState.UNKNOWN])
            assert "was kept for the Master" in observation.problem
            item = item_of(MEMBER, b"content")
            assert [type(one) for one in await tier.store([item], fence())] == [Permanent]
    assert not other.objects
    async with tier_of(imitated, tmp_path) as tier:
        assert await states(tier, MEMBER) == [MemberState.COMPLETE]


async def test_a_master_under_another_address_is_known_by_its_marker(
    imitated: FakeMooncake, other: FakeMooncake, tmp_path: Path
) -> None:
    async with tier_of(imitated, tmp_path) as tier:
        await store(tier, {"payload": b"content"})
        await to_thread.run_sync(imitated.settle)
    await to_thread.run_sync(imitated.restart)
    moved = imitated.master.replace("127.0.0.1", "localhost")
    async with tier_of(Crossed(imitated.admin, moved), tmp_path) as tier:
        assert await states(tier, MEMBER) == [MemberState.ABSENT], "memory is lost, as ever"
    async with tier_of(other, tmp_path) as tier:
        assert moved in (await tier.observe(members_of([MEMBER]))).problem


@asynccontextmanager
async def entered(connection: Connection) -> AsyncIterator[None]:
    await connection.enter()
    try:
        yield
    finally:
        await connection.leave()
