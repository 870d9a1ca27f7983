"""Cases of storing, seeing and reading.  Layer: conformance."""

import os
from pathlib import Path
from typing import ClassVar

import pytest
from anyio import to_thread

from weightctl.adapters.conformance.grades import Grade
from weightctl.adapters.conformance.suite.cases import TierCases
from weightctl.adapters.conformance.suite.material import (
    GROUP,
    content_of,
    drop_item,
    fence,
    instance,
    item_of,
    kinds,
    member_of,
    members_of,
    no_source,
    read_all,
    source_of,
    states,
    store,
    store_one,
)
from weightctl.controller.core.observation import MemberState
from weightctl.controller.errors import ReconcileError
from weightctl.controller.ports import (
    PIECE_BYTES,
    Corrupt,
    Done,
    DropItem,
    NoOp,
    StoreItem,
    Tier,
)

UNKNOWN, ABSENT = MemberState.UNKNOWN, MemberState.ABSENT
PARTIAL, COMPLETE = MemberState.PARTIAL, MemberState.COMPLETE

LISTED = 1001
"""More than a page of the lists that stores give."""
SIZES_BYTES = (0, 1, 4095, 4096, 1024 * 1024, PIECE_BYTES - 1, PIECE_BYTES + 1, 2 * PIECE_BYTES + 3)

HOSTILE_KEYS = (
    ".",
    "..",
    "../../etc/passwd",
    "/",
    "a/b",
    "a%2Fb",
    "a%2fb",
    "a%252Fb",
    "%",
    "%%",
    "key~",
    "key.partial",
    "~" + "0" * 64 + "~" + "0" * 16 + ".partial",
    "KEY",
    "key",
    "clé",
    "cle\u0301",
    " ",
    "-rf",
    "new\nline",
    "x" * 1024,
    "/" * 1024,
    "x" * 1023 + "y",
)


