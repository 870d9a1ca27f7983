"""A row of the book that says what was to be put is no proof of what lies there."""

from pathlib import Path

import pytest
from anyio import to_thread

from tests.support.mooncake.fake import FakeMooncake
from tests.support.mooncake.tiers import settled
from weightctl.adapters.conformance.suite.material import (
    fence,
    item_of,
    kinds,
    member_of,
    members_of,
    read_all,
)
from weightctl.adapters.mooncake.ownership.book import row_of
from weightctl.adapters.mooncake.tier import MooncakeTier
from weightctl.controller.core.observation import Member

OURS, THEIRS = b"our bytes", b"their own"


async def was_killed_before_its_put(tier: MooncakeTier, member: Member) -> None:
    row = row_of(member, token="", owner="a client that is gone")
    await to_thread.run_sync(tier._connection.book.put, [row])


def put_by_another(imitated: FakeMooncake, content: bytes) -> None:
    assert imitated.call("start", "another", "k", len(content), "") == 0
    assert imitated.call("write", "another", "k", 0, content) == len(content)
    assert imitated.call("end", "another", "k") == 0


@pytest.mark.parametrize(
    "content, outcome", [(THEIRS, "Conflict"), (OURS, "NoOp")], ids=["theirs", "ours"]
)
async def test_what_was_only_to_be_put_is_read_before_it_counts(
    imitated: FakeMooncake, tmp_path: Path, content: bytes, outcome: str
) -> None:
    member = member_of("k", OURS)
    async with settled(imitated, tmp_path) as tier:
        await was_killed_before_its_put(tier, member)
        put_by_another(imitated, content)
        observed = await tier.observe(members_of([member]), detail=[0])
        assert observed.details[0].sha256 is None
        assert kinds(await tier.store([item_of(member, OURS)], fence())) == [outcome]
        assert await read_all(tier, member) == content


async def test_after_an_ended_put_the_content_is_known(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    member = member_of("k", OURS)
    async with settled(imitated, tmp_path) as tier:
        assert kinds(await tier.store([item_of(member, OURS)], fence())) == ["Done"]
        observed = await tier.observe(members_of([member]), detail=[0])
        assert observed.details[0].sha256 == member.sha256
