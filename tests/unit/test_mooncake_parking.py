"""Parking over an imitated Master: what an earlier client put goes, what is others' stays."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from tests.support.mooncake.fake import LEASE_TTL_S, FakeMooncake, Object
from tests.support.mooncake.tiers import settled
from weightctl.adapters.conformance.suite.material import (
    content_of,
    drop_item,
    fence,
    item_of,
    kinds,
    states,
    store,
)
from weightctl.adapters.mooncake.parking import dropping as parking
from weightctl.adapters.mooncake.parking.lot import Lot
from weightctl.adapters.mooncake.parking.moves import TRIES
from weightctl.adapters.mooncake.tier import MooncakeTier
from weightctl.controller.core.observation import Member, MemberState

QUICK = {
    "lease_ttl_s": LEASE_TTL_S,
    "patience_s": 30.0,
}
WAIT_S = 120.0
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
def crowded() -> Iterator[Crowded]:
    made = Crowded()
    yield made
    made.close()


def memory(
    medium: FakeMooncake, folder: Path, **changes: object
) -> AbstractAsyncContextManager[MooncakeTier]:
    return settled(medium, folder, **{**QUICK, **changes})


async def test_the_client_that_put_objects_clears_them_and_mounts_nothing(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    async with memory(imitated, tmp_path) as tier:
        members = await store(tier, CONTENTS)
        assert tier.dropping(list(CONTENTS)).startswith("memory of 3 objects is cleared at once")
        items = [await drop_item(tier, member) for member in members]
        assert kinds(await tier.drop(items, fence())) == ["Done"] * 3
        assert "mount" not in imitated.calls


async def dropped(tier: MooncakeTier, members: Sequence[Member]) -> None:
    """Ask again as the loop does: what could not be moved in time is left for the next time."""
    left = list(members)
    with anyio.fail_after(WAIT_S):
        while left:
            items = [await drop_item(tier, member) for member in left]
            outcomes = kinds(await tier.drop(items, fence()))
            assert set(outcomes) <= {"Done", "Retry", "Busy"}
            left = [one for one, kind in zip(left, outcomes, strict=True) if kind != "Done"]


async def test_another_client_parks_them_and_leaves_no_segment(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    async with memory(imitated, tmp_path) as tier:
        members = await store(tier, CONTENTS)
    segments = set(imitated.segments)
    async with memory(imitated, tmp_path) as tier:
        told = tier.dropping(list(CONTENTS))
        assert told.startswith("memory of 3 objects is parked, because")
        assert "cleared" not in told
        await dropped(tier, members)
        assert await states(tier, *members) == [MemberState.ABSENT] * 3
    assert "mount" in imitated.calls
    assert set(imitated.segments) == segments
    assert all(imitated.objects[member.key].disk for member in members)


async def test_what_others_put_onto_the_segment_is_moved_away_before_it_goes(
    crowded: Crowded, tmp_path: Path
) -> None:
    async with memory(crowded, tmp_path) as tier:
        members = await store(tier, CONTENTS)
    async with memory(crowded, tmp_path) as tier:
        await dropped(tier, members)
    assert crowded.objects["kv"].memory


class Awkward(FakeMooncake):
    """A Master that puts onto every new segment what its drain job may not move, or nobody sees."""

    def __init__(self) -> None:
        super().__init__()
        self.onto = ""

    def rpc_mount(self, client: str, size_bytes: int) -> list[str]:
        ids = super().rpc_mount(client, size_bytes)
        self.onto = self.segments[ids[0].removeprefix("id-")].endpoint
        self.put("pinned", pinned=True)
        self.put("one,two", pinned=True)
        self.put("unfinished", complete=False)
        return ids

    def put(self, key: str, *, complete: bool = True, pinned: bool = False) -> None:
        self._made += 1
        one = Object("a stranger", bytearray(b"cached"), complete=complete, pinned=pinned)
        one.memory[self.onto] = self._made
        self.objects[key] = one


@pytest.fixture
def awkward() -> Iterator[Awkward]:
    made = Awkward()
    yield made
    made.close()


async def waits_for(tier: MooncakeTier, why: str) -> Lot:
    """The lot, once it says that this is why it stays."""
    while True:
        lot = tier._connection.lot
        if lot is not None and why in lot.why:
            return lot
        await anyio.sleep(0.01)


async def put_by_an_earlier_client(
    medium: FakeMooncake, folder: Path, contents: dict[str, bytes] = CONTENTS
) -> list[Member]:
    async with memory(medium, folder) as tier:
        members = await store(tier, contents)
        await to_thread.run_sync(medium.settle)
    return members


@pytest.mark.one_loop
async def test_a_lot_stays_until_what_nobody_can_move_has_gone_by_itself(
    awkward: Awkward, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wait_a_little(_: object, lot: Lot) -> None:
        while True:
            pinned = awkward.objects.get("pinned")
            moved = pinned is not None and awkward.onto not in pinned.memory
            if moved and "unfinished puts" in lot.why:
                return
            await anyio.sleep(0.01)

    monkeypatch.setattr(parking, "_gone", wait_a_little)
    members = await put_by_an_earlier_client(awkward, tmp_path)
    async with memory(awkward, tmp_path) as tier:
        items = [await drop_item(tier, member) for member in members]
        first = await tier.drop(items, fence())
        assert kinds(first) == ["Retry"] * 3
        assert "unfinished puts" in str(first)
        assert {"one,two", "unfinished"} <= awkward.objects.keys()
        await tier.drop(items, fence())  # a lot is resumed
        assert awkward.calls.count("mount") == 1
        awkward.objects["unfinished"].complete = True
        lot = await waits_for(tier, "1 objects on its segment")
        del awkward.objects["one,two"]
        await lot.ended.wait()
        assert await states(tier, *members) == [MemberState.ABSENT] * 3
        assert awkward.objects["unfinished"].memory


async def test_what_is_on_the_lot_is_neither_complete_nor_rehydrated_until_it_has_gone(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    members = await put_by_an_earlier_client(imitated, tmp_path)
    async with memory(imitated, tmp_path, lease_ttl_s=1.0) as tier:
        items = [await drop_item(tier, member) for member in members]
        with anyio.CancelScope() as given_up:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(tier.drop, items, fence())
                lot = await waits_for(tier, "with a grace")
                given_up.cancel()
        assert await states(tier, *members) == [MemberState.PARTIAL] * 3
        wanted = [item_of(member, CONTENTS[member.key]) for member in members]
        assert kinds(await tier.store(wanted, fence())) == ["Done"] * 3
        assert lot.ended.is_set()
        assert await states(tier, *members) == [MemberState.COMPLETE] * 3


async def test_a_master_that_is_away_meanwhile_leaves_no_segment_behind(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    members = await put_by_an_earlier_client(imitated, tmp_path)
    segments = set(imitated.segments)
    async with memory(imitated, tmp_path) as tier:
        items = [await drop_item(tier, member) for member in members]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tier.drop, items, fence())
            lot = await waits_for(tier, "drains its segment")
            imitated.take_away()
            await waits_for(tier, "no answer")
            imitated.bring_back()
            await lot.ended.wait()
        assert set(imitated.segments) == segments
        assert await states(tier, *members) == [MemberState.ABSENT] * 3
        assert imitated.calls.count("mount") == 1


@pytest.mark.one_loop
async def test_a_move_that_fails_is_asked_for_a_few_times_only(
    imitated: FakeMooncake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (member,) = await put_by_an_earlier_client(imitated, tmp_path, {"k": b"content"})

    def fails(*_: object) -> tuple[tuple[int, int], int]:
        imitated._made += 1
        imitated.tasks[imitated._made] = ("FAILED", "NO_AVAILABLE_HANDLE")
        return (imitated._made, 0), 0

    monkeypatch.setattr(imitated, "rpc_move", fails)
    async with memory(imitated, tmp_path) as tier:
        assert kinds(await tier.drop([await drop_item(tier, member)], fence())) == ["Retry"]
        assert imitated.calls.count("move") == TRIES
        assert await states(tier, member) == [MemberState.COMPLETE]


@pytest.mark.one_loop
async def test_a_master_without_drain_jobs_is_told_and_nothing_is_mounted(
    imitated: FakeMooncake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (member,) = await put_by_an_earlier_client(imitated, tmp_path, {"k": b"content"})
    monkeypatch.setattr(imitated, "_drain", lambda *_: (404, b"{}"))
    async with memory(imitated, tmp_path) as tier:
        outcomes = await tier.drop([await drop_item(tier, member)], fence())
        assert kinds(outcomes) == ["Permanent"]
        assert "knows drain jobs" in str(outcomes)
    assert "mount" not in imitated.calls


@pytest.mark.one_loop
async def test_a_drain_whose_beginning_was_not_answered_sends_everything_back(
    imitated: FakeMooncake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = await put_by_an_earlier_client(imitated, tmp_path)
    drain, lost = imitated._drain, anyio.Event()

    def loses_one(path: str, raw: bytes) -> tuple[int, bytes]:
        answer = drain(path, raw)
        if raw and not lost.is_set():
            lost.set()
            return 200, b"{}"
        return answer

    monkeypatch.setattr(imitated, "_drain", loses_one)
    async with memory(imitated, tmp_path) as tier:
        items = [await drop_item(tier, member) for member in members]
        assert kinds(await tier.drop(items, fence())) == ["Retry"] * 3
        assert await states(tier, *members) == [MemberState.COMPLETE] * 3
        await dropped(tier, members)


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