class ContractOfReplicas(TierCases):
    """Storing, seeing, reading, verifying."""

    grade = Grade.BRONZE
    listed: ClassVar[int] = LISTED
    """How many replicas are listed; a runner whose medium is slow may take fewer."""

    async def test_a_new_medium_holds_nothing_and_has_an_epoch(self, tier: Tier) -> None:
        members = members_of([member_of(key, b"") for key in ("a", "b", "c")])
        observation = await tier.observe(members)
        assert observation.states == bytes([ABSENT] * 3)
        assert observation.epoch
        assert not observation.problem
        assert not await tier.inventory()

    @pytest.mark.parametrize("size_bytes", SIZES_BYTES)
    async def test_stored_bytes_are_complete_and_read_back_the_same(
        self, tier: Tier, size_bytes: int
    ) -> None:
        content = content_of(size_bytes)
        member = member_of("payload", content)
        (outcome,) = await tier.store([item_of(member, content)], fence())
        assert isinstance(outcome, Done)
        assert outcome.moved_bytes == size_bytes
        observation = await tier.observe(members_of([member]), detail=[0])
        assert observation.states == bytes([COMPLETE])
        detail = observation.details[0]
        assert detail.instance_id == outcome.instance_id != ""
        assert detail.size_bytes == size_bytes
        assert detail.sha256 in (None, member.sha256)
        assert await read_all(tier, member) == content
        assert kinds(await tier.verify([member])) == ["Done"]

    async def test_a_source_with_a_descriptor_is_stored_alike(self, tier: Tier) -> None:
        member = await store_one(tier, "payload", content_of(PIECE_BYTES + 77))
        again = member_of("again", content_of(PIECE_BYTES + 77))
        batch = [StoreItem(member=again, open_source=lambda: tier.open(member))]
        assert kinds(await tier.store(batch, fence())) == ["Done"]
        assert await read_all(tier, again) == content_of(PIECE_BYTES + 77)

    async def test_storing_again_is_a_no_op_that_names_the_replica(self, tier: Tier) -> None:
        content = content_of(1000)
        member = await store_one(tier, "payload", content)
        stored = await instance(tier, member)
        (outcome,) = await tier.store([item_of(member, content)], fence())
        assert outcome == NoOp(instance_id=stored)

    async def test_other_content_under_a_key_is_refused_and_the_first_stays(
        self, tier: Tier
    ) -> None:
        member = await store_one(tier, "payload", b"first")
        other = member_of("payload", b"other")
        assert kinds(await tier.store([item_of(other, b"other")], fence())) == ["Conflict"]
        assert await read_all(tier, member) == b"first"
        assert kinds(await tier.verify([member])) == ["Done"]

    @pytest.mark.parametrize("size_bytes", [5, PIECE_BYTES + 5])
    async def test_a_wrong_digest_is_reported_and_publishes_nothing(
        self, tier: Tier, size_bytes: int
    ) -> None:
        member = member_of("payload", content_of(size_bytes, seed=1))
        wrong = content_of(size_bytes, seed=2)
        (outcome,) = await tier.store([item_of(member, wrong)], fence())
        assert isinstance(outcome, Corrupt)
        assert (outcome.expected, outcome.got) == (
            member.sha256,
            member_of("", wrong).sha256,
        )
        assert await states(tier, member) == [ABSENT]
        assert not await tier.inventory()

    async def test_a_source_that_breaks_off_publishes_nothing(self, tier: Tier) -> None:
        content = content_of(PIECE_BYTES + 9)
        member = member_of("payload", content)
        source = source_of(content[:-1], size_bytes=len(content))
        outcomes = await tier.store([StoreItem(member=member, open_source=source)], fence())
        assert kinds(outcomes) == ["Retry"]
        assert await states(tier, member) == [ABSENT]
        assert not await tier.inventory()

    async def test_a_source_of_another_size_is_corrupt(self, tier: Tier) -> None:
        member = member_of("payload", content_of(100))
        batch = [StoreItem(member=member, open_source=source_of(content_of(99)))]
        assert kinds(await tier.store(batch, fence())) == ["Corrupt"]
        assert await states(tier, member) == [ABSENT]

    async def test_each_item_of_a_batch_has_its_own_outcome(self, tier: Tier) -> None:
        good, bad, lost, last = (member_of(key, key.encode()) for key in ("a", "b", "c", "d"))
        batch = [
            item_of(good, b"a"),
            item_of(bad, b"B"),
            StoreItem(member=lost, open_source=no_source),
            item_of(last, b"d"),
        ]
        assert kinds(await tier.store(batch, fence())) == ["Done", "Corrupt", "Retry", "Done"]
        assert await states(tier, good, bad, lost, last) == [COMPLETE, ABSENT, ABSENT, COMPLETE]
        outcomes = await tier.verify([good, bad, lost, last])
        assert kinds(outcomes) == ["Done", "Conflict", "Conflict", "Done"]
        dropped = [
            DropItem(member=bad, instance_id="0" * 16),
            await drop_item(tier, last),
        ]
        assert kinds(await tier.drop(dropped, fence())) == ["NoOp", "Done"]

    async def test_an_empty_batch_has_no_outcomes(self, tier: Tier) -> None:
        assert list(await tier.store([], fence())) == []
        assert list(await tier.drop([], fence())) == []
        assert list(await tier.quarantine([], fence())) == []
        assert list(await tier.verify([])) == []
        assert (await tier.observe(members_of([]))).states == b""

    async def test_a_large_batch_is_answered_in_its_order(self, tier: Tier) -> None:
        contents = {f"{index:04d}": content_of(index) for index in range(300)}
        members = await store(tier, contents)
        observation = await tier.observe(members_of(members), detail=range(300))
        sizes = [observation.details[index].size_bytes for index in range(300)]
        assert sizes == list(range(300))
        verified = await tier.verify(members)
        assert [outcome.moved_bytes for outcome in verified if isinstance(outcome, Done)] == sizes
        items = [
            DropItem(member=member, instance_id=observation.details[index].instance_id)
            for index, member in enumerate(members)
        ]
        assert kinds(await tier.drop(items, fence())) == ["Done"] * 300
        assert await states(tier, *members) == [ABSENT] * 300

    async def test_an_inventory_lists_each_of_a_thousand_replicas(self, tier: Tier) -> None:
        keys = [f"{index:04d}" for index in range(self.listed)]
        await store(tier, dict.fromkeys(keys, b"1"))
        for listing in (await tier.inventory(), await tier.inventory(GROUP)):
            listed = sorted(item.key for item in listing[GROUP])
            assert len(listed) == len(keys)
            assert listed == keys

    async def test_hostile_keys_are_told_apart(self, tier: Tier) -> None:
        contents = {key: f"content {n}".encode() for n, key in enumerate(HOSTILE_KEYS)}
        members = await store(tier, contents)
        for member in members:
            assert await read_all(tier, member) == contents[member.key]
        listed = {item.key: item.instance_id for item in (await tier.inventory())[GROUP]}
        assert sorted(listed) == sorted(HOSTILE_KEYS)
        for member in members:
            item = DropItem(member=member, instance_id=listed[member.key])
            assert kinds(await tier.drop([item], fence())) == ["Done"]
            assert await states(tier, member) == [ABSENT]
        assert not await tier.inventory()

    @pytest.mark.parametrize("group_id", ["", "..", "a/../b", "weight:x", "g" * 2000, "%2E"])
    async def test_hostile_group_ids_are_told_apart(self, tier: Tier, group_id: str) -> None:
        await store(tier, {"key": b"in the other group"})
        (member,) = await store(tier, {"key": b"here"}, group_id)
        assert await read_all(tier, member) == b"here"
        assert set(await tier.inventory()) == {GROUP, group_id}
        assert set(await tier.inventory(group_id)) == {group_id}
        assert kinds(await tier.drop([await drop_item(tier, member)], fence())) == ["Done"]
        assert set(await tier.inventory()) == {GROUP}
        assert await states(tier, member_of("key", b"in the other group")) == [COMPLETE]

    async def test_fifty_thousand_members_are_answered(self, tier: Tier) -> None:
        held = await store(tier, {f"{index:06d}": b"" for index in range(0, 50_000, 10_000)})
        keys = [f"{index:06d}" for index in range(50_000)]
        table = members_of([member_of(key, b"") for key in keys])
        observation = await tier.observe(table, detail=range(0, 50_000, 5_000))
        assert len(observation.states) == 50_000
        found = [index for index, state in enumerate(observation.states) if state == COMPLETE]
        assert found == list(range(0, 50_000, 10_000))
        assert sorted(observation.details) == found
        assert observation.states.count(ABSENT) == 50_000 - len(held)

    # --- reading ---

    async def test_any_range_can_be_read(self, tier: Tier) -> None:
        content = content_of(PIECE_BYTES + 5000)
        member = await store_one(tier, "payload", content)
        async with tier.open(member) as reader:
            assert reader.size_bytes == len(content)
            assert reader.instance_id == await instance(tier, member)
            for offset, size_bytes in ((0, 1), (1, 4096), (4097, PIECE_BYTES), (len(content), 0)):
                buffer = bytearray(size_bytes)
                await reader.read_into(offset, memoryview(buffer))
                assert buffer == content[offset : offset + size_bytes]

    async def test_reading_past_the_end_is_an_error(self, tier: Tier) -> None:
        member = await store_one(tier, "payload", b"12345")
        async with tier.open(member) as reader:
            with pytest.raises(ReconcileError):
                await reader.read_into(3, memoryview(bytearray(3)))

    async def test_opening_what_is_not_there_is_an_error(self, tier: Tier) -> None:
        with pytest.raises(ReconcileError):
            async with tier.open(member_of("nothing", b"")):
                pass

    async def test_a_descriptor_reads_exactly_the_replica(self, tier: Tier) -> None:
        content = content_of(10_000)
        member = await store_one(tier, "payload", content)
        async with tier.open(member) as reader:
            fd = reader.fileno()
            if fd is None:
                pytest.skip("this tier gives no descriptor")
            assert await to_thread.run_sync(os.pread, fd, 20_000, 0) == content

    async def test_a_mapped_replica_is_exactly_its_bytes_and_outlives_its_drop(
        self, tier: Tier
    ) -> None:
        content = content_of(10_000)
        member = await store_one(tier, "payload", content)
        path = await to_thread.run_sync(tier.map_path, member)
        if path is None:
            assert not tier.profile.capabilities.mappable
            pytest.skip("this tier cannot be mapped")
        with await to_thread.run_sync(Path(path).open, "rb") as mapped:
            assert kinds(await tier.drop([await drop_item(tier, member)], fence())) == ["Done"]
            assert await to_thread.run_sync(mapped.read) == content
        assert await to_thread.run_sync(tier.map_path, member) is None
