"""Parking over an imitated Master: what an earlier client put goes, what is others' stays."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from anyio import to_thread

from tests.support.mooncake_fake import LEASE_TTL_S, FakeMooncake, Object, fake
from tests.support.mooncake_harness import connection_options
from weightctl.adapters.conformance.suite.material import (
    content_of,
    context,
    drop_item,
    fence,
    kinds,
    states,
    store,
)
from weightctl.adapters.mooncake.connection import shared
from weightctl.adapters.mooncake.options import MooncakeOptions
from weightctl.adapters.mooncake.tier import MooncakeTier
from weightctl.controller.core.observation import MemberState

QUICK = {
    "library": "tests.support.mooncake_fake_client",
    "lease_ttl_s": LEASE_TTL_S,
    "patience_s": 30.0,
}
CONTENTS = {f"k{number}": content_of(1000 + number) for number in range(3)}


class Crowded(FakeMooncake):
    """A Master that puts a stranger's object onto every segment as soon as it is mounted."""

    def rpc_mount(self, client: str, size_bytes: int) -> list[str]:
        ids = super().rpc_mount(client, size_bytes)
        name = ids[0].removeprefix("id-")
        self._made += 1
        self.objects["kv"] = Object(
            "a stranger",
            bytearray(b"cached"),
            complete=True,
            memory={self.segments[name].endpoint: self._made},
        )
        return ids


@pytest.fixture
def imitated() -> Iterator[FakeMooncake]:
    with fake() as made:
        yield made


@pytest.fixture
def crowded() -> Iterator[Crowded]:
    made = Crowded()
    yield made
    made.close()


@asynccontextmanager
async def memory(
    medium: FakeMooncake, folder: Path, **changes: object
) -> AsyncIterator[MooncakeTier]:
    options = connection_options(medium, **{**QUICK, **changes})
    made = MooncakeOptions(kind="mooncake-memory", connection=options)
    async with MooncakeTier("memory", made, shared(options, context(folder))) as tier:
        yield tier


async def test_the_client_that_put_objects_clears_them_and_mounts_nothing(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    async with memory(imitated, tmp_path) as tier:
        members = await store(tier, CONTENTS)
        items = [await drop_item(tier, member) for member in members]
        assert kinds(await tier.drop(items, fence())) == ["Done"] * 3
        assert "mount" not in imitated.calls


async def test_another_client_parks_them_and_leaves_no_segment(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    async with memory(imitated, tmp_path) as tier:
        members = await store(tier, CONTENTS)
    segments = set(imitated.segments)
    async with memory(imitated, tmp_path) as tier:
        items = [await drop_item(tier, member) for member in members]
        assert kinds(await tier.drop(items, fence())) == ["Done"] * 3
        assert await states(tier, *members) == [MemberState.ABSENT] * 3
        assert kinds(await tier.drop(items, fence())) == ["NoOp"] * 3
    assert "mount" in imitated.calls
    assert set(imitated.segments) == segments
    assert all(imitated.objects[member.key].disk for member in members)


async def test_what_others_put_onto_the_segment_is_moved_away_before_it_goes(
    crowded: Crowded, tmp_path: Path
) -> None:
    async with memory(crowded, tmp_path) as tier:
        members = await store(tier, CONTENTS)
    async with memory(crowded, tmp_path) as tier:
        items = [await drop_item(tier, member) for member in members]
        assert kinds(await tier.drop(items, fence())) == ["Done"] * 3
    assert crowded.objects["kv"].memory


async def test_an_object_too_large_to_park_says_that_it_is_not_owned(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    async with memory(imitated, tmp_path) as tier:
        (member,) = await store(tier, {"k": content_of(100_000)})
    async with memory(imitated, tmp_path, parking_bytes=100_000) as tier:
        outcomes = await tier.drop([await drop_item(tier, member)], fence())
        assert kinds(outcomes) == ["Permanent"]
        assert "cannot drop: not the owner" in str(outcomes)
        assert await states(tier, member) == [MemberState.COMPLETE]


async def test_without_a_cold_replica_nothing_is_dropped(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    async with memory(imitated, tmp_path, patience_s=0.5) as tier:
        (member,) = await store(tier, {"k": b"content"})
        await to_thread.run_sync(imitated.settle)
        imitated.objects["k"].disk = ""
        assert kinds(await tier.drop([await drop_item(tier, member)], fence())) == ["Busy"]
        assert await states(tier, member) == [MemberState.COMPLETE]
