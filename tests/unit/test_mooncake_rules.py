"""Rules of the Mooncake adapter that are kept in one place each, over an imitated Master.

Each test fails when its rule is taken out of the adapter; the contract suite holds the others.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from anyio import to_thread

from tests.support.mooncake.fake import FakeMooncake
from tests.support.mooncake.tiers import impatient, offloaded
from weightctl.adapters.conformance.suite.material import (
    drop_item,
    fence,
    item_of,
    kinds,
    member_of,
    members_of,
    source_of,
    states,
    store,
)
from weightctl.adapters.mooncake.client.engine import Engine
from weightctl.adapters.mooncake.master.admin import Admin
from weightctl.adapters.mooncake.tier import MooncakeTier
from weightctl.controller.clock import SystemClock
from weightctl.controller.core.observation import Member, MemberState
from weightctl.controller.errors import TerminalError, TransientError
from weightctl.controller.ports import StoreItem

COMPLETE, UNKNOWN = MemberState.COMPLETE, MemberState.UNKNOWN


class Shifting(FakeMooncake):
    """A Master whose view changes, at once or with every question; and whose disks may vanish."""

    view = 1
    restless = False
    disks_vanish = False
    moves_when_read = False
    refused = "nothing"
    """Paths that begin so are answered as ever, but for the status."""

    def _answer(self, path: str) -> tuple[int, bytes]:
        status, body = self._said(path)
        return 503 if path.startswith(self.refused) else status, body

    def rpc_read(self, key: str, offset: int, size_bytes: int) -> int | bytes:
        if self.moves_when_read:
            one = self.objects[key]
            one.memory = {endpoint: at + 1 for endpoint, at in one.memory.items()}
        return super().rpc_read(key, offset, size_bytes)

    def _said(self, path: str) -> tuple[int, bytes]:
        if path == "/health":
            self.view += self.restless
            told = {"role": "leader", "service_ready": True, "view_version": self.view}
            return 200, json.dumps(told).encode()
        if path == "/get_segments_detail" and self.disks_vanish:
            for one in self.objects.values():
                one.disk = ""
        return super()._answer(path)


@pytest.fixture
def master() -> Iterator[Shifting]:
    made = Shifting()
    yield made
    made.close()


async def epoch_of(tier: MooncakeTier, member: Member) -> str:
    return (await tier.observe(members_of([member]))).epoch


async def test_a_master_that_has_forgotten_its_memory_begins_another_epoch(
    master: Shifting, tmp_path: Path
) -> None:
    async with impatient(master, tmp_path) as tier:
        member = await offloaded(tier, master)
        before = await epoch_of(tier, member)
        await to_thread.run_sync(master.restart)
        assert await epoch_of(tier, member) not in ("", before)


@pytest.mark.parametrize("path", ["/health", "/get_all_keys", "/batch_query_keys"])
async def test_what_is_said_with_another_status_is_no_answer(master: Shifting, path: str) -> None:
    """Whatever its body says: a standby's has the form of an answer."""
    admin = Admin([master.admin], 60.0, SystemClock())
    health = await to_thread.run_sync(admin.health)
    master.refused = path
    calls = {
        "/health": admin.health,
        "/get_all_keys": lambda: admin.all_keys(health),
        "/batch_query_keys": lambda: admin.query(health, ["k"]),
    }
    with pytest.raises(TransientError, match="answered 503"):
        await to_thread.run_sync(calls[path])
    await to_thread.run_sync(admin.close)


async def test_another_view_is_another_epoch(master: Shifting, tmp_path: Path) -> None:
    async with impatient(master, tmp_path) as tier:
        member = await offloaded(tier, master)
        before = await epoch_of(tier, member)
        master.view += 1
        assert await epoch_of(tier, member) not in ("", before)


async def test_an_answer_between_two_views_is_none(master: Shifting, tmp_path: Path) -> None:
    async with impatient(master, tmp_path) as tier:
        member = await offloaded(tier, master)
        master.restless = True
        assert await states(tier, member) == [UNKNOWN]
        assert await epoch_of(tier, member) == ""
        master.restless = False
        assert await states(tier, member) == [COMPLETE]


async def test_what_was_put_with_another_digest_is_not_dropped(
    master: Shifting, tmp_path: Path
) -> None:
    async with impatient(master, tmp_path) as tier:
        member = await offloaded(tier, master)
        item = await drop_item(tier, member)
        item = replace(item, member=replace(member, sha256=bytes(32)))
        assert kinds(await tier.drop([item], fence())) == ["Conflict"]
        assert master.objects["k"].memory


