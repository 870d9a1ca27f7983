"""Cold copies that do not count: of a dead host, of an older put, of another's object."""

from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from anyio import to_thread

from tests.support.mooncake.fake import LEASE_TTL_S, FakeMooncake
from tests.support.mooncake.tiers import both_of
from weightctl.adapters.conformance.suite.material import (
    content_of,
    drop_item,
    fence,
    item_of,
    kinds,
    store,
)
from weightctl.adapters.mooncake.proof.on_disk import WRONG
from weightctl.adapters.mooncake.tier import MooncakeTier
from weightctl.controller.core.observation import Member
from weightctl.controller.ports import Conflict, Retry

NEW, OLD = content_of(1000, 1), content_of(1000, 2)


def tiers(
    medium: FakeMooncake, folder: Path, **changes: object
) -> AbstractAsyncContextManager[tuple[MooncakeTier, MooncakeTier]]:
    return both_of(medium, folder, lease_ttl_s=LEASE_TTL_S, **changes)  # type: ignore[arg-type]


async def in_both(memory: MooncakeTier, medium: FakeMooncake) -> Member:
    (member,) = await store(memory, {"k": NEW})
    await to_thread.run_sync(medium.settle)
    return member


async def test_what_a_host_keeps_that_does_not_answer_is_neither_verified_nor_relied_on(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    async with tiers(imitated, tmp_path) as (memory, disk):
        member = await in_both(memory, imitated)
        assert kinds(await disk.verify([member])) == ["Done"]
        item = await drop_item(memory, member)
        imitated.dead.add(imitated.objects["k"].disk)
        for (outcome,) in (await disk.verify([member]), await memory.drop([item], fence())):
            assert isinstance(outcome, Retry)
            assert "10.0.0.1:1 at 127.0.0.1:1 " in outcome.detail
        assert imitated.objects["k"].memory


async def test_a_host_that_answers_again_counts_again(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    async with tiers(imitated, tmp_path) as (memory, disk):
        member = await in_both(memory, imitated)
        imitated.dead.add(imitated.objects["k"].disk)
        assert kinds(await disk.verify([member])) == ["Retry"]
        imitated.dead.clear()
        assert kinds(await disk.verify([member])) == ["Done"]
        assert kinds(await memory.drop([await drop_item(memory, member)], fence())) == ["Done"]


async def test_an_older_file_that_a_host_brings_back_is_no_copy_of_what_was_put(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    async with tiers(imitated, tmp_path, appear_s=0.1) as (memory, disk):
        (member,) = await store(memory, {"k": NEW})
        imitated.brings_back("k", OLD)
        item = await drop_item(memory, member)
        assert kinds(await disk.store([item_of(member, NEW)], fence())) == ["Retry"]
        assert kinds(await disk.verify([member])) == ["Retry"]
        (outcome,) = await memory.drop([item], fence())
        assert isinstance(outcome, Retry)
        assert "older file" in outcome.detail
        assert imitated.objects["k"].memory


@pytest.mark.parametrize("content, verdict", [(NEW, "Done"), (OLD, "Corrupt")])
async def test_a_copy_of_unknown_origin_counts_once_it_was_read_with_nothing_in_memory(
    imitated: FakeMooncake, tmp_path: Path, content: bytes, verdict: str
) -> None:
    imitated.serves_files = False
    async with tiers(imitated, tmp_path) as (memory, disk):
        (member,) = await store(memory, {"k": NEW})
        imitated.brings_back("k", content)
        assert kinds(await disk.verify([member])) == ["Retry"]
        imitated.objects["k"].memory.clear()
        assert kinds(await disk.verify([member])) == [verdict]
        if verdict == "Done":
            await memory.store([item_of(member, NEW)], fence())
            assert kinds(await disk.verify([member])) == ["Done"]


@pytest.mark.parametrize("content, verdict", [(NEW, "Done"), (OLD, "Retry")])
async def test_a_copy_of_unknown_origin_is_read_from_its_host_beside_memory_and_takes_no_lease(
    imitated: FakeMooncake, tmp_path: Path, content: bytes, verdict: str
) -> None:
    async with tiers(imitated, tmp_path, appear_s=0.1) as (memory, disk):
        (member,) = await store(memory, {"k": NEW})
        imitated.brings_back("k", content)
        imitated.objects["k"].lease_until = 0.0
        assert kinds(await disk.verify([member])) == [verdict]
        assert imitated.objects["k"].lease_until == 0.0
        assert imitated.objects["k"].memory
        proven = verdict == "Done"
        ends = await disk.store([item_of(member, NEW)], fence())
        assert kinds(ends) == ["NoOp" if proven else "Retry"]
        found = await disk.unprovable([member])
        assert found == ({} if proven else {"k": f"{WRONG}, on {imitated.master}"})


async def test_a_damaged_file_of_our_own_put_is_found_beside_memory_where_its_host_serves_it(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    async with tiers(imitated, tmp_path) as (memory, disk):
        member = await in_both(memory, imitated)
        imitated.objects["k"].old = OLD
        (outcome,) = await disk.verify([member])
        assert isinstance(outcome, Retry)
        assert "damaged" in outcome.detail
        assert "k" in await disk.unprovable([member])
        imitated.serves_files = False
        assert kinds(await disk.verify([member])) == ["Done"], "memory is read, as ever"


async def test_what_memory_holds_is_not_known_by_the_copy_on_the_disk(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    async with tiers(imitated, tmp_path) as (memory, disk):
        (stored,) = await store(memory, {"k": OLD})
        member = replace(stored, sha256=sha256(NEW).digest())
        imitated.brings_back("k", NEW)
        await to_thread.run_sync(memory._connection.book.forget, ["k"])
        assert kinds(await disk.verify([member])) == ["Corrupt"], "it is memory that is read first"
        assert memory._connection.book.get("k") is None


@pytest.mark.parametrize("content", [NEW, OLD])
async def test_with_a_proven_copy_elsewhere_an_object_goes_whole_and_its_unproven_copy_with_it(
    imitated: FakeMooncake, tmp_path: Path, content: bytes
) -> None:
    async with tiers(imitated, tmp_path) as (memory, disk):
        (member,) = await store(memory, {"k": NEW})
        imitated.brings_back("k", content)
        item = await drop_item(memory, member)
        assert kinds(await memory.drop([item], fence())) == ["Retry"]
        assert kinds(await memory.drop([replace(item, elsewhere=True)], fence())) == ["Done"]
        assert "k" not in imitated.objects
        assert kinds(await memory.store([item_of(member, NEW)], fence())) == ["Done"]
        await to_thread.run_sync(imitated.settle)
        assert kinds(await disk.verify([member])) == ["Done"], "it is of our put again"


async def test_with_a_proven_copy_elsewhere_the_copy_of_our_put_stays_on_the_disk(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    async with tiers(imitated, tmp_path) as (memory, _):
        member = await in_both(memory, imitated)
        item = replace(await drop_item(memory, member), elsewhere=True)
        while kinds(outcomes := await memory.drop([item], fence())) == ["Busy"]:
            pass
        assert kinds(outcomes) == ["Done"]
        one = imitated.objects["k"]
        assert one.disk
        assert not one.memory


async def test_what_nobody_here_has_read_is_read_before_it_goes_and_anothers_content_stays(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    async with tiers(imitated, tmp_path) as (memory, _):
        kept, other = await store(memory, {"k": NEW, "other": NEW})
        for member in (kept, other):
            imitated.brings_back(member.key, OLD)
        await to_thread.run_sync(memory._connection.book.forget, ["k", "other"])
        imitated.objects["other"].content[:] = OLD

        async def dropped() -> list[str]:
            items = [await drop_item(memory, member) for member in (kept, other)]
            return kinds(
                await memory.drop([replace(one, elsewhere=True) for one in items], fence())
            )

        assert await dropped() == ["Retry", "Conflict"]
        while (found := (await dropped())[0]) == "Busy":
            pass
        assert found == "Done"
        assert "k" not in imitated.objects
        assert imitated.objects["other"].memory


async def test_a_host_that_is_back_on_its_folder_still_keeps_what_it_kept(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    async with tiers(imitated, tmp_path) as (memory, disk):
        member = await in_both(memory, imitated)
        assert kinds(await disk.verify([member])) == ["Done"]
        one, (first, second) = imitated.objects["k"], imitated.segments.values()
        one.memory = {second.endpoint: 77}
        first.client = one.disk = "host0, started again"
        assert kinds(await disk.verify([member])) == ["Done"]


async def test_what_cannot_be_dropped_and_is_anothers_object_is_a_conflict(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    async with tiers(imitated, tmp_path, patience_s=0.0) as (memory, disk):
        member = await in_both(memory, imitated)
        item = await drop_item(memory, member)
        imitated.put_anew("k", OLD)
        assert (await drop_item(memory, member)).instance_id == item.instance_id
        outcomes = await memory.drop([item], fence())
        while kinds(outcomes) == ["Busy"]:
            outcomes = await memory.drop([item], fence())
        (outcome,) = outcomes
        assert isinstance(outcome, Conflict)
        assert "another object" in outcome.detail
        assert kinds(await disk.verify([member])) == ["Corrupt"]


@pytest.mark.parametrize("known", [True, False], ids=["keeper-known", "keeper-not-known"])
async def test_an_old_file_that_was_alone_once_is_not_proven_by_what_came_from_another_host(
    imitated: FakeMooncake, tmp_path: Path, known: bool
) -> None:
    async with tiers(imitated, tmp_path) as (memory, disk):
        member = await in_both(memory, imitated)
        if known:
            assert kinds(await disk.verify([member])) == ["Done"]
        else:
            book = memory._connection.book
            row = book.get("k")
            assert row is not None
            blank = replace(row, keeper="", keeper_host="")
            await to_thread.run_sync(book.put, [blank])
        one = imitated.objects["k"]
        right = dict(one.memory)
        one.memory.clear()
        imitated.brings_back("k", OLD)
        assert kinds(await disk.verify([member])) == ["Corrupt"]
        one.memory, one.promote_at = right, None  # read from a host that has gone again
        one.content[:] = NEW  # also where what was read just now has been promoted meanwhile
        item = await drop_item(memory, member)
        assert kinds(await memory.verify([member])) == ["Done"]
        assert kinds(await disk.verify([member])) == ["Retry"]
        assert kinds(await memory.drop([item], fence())) == ["Retry"]
        assert one.memory, "it is the only right copy"
