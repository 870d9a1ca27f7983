"""Whose a cluster is, over an imitated Master that forgets, and hosts that remember too much."""

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from anyio import to_thread

from tests.support.mooncake_fake import FakeMooncake, Object, fake
from tests.support.mooncake_harness import connection_options
from weightctl.adapters.conformance.suite.material import context, member_of, states
from weightctl.adapters.mooncake.claim import owner_key
from weightctl.adapters.mooncake.connection import shared
from weightctl.adapters.mooncake.options import MooncakeOptions
from weightctl.adapters.mooncake.tier import MooncakeTier
from weightctl.controller.core.observation import MemberState

UNKNOWN, ABSENT = MemberState.UNKNOWN, MemberState.ABSENT
MEMBER = member_of("payload", b"content")


@pytest.fixture
def imitated() -> Iterator[FakeMooncake]:
    with fake() as made:
        yield made


def tier_of(
    medium: FakeMooncake, folder: Path, holder: str
) -> AbstractAsyncContextManager[MooncakeTier]:
    options = connection_options(medium, library="tests.support.mooncake_fake_client")
    made = MooncakeOptions(kind="mooncake-memory", connection=options)
    opened = context(folder / holder, holder=holder)
    return MooncakeTier("memory", made, shared(options, opened))


async def test_a_store_that_was_refused_does_not_take_a_cluster_that_forgot_its_owner(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    async with tier_of(imitated, tmp_path, "a") as owner, tier_of(imitated, tmp_path, "b") as other:
        assert await states(owner, MEMBER) == [ABSENT]
        assert await states(other, MEMBER) == [UNKNOWN]
        await to_thread.run_sync(imitated.empty)
        assert await states(other, MEMBER) == [UNKNOWN]
        assert await states(owner, MEMBER) == [ABSENT], "it says anew whose the cluster is"
        assert list(await to_thread.run_sync(owners, imitated)) == [owner_key("a")]


async def test_the_owner_has_the_cluster_again_after_its_master_was_restarted(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    async with tier_of(imitated, tmp_path, "a") as owner:
        assert await states(owner, MEMBER) == [ABSENT]
        await to_thread.run_sync(imitated.settle)
        await to_thread.run_sync(imitated.restart)
        assert await states(owner, MEMBER) == [ABSENT]
    async with tier_of(imitated, tmp_path, "b") as other:
        assert await states(other, MEMBER) == [UNKNOWN], "what the hosts kept names the owner"


async def test_an_owner_that_a_host_brought_back_from_its_disk_is_not_the_living_one(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    imitated.objects[owner_key("0-long-gone")] = Object(
        "the host", bytearray(1), complete=True, disk="host0"
    )
    async with tier_of(imitated, tmp_path, "a") as early:
        assert await states(early, MEMBER) == [UNKNOWN], "while it is the only one it counts"
    del imitated.objects[owner_key("0-long-gone")]
    async with tier_of(imitated, tmp_path, "a") as owner:
        assert await states(owner, MEMBER) == [ABSENT]
    imitated.objects[owner_key("0-long-gone")] = Object(
        "the host", bytearray(1), complete=True, disk="host0"
    )
    async with tier_of(imitated, tmp_path, "a") as owner:
        assert await states(owner, MEMBER) == [ABSENT]


def owners(imitated: FakeMooncake) -> list[str]:
    return [key for key in imitated.objects if key.startswith("weightctl-owner/")]
