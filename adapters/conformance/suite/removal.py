"""Cases of dropping, quarantine and room.  Layer: conformance."""

import anyio
import pytest

from weightctl.adapters.conformance.grades import Grade
from weightctl.adapters.conformance.suite.cases import TierCases
from weightctl.adapters.conformance.suite.harness import TierHarness
from weightctl.adapters.conformance.suite.material import (
    GROUP,
    CountingLimiter,
    content_of,
    drop_item,
    fence,
    instance,
    item_of,
    kinds,
    member_of,
    members_of,
    read_all,
    source_of,
    states,
    store,
    store_one,
)
from weightctl.controller.core.observation import Members, MemberState
from weightctl.controller.errors import ReconcileError
from weightctl.controller.ports import (
    PIECE_BYTES,
    DropItem,
    NoCapacity,
    StoreItem,
    Tier,
)

UNKNOWN, ABSENT = MemberState.UNKNOWN, MemberState.ABSENT
PARTIAL, COMPLETE = MemberState.PARTIAL, MemberState.COMPLETE


class ContractOfRemoval(TierCases):
    """What leaves, and what does not fit."""

    grade = Grade.BRONZE

    # --- dropping ---

    async def test_a_drop_removes_the_replica_and_doubled_is_a_no_op(self, tier: Tier) -> None:
        member = await store_one(tier, "payload", b"content")
        item = await drop_item(tier, member)
        assert kinds(await tier.drop([item], fence())) == ["Done"]
        assert await states(tier, member) == [ABSENT]
        assert kinds(await tier.drop([item], fence())) == ["NoOp"]
        assert not await tier.inventory()

    async def test_a_late_drop_does_not_remove_a_newer_replica(self, tier: Tier) -> None:
        member = await store_one(tier, "payload", b"content")
        old = await drop_item(tier, member)
        assert kinds(await tier.drop([old], fence())) == ["Done"]
        await store_one(tier, "payload", b"content")
        new = await drop_item(tier, member)
        assert new.instance_id != old.instance_id
        assert kinds(await tier.drop([old], fence())) == ["Conflict"]
        assert kinds(await tier.quarantine([old], fence())) == ["Conflict"]
        assert await read_all(tier, member) == b"content"

    @pytest.mark.parametrize("call", ["drop", "quarantine"])
    async def test_a_batch_over_two_groups_removes_from_both(self, tier: Tier, call: str) -> None:
        groups = (GROUP, f"{GROUP} of another")
        contents = {group: group.encode() for group in groups}
        members = [member_of(f"in {group}", contents[group], group) for group in groups]
        batch = [item_of(member, contents[member.group_id]) for member in members]
        assert kinds(await tier.store(batch, fence())) == ["Done", "Done"]
        assert kinds(await tier.verify(members)) == ["Done", "Done"]
        items = [await drop_item(tier, member) for member in members]
        outcomes = await getattr(tier, call)(items, fence())
        if kinds(outcomes) == ["Permanent", "Permanent"] and call == "quarantine":
            pytest.skip("nothing can be quarantined")
        assert kinds(outcomes) == ["Done", "Done"]
        assert [await states(tier, member) for member in members] == [[ABSENT], [ABSENT]]

    async def test_a_name_that_was_never_given_removes_nothing(self, tier: Tier) -> None:
        member = await store_one(tier, "payload", b"content")
        name = await instance(tier, member)
        names = [
            "",
            "\0",
            "\ud800",
            "../../x",
            "x" * 5000,
            f"{name}\n",
            f" {name}",
            f"{name}.partial",
        ]
        batch = [DropItem(member=member, instance_id=name) for name in names]
        assert set(kinds(await tier.drop(batch, fence()))) <= {"Conflict", "NoOp"}
        assert set(kinds(await tier.quarantine(batch, fence()))) <= {"Conflict", "NoOp"}
        assert await states(tier, member) == [COMPLETE]

    async def test_an_open_replica_is_busy_until_it_is_closed(self, tier: Tier) -> None:
        member = await store_one(tier, "payload", b"content")
        item = await drop_item(tier, member)
        async with tier.open(member) as reader:
            assert kinds(await tier.drop([item], fence())) == ["Busy"]
            buffer = bytearray(7)
            await reader.read_into(0, memoryview(buffer))
            assert buffer == b"content"
        assert kinds(await tier.drop([item], fence())) == ["Done"]

    async def test_a_quarantined_replica_is_out_of_sight_and_kept(self, tier: Tier) -> None:
        member = await store_one(tier, "payload", b"content")
        item = await drop_item(tier, member)
        assert kinds(await tier.quarantine([item], fence())) == ["Done"]
        assert kinds(await tier.quarantine([item], fence())) == ["NoOp"]
        assert await states(tier, member) == [ABSENT]
        with pytest.raises(ReconcileError):
            async with tier.open(member):
                pass
        (listed,) = (await tier.inventory())[GROUP]
        assert (listed.key, listed.instance_id) == ("payload", item.instance_id)
        assert (listed.state, listed.size_bytes) == ("quarantined", 7)

    async def test_a_new_replica_beside_a_quarantined_one_is_dropped_by_its_own_name(
        self, tier: Tier
    ) -> None:
        member = await store_one(tier, "payload", b"content")
        hidden = await drop_item(tier, member)
        await tier.quarantine([hidden], fence())
        await store_one(tier, "payload", b"content")
        assert kinds(await tier.drop([hidden], fence())) == ["Done"]
        assert await states(tier, member) == [COMPLETE]
        assert [item.state for item in (await tier.inventory())[GROUP]] == ["complete"]

    # --- room ---

    async def test_capacity_follows_what_is_stored_and_dropped(self, tier: Tier) -> None:
        before = await tier.capacity()
        member = await store_one(tier, "payload", content_of(1_000_000))
        during = await tier.capacity()
        assert during.used_bytes - before.used_bytes >= 1_000_000
        assert 0 <= during.free_bytes <= during.total_bytes
        await tier.drop([await drop_item(tier, member)], fence())
        assert (await tier.capacity()).used_bytes == before.used_bytes

    async def test_what_does_not_fit_is_refused_with_the_numbers(
        self, harness: TierHarness
    ) -> None:
        async with harness.tier(capacity_bytes=1_000_000) as tier:
            await store(tier, {"a": content_of(600_000)})
            big = member_of("b", content_of(600_000, seed=1))
            (outcome,) = await tier.store([item_of(big, content_of(600_000, seed=1))], fence())
            assert isinstance(outcome, NoCapacity)
            assert outcome.needed_bytes >= 600_000 > outcome.free_bytes
            assert await states(tier, big) == [ABSENT]
            await store(tier, {"c": content_of(100_000)})

    async def test_concurrent_stores_never_pass_the_limit(self, harness: TierHarness) -> None:
        async with harness.tier(capacity_bytes=1_000_000) as tier:
            contents = [content_of(400_000, seed=seed) for seed in range(4)]
            members = [member_of(str(n), content) for n, content in enumerate(contents)]
            found: list[str] = []

            async def store_it(index: int) -> None:
                item = item_of(members[index], contents[index])
                found.extend(kinds(await tier.store([item], fence())))

            async with anyio.create_task_group() as group:
                for index in range(4):
                    group.start_soon(store_it, index)
            assert sorted(found) == ["Done", "Done", "NoCapacity", "NoCapacity"]

    async def test_a_declared_size_that_no_medium_has_is_refused_before_it_is_read(
        self, harness: TierHarness
    ) -> None:
        async with harness.tier(capacity_bytes=1_000_000) as tier:
            member = Members(
                group_id=GROUP,
                keys=["huge"],
                sizes_bytes=members_of([member_of("", b"")]).sizes_bytes,
                sha256=bytes(32),
                data_types=b"\1",
            )
            member.sizes_bytes[0] = 20 * 1024**3
            source = source_of(b"", size_bytes=20 * 1024**3)
            batch = [StoreItem(member=member.member(0), open_source=source)]
            assert kinds(await tier.store(batch, fence())) == ["NoCapacity"]

    async def test_every_moved_byte_is_charged(self, tier: Tier) -> None:
        limiter = CountingLimiter()
        content = content_of(2 * PIECE_BYTES + 5)
        member = member_of("payload", content)
        await tier.store([item_of(member, content)], fence(), limit=limiter)
        assert sum(limiter.charged) == len(content)
        assert max(limiter.charged) <= PIECE_BYTES
        limiter.charged.clear()
        await tier.verify([member], limit=limiter)
        assert sum(limiter.charged) == len(content)
