"""Processes with copies of one state directory beside an imitated Master: only one of them acts."""

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio import to_thread

from tests.support.mooncake.fake import FakeMooncake, Paces, fake
from tests.support.mooncake.imitation import NO_ROOM
from tests.support.mooncake.tiers import Shifted, tier_of
from tests.unit.test_mooncake_claim import brought_back, owners, strangers
from weightctl.adapters.conformance.suite.material import (
    drop_item,
    item_of,
    kinds,
    member_of,
    members_of,
    states,
    store,
)
from weightctl.adapters.mooncake.ownership.claims import OWNER_PREFIX, owner_key
from weightctl.adapters.mooncake.tier import MooncakeTier
from weightctl.controller.core.observation import MemberState
from weightctl.controller.ports import Clock, Fence

pytestmark = pytest.mark.one_loop  # many starts of worker processes

UNKNOWN, ABSENT, COMPLETE = MemberState.UNKNOWN, MemberState.ABSENT, MemberState.COMPLETE
STORE = "one"
MEMBER = member_of("payload", b"content")
NEW = member_of("new", b"content")
UNREAD = Paces(offload_s=1e9)


def fence(term: int, *past: int) -> Fence:
    return Fence(holder=STORE, term=term, operation_id=1, generation=1, past=past)


def start(
    imitated: FakeMooncake,
    folder: Path,
    term: int,
    *past: int,
    clock: Clock | None = None,
    claim_s: float = 0.0,
) -> MooncakeTier:
    """A process over the state directory in that folder, after those that had it before."""
    acts = fence(term, *past)
    return tier_of(imitated, folder, STORE, fence=acts, clock=clock, claim_s=claim_s)


@pytest.fixture
def imitated() -> Iterator[FakeMooncake]:
    """One whose hosts offload nothing: what they read is under a lease for a while."""
    with fake(UNREAD) as made:
        yield made


async def copied(folder: Path, to: Path) -> Path:
    await to_thread.run_sync(shutil.copytree, folder, to)
    return to


async def told_of(tier: MooncakeTier) -> str:
    return (await tier.observe(members_of([MEMBER]))).problem


