"""What is told of puts and drops, and what the book says of them, over an imitated Master."""

import math
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from tests.support.mooncake.fake import LEASE_TTL_S, FakeMooncake, Object
from tests.support.mooncake.harness import PATIENCE_S
from tests.support.mooncake.tiers import both_of, impatient, offloaded
from weightctl.adapters.conformance.suite.material import (
    drop_item,
    fence,
    item_of,
    kinds,
    member_of,
    members_of,
    source_of,
    states,
)
from weightctl.adapters.mooncake.tier import MooncakeTier
from weightctl.controller.core.observation import MemberState
from weightctl.controller.errors import TransientError
from weightctl.controller.ports import DropItem, StoreItem

MEMBER = member_of("k", b"content")
ITEM = item_of(MEMBER, b"content")


class Odd(FakeMooncake):
    """A Master that answers for some keys what nobody has heard of."""

    odd: frozenset[str] = frozenset()
    odd_when_cleared = False
    kept_waiting = "nothing"
    """The path that is answered only once `told` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.told = threading.Event(), threading.Event()

    def _answer(self, path: str) -> tuple[int, bytes]:
        if path == self.kept_waiting:
            self.asked.set()
            self.told.wait(PATIENCE_S)
        return super()._answer(path)

    def _entry(self, key: str) -> dict[str, object]:
        if key in self.odd:
            return {**super()._entry("what nobody has put"), "error": "STRANGE"}
        return super()._entry(key)

    def rpc_clear(self, client: str, keys: list[str], segment: str) -> list[str]:
        self.odd = frozenset(keys) if self.odd_when_cleared else self.odd
        return super().rpc_clear(client, keys, segment)

    def begun_by_another(self, key: str) -> None:
        self.objects[key] = Object("another", bytearray(7))


@pytest.fixture
def master() -> Iterator[Odd]:
    made = Odd()
    yield made
    made.told.set()
    made.close()


async def test_a_row_is_in_the_book_before_there_is_anything_that_it_describes(
    master: Odd, tmp_path: Path
) -> None:
    async with impatient(master, tmp_path) as tier:
        seen: list[bool] = []

        async def look() -> None:
            seen.append(tier._connection.book.get("k") is not None)
            seen.append(master.objects["k"].complete)

        source = source_of(b"content", before_read=look)
        await tier.store([StoreItem(member=MEMBER, open_source=source)], fence())
        assert seen[:2] == [True, False]


async def test_a_put_that_came_to_nothing_leaves_nothing_that_vouches_for_anothers_object(
    master: Odd, tmp_path: Path
) -> None:
    async with impatient(master, tmp_path) as tier:
        assert kinds(await tier.store([item_of(MEMBER, b"chaotic")], fence())) == ["Corrupt"]
        assert tier._connection.book.get("k") is None
        master.objects["k"] = Object(
            "another", bytearray(b"chaotic"), complete=True, memory={"10.0.0.1:2": 1}
        )
        assert kinds(await tier.store([ITEM], fence())) == ["Conflict"]


async def test_what_another_client_has_begun_is_busy_and_neither_there_nor_gone(
    master: Odd, tmp_path: Path
) -> None:
    async with impatient(master, tmp_path) as tier:
        item = await drop_item(tier, await offloaded(tier, master))
        master.begun_by_another("k")
        assert await states(tier, MEMBER) == [MemberState.PARTIAL]
        for whole in (False, True):
            asked = replace(item, whole=whole)
            assert kinds(await tier.drop([asked], fence())) == ["Busy"]
        assert kinds(await tier.store([ITEM], fence())) == ["Busy"]
        (listed,) = (await tier.inventory(MEMBER.group_id))[MEMBER.group_id]
        assert listed.state == "partial"


async def test_what_is_not_answered_for_is_neither_there_nor_gone_nor_put(
    master: Odd, tmp_path: Path
) -> None:
    async with impatient(master, tmp_path) as tier:
        item = await drop_item(tier, await offloaded(tier, master))
        master.odd = frozenset("k")
        assert await states(tier, MEMBER) == [MemberState.UNKNOWN]
        with pytest.raises(TransientError, match="did not answer for k"):
            await tier.inventory(MEMBER.group_id)
        assert kinds(await tier.drop([item], fence())) == ["Busy"]
        begun = master.calls.count("start")
        assert kinds(await tier.store([ITEM], fence())) == ["Busy"]
        assert master.calls.count("start") == begun


async def test_what_has_a_key_that_cannot_be_asked_for_is_absent_and_need_not_be_dropped(
    master: Odd, tmp_path: Path
) -> None:
    """As a payload that lives in another tier: its revision can be deleted."""
    master.objects["k,x"] = Object("a stranger", bytearray(7), complete=True, memory={"e": 1})
    member = member_of("k,x", b"content")
    item = DropItem(member=member, instance_id="i", whole=True)
    async with both_of(master, tmp_path) as tiers:
        for tier in tiers:
            assert await states(tier, member, MEMBER) == [MemberState.ABSENT] * 2
            assert kinds(await tier.drop([item], fence())) == ["NoOp"]
            assert kinds(await tier.store([item_of(member, b"content")], fence())) == ["Permanent"]
        master.odd = frozenset("k")
        assert await states(tiers[0], MEMBER, member) == [MemberState.UNKNOWN, MemberState.ABSENT]
    assert "k,x" in master.objects


async def test_a_drop_whose_result_was_not_seen_is_not_done(master: Odd, tmp_path: Path) -> None:
    async with impatient(master, tmp_path) as tier:
        item = await drop_item(tier, await offloaded(tier, master))
        master.odd_when_cleared = True
        assert kinds(await tier.drop([item], fence())) == ["Busy"]
        assert not master.objects["k"].memory, "it was done all the same"
        master.odd, master.odd_when_cleared = frozenset(), False
        assert kinds(await tier.drop([item], fence())) == ["NoOp"]


async def test_what_this_store_knows_nothing_of_is_not_dropped(master: Odd, tmp_path: Path) -> None:
    async with impatient(master, tmp_path) as tier:
        member = await offloaded(tier, master)
        await to_thread.run_sync(tier._connection.book.forget, ["k"])
        item = await drop_item(tier, member)
        assert kinds(await tier.drop([item], fence())) == ["Retry"]
        assert master.objects["k"].memory


async def test_an_object_whose_removal_waits_stays_known(master: Odd, tmp_path: Path) -> None:
    async with impatient(master, tmp_path) as tier:
        item = replace(await drop_item(tier, await offloaded(tier, master)), whole=True)
        master.objects["k"].lease_until = math.inf
        read = master.calls.count("read")
        for asked in (item, replace(item, whole=False)):
            assert kinds(await tier.drop([asked], fence())) == ["Busy"]
        assert tier._connection.book.get("k") is not None
        assert master.calls.count("read") == read, "whose it is is not asked before long"
        master.objects["k"].lease_until = 0.0
        assert kinds(await tier.drop([item], fence())) == ["Done"]
        assert tier._connection.book.get("k") is None


async def test_what_was_dropped_is_not_read_back_and_is_another_copy_when_it_is_there_again(
    master: Odd, tmp_path: Path
) -> None:
    async with impatient(master, tmp_path) as tier:
        item = await drop_item(tier, await offloaded(tier, master))
        before = dict(master.objects["k"].memory)
        assert kinds(await tier.drop([item], fence())) == ["Done"]
        master.objects["k"].memory = before
        assert (await drop_item(tier, MEMBER)).instance_id != item.instance_id
        (refused,) = await tier.verify([MEMBER])
        assert "just left memory" in str(refused)
        assert kinds(await tier.store([ITEM], fence())) == ["NoOp"]
        assert kinds(await tier.verify([MEMBER])) == ["Done"], "it is wanted there again"


async def test_what_the_master_shows_whole_is_not_there_before_its_store_has_ended(
    master: Odd, tmp_path: Path
) -> None:
    """Nothing was said of whose disk it lies on, and it may yet be told as not done."""
    async with both_of(master, tmp_path, lease_ttl_s=LEASE_TTL_S) as (hot, disk):
        await hot.capacity()
        master.kept_waiting = "/get_segments_detail"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(disk.store, [ITEM], fence())
            assert await to_thread.run_sync(master.asked.wait, PATIENCE_S)
            await to_thread.run_sync(master.settle)
            assert master.objects["k"].disk
            assert await states(disk, MEMBER) == [MemberState.PARTIAL]
            with pytest.raises(TransientError, match="no complete replica"):
                async with disk.open(MEMBER):
                    pass
            master.told.set()
        assert await states(disk, MEMBER) == [MemberState.COMPLETE]


async def test_one_put_makes_both_replicas_for_two_tiers_that_store_at_once(
    master: Odd, tmp_path: Path
) -> None:
    outcomes: list[str] = []

    async def bring(tier: MooncakeTier) -> None:
        outcomes.extend(kinds(await tier.store([ITEM], fence())))

    async with both_of(master, tmp_path, lease_ttl_s=LEASE_TTL_S) as made:
        await made[0].capacity()
        begun = master.calls.count("start")
        async with anyio.create_task_group() as tasks:
            for tier in made:
                tasks.start_soon(bring, tier)
        assert set(outcomes) <= {"Done", "NoOp"}
        assert master.calls.count("start") == begun + 1


class Once(list[str]):
    """Keys that are gone through, and never searched."""

    def index(self, *_: object) -> int:
        raise AssertionError

    def __contains__(self, _: object) -> bool:
        raise AssertionError


async def test_which_members_are_being_written_is_found_in_one_pass(
    master: Odd, tmp_path: Path
) -> None:
    """There may be as many as 50,000 of them."""
    async with impatient(master, tmp_path) as tier:
        members = members_of([member_of(key, b"content") for key in "abcd"])
        members = replace(members, keys=Once(members.keys))
        assert tier._storing.written(members) == []
        tier._storing._writing |= {(members.group_id, key) for key in "dbx"} | {("other", "a")}
        assert tier._storing.written(members) == [1, 3]