async def test_a_cold_copy_that_vanishes_before_the_clear_stops_it(
    master: Shifting, tmp_path: Path
) -> None:
    async with impatient(master, tmp_path) as tier:
        member = await offloaded(tier, master)
        item = await drop_item(tier, member)
        master.disks_vanish = True
        assert kinds(await tier.drop([item], fence())) == ["Busy"]
        assert master.objects["k"].memory, "it would have been the last copy"


@pytest.mark.parametrize("whole", [False, True])
async def test_what_a_reader_holds_is_busy_and_stays(
    master: Shifting, tmp_path: Path, whole: bool
) -> None:
    async with impatient(master, tmp_path) as tier:
        member = await offloaded(tier, master)
        item = replace(await drop_item(tier, member), whole=whole)
        master.objects["k"].lease_until = math.inf
        (outcome,) = await tier.drop([item], fence())
        assert kinds([outcome]) == ["Busy"]
        assert getattr(outcome, "until_ms", None) is not None
        assert master.objects["k"].memory
        assert master.objects["k"].disk


async def test_a_put_that_a_newer_term_overtook_while_it_wrote_is_taken_back(
    master: Shifting, tmp_path: Path
) -> None:
    async with impatient(master, tmp_path) as tier:

        async def overtake() -> None:
            await tier.drop([], fence(term=9))

        source = source_of(b"content", before_read=overtake)
        item = StoreItem(member=member_of("k", b"content"), open_source=source)
        assert kinds(await tier.store([item], fence(term=5))) == ["Fenced"]
    assert "k" not in master.objects


async def test_a_key_that_could_share_a_file_on_a_host_is_refused(
    master: Shifting, tmp_path: Path
) -> None:
    async with impatient(master, tmp_path) as tier:
        await store(tier, {"a/b": b"content"})
        item = item_of(member_of("a_b", b"content"), b"content")
        (outcome,) = await tier.store([item], fence())
        assert kinds([outcome]) == ["Permanent"]
        assert "share a file" in str(outcome)
    assert "a_b" not in master.objects


async def test_what_moved_while_it_was_read_is_not_verified(
    master: Shifting, tmp_path: Path
) -> None:
    async with impatient(master, tmp_path) as tier:
        member = await offloaded(tier, master)
        master.moves_when_read = True
        assert kinds(await tier.verify([member])) == ["Retry"]
        master.moves_when_read = False
        assert kinds(await tier.verify([member])) == ["Done"]


def test_a_clear_without_a_segment_which_would_be_one_of_everything_never_reaches_the_library() -> (
    None
):
    engine = Engine(memoryview(bytearray(16)), library="none", setup={})
    with pytest.raises(TerminalError, match="without a segment"):
        engine.clear(["k"], "")


@pytest.mark.parametrize("whole", [False, True])
async def test_another_copy_than_the_one_that_was_looked_at_stays(
    master: Shifting, tmp_path: Path, whole: bool
) -> None:
    async with impatient(master, tmp_path) as tier:
        member = await offloaded(tier, master)
        item = replace(await drop_item(tier, member), instance_id="another", whole=whole)
        assert kinds(await tier.drop([item], fence())) == ["Conflict"]
        assert master.objects["k"].memory


async def test_what_is_open_for_reading_here_is_busy(master: Shifting, tmp_path: Path) -> None:
    async with impatient(master, tmp_path) as tier:
        member = await offloaded(tier, master)
        item = await drop_item(tier, member)
        async with tier.open(member):
            assert kinds(await tier.drop([item], fence())) == ["Busy"]
        assert master.objects["k"].memory
        assert kinds(await tier.drop([item], fence())) == ["Done"]


async def test_bytes_of_the_same_size_that_somebody_else_put_are_not_taken_for_ours(
    master: Shifting, tmp_path: Path
) -> None:
    async with impatient(master, tmp_path / "a") as tier:
        await offloaded(tier, master)
    master.objects["k"].content[:] = b"another"
    async with impatient(master, tmp_path / "b") as tier:
        outcome = await tier.store([item_of(member_of("k", b"content"), b"content")], fence())
        assert kinds(outcome) == ["Conflict"]


async def test_a_key_that_cannot_be_kept_is_told_before_it_is_put(
    master: Shifting, tmp_path: Path
) -> None:
    async with impatient(master, tmp_path) as tier:
        await store(tier, {"a/b": b"content"})
        assert tier.unfit(member_of("a/b", b"content")) == ""
        assert "comma" in tier.unfit(member_of("a,b", b"content"))
        assert "no bytes" in tier.unfit(member_of("a", b""))
        assert "share a file with 'a/b'" in tier.unfit(member_of("a:b", b"content"))