async def test_who_runs_on_a_directory_of_which_a_copy_was_started_notices_and_removes_nothing(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    async with start(imitated, tmp_path / "a", 5) as old:
        (member,) = await store(old, {"payload": b"content"})
        item = await drop_item(old, member)
        copy = await copied(tmp_path / "a", tmp_path / "b")
        async with start(imitated, copy, 9, 5) as new:
            assert await states(new, member) == [COMPLETE]
            assert kinds(await old.drop([item], fence(5))) == ["Fenced"]
            assert kinds(await old.store([item_of(NEW, b"content")], fence(5))) == ["Fenced"]
            assert await states(old, member) == [UNKNOWN]
            problem = await told_of(old)
            assert "term 5 of holder one: term 9 has already been served here" in problem
            assert "--set store.term_above=9" in problem
            assert await states(new, member, NEW) == [COMPLETE, ABSENT]
            assert owners(imitated) == [owner_key(STORE, 0, 9)]


async def test_who_was_fenced_stays_so_at_every_start_until_a_person_says_above_which_term(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    async with start(imitated, tmp_path / "a", 5) as old:
        assert await states(old, MEMBER) == [ABSENT]
        copy = await copied(tmp_path / "a", tmp_path / "b")
        async with start(imitated, copy, 9, 5) as new:
            assert await states(new, MEMBER) == [ABSENT]
            assert await states(old, MEMBER) == [UNKNOWN]
    await to_thread.run_sync(imitated.empty)  # nothing of it is left in the cluster either
    for term, *past in ((12, 5), (20, 8, 12)):
        async with start(imitated, tmp_path / "a", term, *past) as old:
            assert "term 9 has already been served here" in await told_of(old)
            assert not owners(imitated)
    async with start(imitated, tmp_path / "a", 30, 9, 12, 20) as old:
        assert await states(old, MEMBER) == [ABSENT]


async def test_a_copy_of_an_earlier_day_is_fenced_whatever_its_term_and_disturbs_nobody(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    async with start(imitated, tmp_path / "a", 5) as first:
        (member,) = await store(first, {"payload": b"content"})
    copy = await copied(tmp_path / "a", tmp_path / "b")
    async with start(imitated, tmp_path / "a", 8, 5) as living:
        assert await states(living, member) == [COMPLETE]
        item = await drop_item(living, member)
        for term, *past in ((7, 5), (9, 5, 7)):  # a higher one at each start helps nothing
            async with start(imitated, copy, term, *past) as older:
                assert "--set store.term_above=8" in await told_of(older)
                assert kinds(await older.drop([item], fence(term, *past))) == ["Fenced"]
        assert await states(living, member) == [COMPLETE]
        assert owners(imitated) == [owner_key(STORE, 0, 8)]
        async with start(imitated, copy, 20, 8, 9) as chosen:
            assert await states(chosen, member) == [COMPLETE]
            assert "term 20 has already been served here" in await told_of(living)


async def test_a_copy_is_fenced_by_what_hosts_bring_back_and_begins_no_epoch(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    async with start(imitated, tmp_path / "a", 5) as first:
        assert await states(first, MEMBER) == [ABSENT]
    copy = await copied(tmp_path / "a", tmp_path / "b")
    async with start(imitated, tmp_path / "a", 8, 5) as living:
        assert await states(living, MEMBER) == [ABSENT]
    claim = brought_back(imitated.objects[owner_key(STORE, 0, 8)])
    await to_thread.run_sync(imitated.empty)
    imitated.objects[owner_key(STORE, 0, 8)] = claim
    there = set(imitated.objects)
    async with start(imitated, copy, 9, 5, claim_s=3600.0) as older:
        assert "term 8 has already been served here" in await told_of(older)
    assert set(imitated.objects) == there


async def test_earlier_claims_of_its_own_that_hosts_bring_back_fence_nobody(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    clock = Shifted()
    for term, *past in ((5,), (8, 5)):
        async with start(imitated, tmp_path, term, *past) as tier:
            assert await states(tier, MEMBER) == [ABSENT]
    claim = imitated.objects[owner_key(STORE, 0, 8)]
    for term in (5, 8):
        imitated.objects[owner_key(STORE, 0, term)] = brought_back(claim)
    async with start(imitated, tmp_path, 11, 5, 8, clock=clock) as tier:
        assert await states(tier, MEMBER) == [ABSENT]
        imitated.objects[owner_key(STORE, 0, 5)] = brought_back(claim)
        clock.ahead_s += 3600
        assert await states(tier, MEMBER) == [ABSENT]
        assert owners(imitated) == [owner_key(STORE, 0, 11)]


@pytest.mark.parametrize("rank", [0, 3])
async def test_a_claim_of_an_older_release_is_this_stores_and_gets_a_term(
    imitated: FakeMooncake, tmp_path: Path, rank: int
) -> None:
    async with tier_of(imitated, tmp_path, STORE) as older:
        (member,) = await store(older, {"payload": b"content"})
    await to_thread.run_sync(as_an_older_release_kept_it, tmp_path / STORE, rank)
    imitated.objects[owner_key(STORE, rank)] = imitated.objects.pop(owner_key(STORE))
    async with start(imitated, tmp_path, 5, 4) as tier:
        assert await states(tier, member) == [COMPLETE]
        assert owners(imitated) == [owner_key(STORE, rank, 5)]


def as_an_older_release_kept_it(state: Path, rank: int) -> None:
    (book,) = state.glob("tiers/*.sqlite")
    with sqlite3.connect(book) as db:
        db.execute("ALTER TABLE claim DROP COLUMN fenced_by")
        db.execute("UPDATE claim SET number = ?", (rank,))
    db.close()


async def test_a_claim_of_a_term_that_nobody_can_have_is_none(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    imitated.objects[f"{OWNER_PREFIX}{STORE}/1/9999999999999999999"] = strangers()
    async with start(imitated, tmp_path, 5) as tier:
        assert await states(tier, MEMBER) == [ABSENT]
    assert owners(imitated)[-1] == owner_key(STORE, 0, 5)


class Crossing(FakeMooncake):
    """A Master at which somebody else puts a claim while ours is put, or which has no room."""

    other = ""
    full = False

    def rpc_start(self, client: str, key: str, *args: object, **more: object) -> int:
        if self.full and key.startswith(OWNER_PREFIX):
            return NO_ROOM
        return super().rpc_start(client, key, *args, **more)  # type: ignore[arg-type]

    def rpc_end(self, client: str, key: str) -> int:
        if self.other and key.startswith(OWNER_PREFIX):
            self.objects[self.other] = strangers()
            self.other = ""
        return super().rpc_end(client, key)


@pytest.fixture
def crossing() -> Iterator[Crossing]:
    made = Crossing(UNREAD)
    yield made
    made.close()


@pytest.mark.parametrize("other, state", [(7, ABSENT), (9, UNKNOWN)], ids=["lower", "higher"])
async def test_of_two_copies_that_start_at_once_the_one_of_the_higher_term_goes_on(
    crossing: Crossing, tmp_path: Path, other: int, state: MemberState
) -> None:
    async with start(crossing, tmp_path, 5) as tier:
        assert await states(tier, MEMBER) == [ABSENT]
    crossing.other = owner_key(STORE, 0, other)
    async with start(crossing, tmp_path, 8, 5) as tier:
        assert await states(tier, MEMBER) == [state]
        left = {owner_key(STORE, 0, max(8, other))}
        assert set(owners(crossing)) - {owner_key(STORE, 0, 5)} == left


async def test_a_start_that_finds_no_room_for_its_claim_goes_on_with_the_one_before_until_it_has(
    crossing: Crossing, tmp_path: Path
) -> None:
    clock = Shifted()
    async with start(crossing, tmp_path, 5) as tier:
        (member,) = await store(tier, {"payload": b"content"})
    crossing.full = True
    async with start(crossing, tmp_path, 8, 5, clock=clock) as tier:
        assert await states(tier, member) == [COMPLETE], "what fills the memory can be evicted"
        assert owners(crossing) == [owner_key(STORE, 0, 5)]
        crossing.full = False
        clock.ahead_s += 60
        assert await states(tier, member) == [COMPLETE]
        assert owners(crossing) == [owner_key(STORE, 0, 8)]
