"""Two tenants may name a revision alike; Mooncake has one object under the keys of both."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from anyio import to_thread

from tests.support.loop_rig import IDENTITY, contents, members_of, rig
from tests.support.mooncake.fake import LEASE_TTL_S, FakeMooncake, fake
from tests.support.mooncake.harness import MooncakeHarness, connection_options
from weightctl.adapters.conformance.suite.material import (
    context,
    drop_item,
    fence,
    item_of,
    kinds,
    no_source,
    states,
)
from weightctl.adapters.mooncake.connection import shared
from weightctl.adapters.mooncake.options import MooncakeOptions
from weightctl.adapters.mooncake.tier import MooncakeTier
from weightctl.controller.core.observation import Member, MemberState
from weightctl.controller.core.records import Availability, Operation, Residency
from weightctl.controller.ports import StoreItem, Tier

NAMESAKE = replace(IDENTITY, tenant_id="another")
DATA = contents(IDENTITY, payloads=2)
OURS, THEIRS = members_of(IDENTITY, DATA), members_of(NAMESAKE, DATA)


@pytest.fixture
def imitated() -> Iterator[FakeMooncake]:
    with fake() as made:
        yield made


@pytest.fixture
def harness(imitated: FakeMooncake, tmp_path: Path) -> MooncakeHarness:
    options = {"library": "tests.support.mooncake.fake_client", "lease_ttl_s": LEASE_TTL_S}
    return MooncakeHarness(imitated, "mooncake-memory", tmp_path / "tier", **options)


async def stored(tier: Tier, members: list[Member]) -> list[str]:
    return kinds(
        await tier.store([item_of(member, DATA[member.key]) for member in members], fence())
    )


async def test_an_object_of_a_namesake_is_neither_shown_nor_removed_nor_replaced(
    harness: MooncakeHarness,
) -> None:
    async with harness.tier() as tier:
        assert await stored(tier, OURS) == ["Done"] * len(OURS)
        assert await states(tier, *THEIRS) == [MemberState.ABSENT] * len(THEIRS)
        named = [await drop_item(tier, member) for member in OURS]
        drops = [
            replace(item, member=member, whole=True)
            for item, member in zip(named, THEIRS, strict=True)
        ]
        assert kinds(await tier.drop(drops, fence())) == ["NoOp"] * len(drops)
        assert await states(tier, *OURS) == [MemberState.COMPLETE] * len(OURS)
        assert await stored(tier, THEIRS) == ["Conflict"] * len(THEIRS)
        unread = [StoreItem(member=member, open_source=no_source) for member in OURS]
        assert kinds(await tier.store(unread, fence())) == ["NoOp"] * len(OURS)


async def test_a_file_that_the_master_has_forgotten_keeps_its_key_from_a_namesake(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    options = connection_options(imitated, library="tests.support.mooncake.fake_client")
    connection = shared(options, context(tmp_path))
    made = MooncakeOptions(kind="mooncake-memory", connection=options)
    async with MooncakeTier("memory", made, connection) as tier:
        await stored(tier, OURS)
        rows = [replace(row, file=f"/files/{row.key}") for row in connection.book.rows()]
        await to_thread.run_sync(connection.book.put, rows)
        imitated.objects.clear()
        assert await stored(tier, THEIRS) == ["Conflict"] * len(THEIRS)
        assert connection.book.rows() == rows


async def test_the_end_of_an_import_leaves_the_objects_of_a_namesake(
    harness: MooncakeHarness, tmp_path: Path
) -> None:
    async with harness.tier() as tier, rig(tmp_path / "state", (tier,)) as r:
        await r.publish(IDENTITY, payloads=2)
        await stored(tier, OURS)
        begun = await r.store.begin_import(
            identity=NAMESAKE,
            expected_payload_count=len(THEIRS) - 1,
            expected_logical_bytes=sum(member.size_bytes for member in THEIRS),
        )
        await r.store.directory.register(NAMESAKE, THEIRS)
        await r.store.abort_import(
            identity=NAMESAKE, expected_metadata_generation=begun.metadata_generation
        )
        await r.converge(NAMESAKE)
        assert (await r.record(NAMESAKE)).availability is Availability.DELETED
        assert await states(tier, *OURS) == [MemberState.COMPLETE] * len(OURS)
        await r.converge(IDENTITY)
        assert await r.summary(IDENTITY) == (Availability.READY, Residency.HOT, Operation.NONE)
