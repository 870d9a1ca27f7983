"""An object store that is stopped, killed, deaf or somebody else's; what killed writers left."""

import logging
import signal
from datetime import datetime
from pathlib import Path

import anyio
import obstore
import pytest
from anyio import to_thread
from buckets import KEYS, BucketHarness, LocalS3
from weightctl_objectstore import bucket, create, looking, names
from weightctl_objectstore.medium import MARKER
from weightctl_objectstore.options import parse
from weightctl_objectstore.uploads import Uploads

from weightctl.adapters.conformance.suite.material import (
    GROUP,
    content_of,
    context,
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
from weightctl.controller.clock import SystemClock
from weightctl.controller.core.observation import MemberState
from weightctl.controller.errors import ConfigError, ReconcileError, TerminalError, TransientError
from weightctl.controller.ports import PIECE_BYTES, Done, StoreItem

UNKNOWN, ABSENT, COMPLETE = MemberState.UNKNOWN, MemberState.ABSENT, MemberState.COMPLETE
CONTENT = content_of(1000)
MEMBER = member_of("payload", CONTENT)
LARGE = content_of(2 * PIECE_BYTES + 5)


class StandingClock(SystemClock):
    """Its wall clock stands."""

    def __init__(self, wall_s: float) -> None:
        super().__init__()
        self._wall_s = wall_s

    def wall_ms(self) -> int:
        return int(self._wall_s * 1000)


# --- no answer ------------------------------------------------------------------------------------


async def test_a_stopped_server_is_unknown_within_the_deadline_and_goes_on_afterwards(
    server: LocalS3, harness: BucketHarness
) -> None:
    late = member_of("late", CONTENT)
    async with harness.tier() as tier:
        await store_one(tier, "payload", CONTENT)
        item = await drop_item(tier, MEMBER)
    async with harness.hasty_tier() as tier:
        server.send(signal.SIGSTOP)
        try:
            with anyio.fail_after(240):
                assert await states(tier, MEMBER, late) == [UNKNOWN, UNKNOWN]
                for outcomes in (
                    await tier.store([item_of(late, CONTENT)], fence()),
                    await tier.drop([item], fence()),
                    await tier.quarantine([item], fence()),
                    await tier.verify([MEMBER]),
                ):
                    assert set(kinds(outcomes)) <= {"Retry", "Unknown"}
                with pytest.raises(ReconcileError):
                    await read_all(tier, MEMBER)
        finally:
            server.send(signal.SIGCONT)
        with anyio.fail_after(240):
            while UNKNOWN in (seen := await states(tier, MEMBER, late)):  # noqa: ASYNC110
                await anyio.sleep(0.05)
        assert seen == [COMPLETE, ABSENT]
    async with harness.tier() as tier:
        assert kinds(await tier.store([item_of(late, CONTENT)], fence())) == ["Done"]
        assert await read_all(tier, late) == CONTENT


async def test_what_was_on_its_way_when_the_server_stopped_is_for_observation_to_tell(
    server: LocalS3, harness: BucketHarness
) -> None:
    member = member_of("large", LARGE)
    pieces = 0

    async def stop() -> None:
        nonlocal pieces
        pieces += 1
        if pieces == 3:
            server.send(signal.SIGSTOP)

    async with harness.hasty_tier() as tier:
        source = source_of(LARGE, before_read=stop)
        try:
            outcomes = await tier.store([StoreItem(member=member, open_source=source)], fence())
        finally:
            server.send(signal.SIGCONT)
        assert set(kinds(outcomes)) <= {"Retry", "Unknown"}
    async with harness.tier() as tier:
        assert (await states(tier, member))[0] in (ABSENT, COMPLETE)
        assert set(kinds(await tier.store([item_of(member, LARGE)], fence()))) <= {"Done", "NoOp"}
        assert kinds(await tier.verify([member])) == ["Done"]


async def test_a_killed_server_that_comes_back_empty_is_unknown_and_not_begun_anew(
    tmp_path: Path,
) -> None:
    def reopened(harness: BucketHarness, server: LocalS3) -> None:
        harness.options = {**harness.options, "endpoint": server.endpoint}
        server.ask("PUT", f"/{harness.bucket}")

    with LocalS3() as first:
        harness = BucketHarness(tmp_path, first)
        async with harness.tier() as tier:
            await store_one(tier, "payload", CONTENT)
            await to_thread.run_sync(first.kill)
            observation = await tier.observe(members_of([MEMBER]))
            assert observation.states == bytes([UNKNOWN])
            assert not observation.epoch
    with LocalS3() as second:
        reopened(harness, second)
        async with harness.tier() as tier:
            observation = await tier.observe(members_of([MEMBER]))
            assert observation.states == bytes([UNKNOWN])
            assert f"{MARKER} is missing" in observation.problem
            assert kinds(await tier.store([item_of(MEMBER, CONTENT)], fence())) == ["Retry"]


async def test_a_store_whose_answer_is_lost_is_done_where_the_object_is_there(
    server: LocalS3, harness: BucketHarness
) -> None:
    async with harness.tier() as tier:
        await store_one(tier, "first", b"remembers the term")
        server.fail("deaf/PUT")
        (outcome,) = await tier.store([item_of(MEMBER, CONTENT)], fence())
        server.fail("well")
        assert isinstance(outcome, Done)
        assert outcome.instance_id == await instance(tier, MEMBER)
        assert kinds(await tier.verify([MEMBER])) == ["Done"]


async def test_a_drop_whose_answer_is_lost_is_unknown_and_repeated_a_no_op(
    server: LocalS3, harness: BucketHarness
) -> None:
    async with harness.tier() as tier:
        await store_one(tier, "payload", CONTENT)
        item = await drop_item(tier, MEMBER)
        used_bytes = (await tier.capacity()).used_bytes
        server.fail("deaf/POST")
        assert kinds(await tier.drop([item], fence())) == ["Unknown"]
        server.fail("well")
        assert await states(tier, MEMBER) == [ABSENT]
        assert kinds(await tier.drop([item], fence())) == ["NoOp"]
        assert (await tier.capacity()).used_bytes == used_bytes - len(CONTENT)


async def test_a_refused_completion_is_unknown_and_changes_nothing(
    server: LocalS3, harness: BucketHarness
) -> None:
    async with harness.tier() as tier:
        await store_one(tier, "first", b"remembers the term")
        server.fail("refuse/PUT")
        assert kinds(await tier.store([item_of(MEMBER, CONTENT)], fence())) == ["Unknown"]
        server.fail("well")
        assert await states(tier, MEMBER) == [ABSENT]


# --- whose place it is ----------------------------------------------------------------------------


async def test_a_place_that_holds_something_else_is_not_begun(harness: BucketHarness) -> None:
    await obstore.put_async(harness.objects, "somebody/elses", b"work")
    async with harness.tier(read_only=True) as tier:
        observation = await tier.observe(members_of([MEMBER]))
        assert observation.states == bytes([UNKNOWN])
        assert "it holds objects and no weightctl-tier.json" in observation.problem
    with pytest.raises(ConfigError, match="another prefix"):
        async with harness.tier():
            pass
    harness.server.fail("refuse")
    async with harness.tier() as tier:
        harness.server.fail("well")
        with pytest.raises(TerminalError, match="another prefix"):
            await tier.capacity()
        assert kinds(await tier.store([item_of(MEMBER, CONTENT)], fence())) == ["Permanent"]
        assert await states(tier, MEMBER) == [UNKNOWN]
    assert await to_thread.run_sync(harness.names) == ["somebody/elses"]


async def test_a_bucket_that_is_made_later_is_set_up_then(
    server: LocalS3, harness: BucketHarness
) -> None:
    harness.options = {**harness.options, "bucket": f"{harness.bucket}-later"}
    async with harness.tier() as tier:
        observation = await tier.observe(members_of([MEMBER]))
        assert observation.states == bytes([UNKNOWN])
        assert "404" in observation.problem
        await to_thread.run_sync(server.ask, "PUT", f"/{harness.bucket}-later")
        await store_one(tier, "payload", CONTENT)


async def test_two_that_begin_one_place_at_once_have_one_epoch(harness: BucketHarness) -> None:
    epochs = set()

    async def enter(host: int) -> None:
        opened = context(harness.folder / f"host-{host}")
        async with create("tier", harness.options, opened) as tier:
            epochs.add((await tier.observe(members_of([MEMBER]))).epoch)

    async with anyio.create_task_group() as group:
        for host in range(4):
            group.start_soon(enter, host)
    assert len(epochs) == 1


async def test_one_place_under_two_names_is_one_tier(harness: BucketHarness) -> None:
    async with harness.tier() as tier:
        await store_one(tier, "payload", CONTENT)
    for read_only in (True, False):
        opened = context(harness.folder / "state", read_only=read_only)
        with pytest.raises(ConfigError, match="lies where the tier 'tier' does"):
            async with create("second", harness.options, opened):
                pass


async def test_a_state_directory_that_cannot_keep_the_medium_is_unknown(
    harness: BucketHarness,
) -> None:
    (harness.folder / "state").write_bytes(b"a file where the folder should be")
    async with harness.tier() as tier:
        observation = await tier.observe(members_of([MEMBER]))
        assert observation.states == bytes([UNKNOWN])
        assert "ENOTDIR" in observation.problem


@pytest.mark.parametrize(
    "marker",
    [b"", b"{}", b"[1]", b'{"format": 9}', b'{"format":1,"uuid":"","owner":"","terms":{}}'],
)
async def test_a_marker_that_cannot_be_read_is_unknown(
    harness: BucketHarness, marker: bytes
) -> None:
    async with harness.tier() as tier:
        await store_one(tier, "payload", CONTENT)
        await obstore.put_async(harness.objects, MARKER, marker)
        assert await states(tier, MEMBER) == [UNKNOWN]
        assert not {*kinds(await tier.verify([MEMBER]))} & {"Done", "Conflict"}


async def test_objects_of_others_below_the_prefix_are_left_alone(harness: BucketHarness) -> None:
    foreign = f"replicas/{names.encode(GROUP)}/payload/notes.txt"
    async with harness.tier() as tier:
        await store_one(tier, "payload", CONTENT)
        await obstore.put_async(harness.objects, foreign, b"notes")
        assert kinds(await tier.drop([await drop_item(tier, MEMBER)], fence())) == ["Done"]
        assert await states(tier, MEMBER) == [ABSENT]
        assert not await tier.inventory()
    assert foreign in await to_thread.run_sync(harness.names)


# --- uploads --------------------------------------------------------------------------------------


async def test_what_a_killed_writer_sent_is_swept_when_it_is_old_enough(
    harness: BucketHarness,
) -> None:
    """Moto says of every upload that it was begun in 2010."""
    async with harness.tier() as tier:
        await store_one(tier, "payload", CONTENT)
    await to_thread.run_sync(harness.kill_writer, member_of("large", LARGE), LARGE)
    assert len(await to_thread.run_sync(harness.uploads)) == 1
    soon_s = datetime.fromisoformat("2010-11-10T20:49:00Z").timestamp()
    young = Uploads(parse("tier", harness.options), StandingClock(soon_s))
    assert await to_thread.run_sync(young.sweep) == 0
    assert len(await to_thread.run_sync(harness.uploads)) == 1
    async with harness.tier_of("store-b"):
        assert len(await to_thread.run_sync(harness.uploads)) == 1
    async with harness.tier(read_only=True):
        assert len(await to_thread.run_sync(harness.uploads)) == 1
    async with harness.tier() as tier:
        assert await to_thread.run_sync(harness.uploads) == []
        assert await states(tier, MEMBER) == [COMPLETE]


@pytest.mark.parametrize("hurt", ["digest", "source", "cancelled"])
async def test_an_upload_that_is_given_up_is_taken_back(harness: BucketHarness, hurt: str) -> None:
    member = member_of("large", LARGE)
    pieces = 0

    async def before_read() -> None:
        nonlocal pieces
        pieces += 1
        if pieces == 3 and hurt == "source":
            raise TransientError("the source", "it is gone")
        if pieces == 3 and hurt == "cancelled":
            scope.cancel()
            await anyio.sleep_forever()

    content = LARGE[:-1] + b"?" if hurt == "digest" else LARGE
    source = source_of(content, before_read=before_read)
    async with harness.tier() as tier:
        with anyio.CancelScope() as scope:
            outcomes = await tier.store([StoreItem(member=member, open_source=source)], fence())
            assert kinds(outcomes) == ["Corrupt" if hurt == "digest" else "Retry"]
    assert await to_thread.run_sync(harness.uploads) == []
    assert await to_thread.run_sync(harness.names) == [MARKER]


# --- long groups ----------------------------------------------------------------------------------


async def test_few_keys_of_a_group_longer_than_a_page_are_asked_for_alone(
    harness: BucketHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket, "PAGE", 3)
    monkeypatch.setattr(looking, "PAGE", 3)
    monkeypatch.setattr(looking, "FEW", 4)
    keys = [f"key {number}" for number in range(10)]
    async with harness.tier() as tier:
        members = await store(tier, {key: key.encode() for key in keys})
        absent = member_of("key 2.5", b"")
        for asked in ([members[9], absent, members[0]], [*members, absent]):
            expected = [ABSENT if member is absent else COMPLETE for member in asked]
            assert await states(tier, *asked) == expected
        assert len((await tier.inventory())[GROUP]) == 10
        assert kinds(await tier.drop([await drop_item(tier, members[9])], fence())) == ["Done"]
        assert await states(tier, members[9], members[8]) == [ABSENT, COMPLETE]


# --- secrets --------------------------------------------------------------------------------------


async def test_keys_are_in_no_message_and_no_log(
    server: LocalS3, harness: BucketHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    said = []
    async with harness.tier() as tier:
        await store_one(tier, "payload", CONTENT)
        said.append(repr(tier.profile))
        server.fail("refuse")
        said.append((await tier.observe(members_of([MEMBER]))).problem)
        said.append(repr(await tier.store([item_of(member_of("b", b""), b"")], fence())))
        with pytest.raises(ReconcileError) as caught:
            await tier.capacity()
        said.append(str(caught.value))
    async with harness.tier():
        pass
    server.fail("well")
    await to_thread.run_sync(server.fail, "refuse/GET")
    with pytest.raises(ConfigError) as refused:
        create("tier", {**harness.options, "bukcet": "x"}, context(harness.folder))
    said += [str(refused.value), caplog.text]
    for secret in KEYS.values():
        assert not [text for text in said if secret in text]
    assert "503" in said[1]
