"""File tiers against what happens to real folders: strangers, crashes, full and read-only media."""

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from tests.support.file_media import FileHarness
from tests.support.mounts import cannot
from weightctl.adapters import local_disk, memory
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
from weightctl.adapters.shared import drafts
from weightctl.adapters.shared.layout import GROUPS, encode_text
from weightctl.controller.core.observation import MemberState
from weightctl.controller.errors import ConfigError, IntegrityError, ReconcileError
from weightctl.controller.ports import Corrupt, DropItem, StoreItem, Tier

UNKNOWN, ABSENT, COMPLETE = MemberState.UNKNOWN, MemberState.ABSENT, MemberState.COMPLETE


@pytest.fixture
def harness(tmp_path: Path) -> FileHarness:
    return FileHarness("weightctl.adapters.local_disk:factory", tmp_path)


@pytest.fixture
async def tier(harness: FileHarness) -> AsyncIterator[Tier]:
    async with harness.tier() as tier:
        yield tier


def group_folder(harness: FileHarness) -> Path:
    return harness.root / GROUPS / encode_text(GROUP)


# --- strangers ---


async def test_foreign_files_and_links_are_not_seen_and_stay(
    harness: FileHarness, tier: Tier, tmp_path: Path
) -> None:
    member = await store_one(tier, "payload", b"content")
    linked = member_of("linked", b"secret")
    path = await to_thread.run_sync(harness.replica, member)
    folder = group_folder(harness)
    target = tmp_path / "secret"
    link = folder / f"linked~{linked.sha256.hex()}~{'1' * 16}"
    readme = folder / "README"

    def plant() -> None:
        target.write_bytes(b"secret")
        link.symlink_to(target)
        readme.write_text("mine")
        (folder / f"folder~{'0' * 64}~{'0' * 16}").mkdir()

    await to_thread.run_sync(plant)
    assert await states(tier, member, linked, member_of("folder", b"")) == [
        COMPLETE, ABSENT, ABSENT,
    ]  # fmt: skip
    with pytest.raises(ReconcileError):
        async with tier.open(linked):
            pass
    items = [DropItem(member=linked, instance_id="1" * 16), await drop_item(tier, member)]
    assert kinds(await tier.drop(items, fence())) == ["NoOp", "Done"]
    assert [item.key for item in (await tier.inventory()).get(GROUP, ())] == []
    found = sorted(entry.name for entry in await to_thread.run_sync(lambda: [*folder.iterdir()]))
    assert len(found) == 3
    assert not await to_thread.run_sync(path.exists)
    assert await to_thread.run_sync(target.read_bytes) == b"secret"


@pytest.mark.parametrize("what", [GROUPS, f"{GROUPS}/{encode_text(GROUP)}"])
async def test_a_folder_that_became_a_link_is_unknown(
    harness: FileHarness, tier: Tier, what: str
) -> None:
    member = await store_one(tier, "payload", b"content")
    item = await drop_item(tier, member)
    path, aside = harness.root / what, harness.folder / "aside"

    def turn_into_link() -> None:
        path.rename(aside)
        path.symlink_to(aside)

    await to_thread.run_sync(turn_into_link)
    assert await states(tier, member) == [UNKNOWN]
    for act in (tier.drop, tier.quarantine):
        assert kinds(await act([item], fence())) == ["Permanent"]
    assert kinds(await tier.store([item_of(member, b"content")], fence())) == ["Permanent"]
    assert len(await to_thread.run_sync(lambda: [*aside.rglob("payload~*")])) == 1


async def test_a_lost_long_name_makes_the_inventory_fail_and_nothing_else(
    harness: FileHarness, tier: Tier
) -> None:
    member = await store_one(tier, "k" * 1000, b"content")
    name_file = group_folder(harness) / f"{encode_text(member.key)}~name"
    assert await to_thread.run_sync(name_file.read_text) == member.key
    await to_thread.run_sync(name_file.unlink)
    with pytest.raises(ReconcileError, match="full name"):
        await tier.inventory()
    assert await read_all(tier, member) == b"content"
    await tier.drop([await drop_item(tier, member)], fence())
    assert await tier.inventory() == {}


async def test_two_tiers_are_refused_one_root(harness: FileHarness, tier: Tier) -> None:
    options = {"path": str(harness.root)}
    other = memory.factory("other", options, context(harness.folder / "other"))
    with pytest.raises(ConfigError, match="belongs to a local_disk tier"):
        await other.__aenter__()


# --- writers ---


async def test_two_writers_of_one_key_converge(harness: FileHarness, tier: Tier) -> None:
    content = content_of(1000)
    member = member_of("payload", content)
    async with harness.tier() as second:

        async def other_first() -> None:
            assert kinds(await second.store([item_of(member, content)], fence())) in (
                ["Busy"], ["Done"], ["NoOp"],
            )  # fmt: skip

        source = source_of(content, before_read=other_first)
        outcomes = await tier.store([StoreItem(member=member, open_source=source)], fence())
        assert kinds(outcomes) == ["Done"]
        for one in (tier, second):
            assert await states(one, member) == [COMPLETE]
            assert await read_all(one, member) == content
        while await states(tier, member) != [ABSENT]:
            assert kinds(await tier.drop([await drop_item(tier, member)], fence())) == ["Done"]
        assert not await second.inventory()


async def test_a_duplicated_item_spoils_nothing(tier: Tier) -> None:
    member, other = member_of("payload", b"content"), member_of("other", b"other")
    batch = [item_of(member, b"content"), item_of(member, b"content"), item_of(other, b"other")]
    outcomes = kinds(await tier.store(batch, fence()))
    assert sorted(outcomes[:2]) == ["Busy", "Done"]
    assert outcomes[2] == "Done"
    item = await drop_item(tier, member)
    assert kinds(await tier.drop([item, item], fence())) == ["Done", "NoOp"]


async def test_a_live_writer_of_another_process_is_partial_and_its_file_stays(
    harness: FileHarness, tier: Tier
) -> None:
    content = content_of(200)
    member = await store_one(tier, "kept", b"kept")
    member = member_of("payload", content)
    name = f"payload~{member.sha256.hex()}~{'7' * 16}.partial"
    path = group_folder(harness) / name
    script = (
        "import fcntl, sys; f = open(sys.argv[1], 'xb'); fcntl.flock(f, fcntl.LOCK_EX);"
        "print('locked', flush=True); sys.stdin.read()"
    )

    def spawn() -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-c", script, str(path)]
        child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert child.stdout is not None
        assert child.stdout.readline() == b"locked\n"
        return child

    def kill(child: subprocess.Popen[bytes]) -> None:
        child.send_signal(signal.SIGKILL)
        child.communicate()

    child = await to_thread.run_sync(spawn)
    try:
        assert await states(tier, member) == [MemberState.PARTIAL]
        assert kinds(await tier.store([item_of(member, content)], fence())) == ["Busy"]
        item = DropItem(member=member, instance_id="7" * 16)
        assert kinds(await tier.drop([item], fence())) == ["Busy"]
        async with harness.tier():
            assert await to_thread.run_sync(path.exists)
    finally:
        await to_thread.run_sync(kill, child)
    assert await states(tier, member) == [ABSENT]
    assert kinds(await tier.store([item_of(member, content)], fence())) == ["Done"]
    assert not await to_thread.run_sync(path.exists)


async def test_a_replica_that_was_renamed_and_not_synchronised_is_partial(
    harness: FileHarness, tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = content_of(50)
    member = member_of("payload", content)
    seen: list[list[MemberState]] = []
    looked: list[int] = []
    real = os.fsync

    def look_before_folder_is_synchronised(fd: int) -> None:
        names = [path.name for path in group_folder(harness).glob("payload~*")]
        if names and not names[0].endswith(".partial") and not looked:
            looked.append(fd)  # looking synchronises, too
            seen.append(anyio.from_thread.run(states, tier, member))
        real(fd)

    monkeypatch.setattr(os, "fsync", look_before_folder_is_synchronised)
    assert kinds(await tier.store([item_of(member, content)], fence())) == ["Done"]
    assert seen == [[MemberState.PARTIAL]]
    assert await states(tier, member) == [COMPLETE]


async def test_a_folder_that_cannot_be_synchronised_is_no_success(
    harness: FileHarness, tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store_one(tier, "first", b"first")
    member = member_of("payload", b"content")
    real = os.fsync

    def fail_for_folders(fd: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{fd}"):  # noqa: PTH112
            raise OSError(errno.EIO, "failed")
        real(fd)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail_for_folders)
        assert kinds(await tier.store([item_of(member, b"content")], fence())) == ["Unknown"]
        assert kinds(await tier.verify([member])) == ["Retry"]
        assert await states(tier, member) == [MemberState.UNKNOWN]
        name = (await to_thread.run_sync(harness.replica, member)).name
        item = DropItem(member=member, instance_id=name.rpartition("~")[2])
        assert kinds(await tier.quarantine([item], fence())) == ["Unknown"]
    assert kinds(await tier.drop([item], fence())) == ["Done"]


async def test_a_truncated_replica_is_not_handed_out_and_found_corrupt(
    harness: FileHarness, tier: Tier
) -> None:
    member = await store_one(tier, "payload", content_of(100))
    path = await to_thread.run_sync(harness.replica, member)
    await to_thread.run_sync(os.truncate, path, 50)
    with pytest.raises(IntegrityError):
        async with tier.open(member):
            pass
    (outcome,) = await tier.verify([member])
    assert isinstance(outcome, Corrupt)
    assert outcome.instance_id == await instance(tier, member)
    observation = await tier.observe(members_of([member]), detail=[0])
    assert observation.details[0].size_bytes == 50
    assert kinds(await tier.store([item_of(member, content_of(100))], fence())) == ["Conflict"]


@pytest.mark.parametrize(
    "number, outcome",
    [(errno.ENOSPC, "NoCapacity"), (errno.EDQUOT, "NoCapacity"), (errno.EIO, "Retry"),
     (errno.EROFS, "Permanent")],
)  # fmt: skip
async def test_a_failing_write_publishes_nothing(
    tier: Tier, monkeypatch: pytest.MonkeyPatch, number: int, outcome: str
) -> None:
    await tier.drop([], fence())
    members = [member_of(key, b"content") for key in ("a", "b")]

    def fail(fd: int, view: memoryview, offset: int) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(drafts, "write_at", fail)
        batch = [item_of(member, b"content") for member in members]
        assert kinds(await tier.store(batch, fence())) == [outcome] * 2
    assert await states(tier, *members) == [ABSENT] * 2
    assert not await tier.inventory()
    assert (await tier.capacity()).used_bytes == 0


# --- real small file systems, where this machine lets us mount them ---


@pytest.fixture
def small_disk(harness: FileHarness) -> Iterator[Path]:
    harness.root.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", "size=8m", "weightctl-test", str(harness.root)]
    mount = shutil.which("mount")
    if mount is None or subprocess.run(argv, capture_output=True, check=False).returncode:
        cannot("mounting is not allowed here")
    yield harness.root
    subprocess.run(["umount", "-l", str(harness.root)], check=True)


async def test_a_full_disk_is_no_capacity_and_frees_what_it_took(
    small_disk: Path, tier: Tier
) -> None:
    filler = small_disk.parent / "root" / "filler"  # what others put on the same disk
    await to_thread.run_sync(filler.write_bytes, bytes(5 * 1024 * 1024))
    member = member_of("payload", content_of(4 * 1024 * 1024))
    outcomes = await tier.store([item_of(member, content_of(4 * 1024 * 1024))], fence())
    assert kinds(outcomes) == ["NoCapacity"]
    assert await states(tier, member) == [ABSENT]
    await store_one(tier, "small", content_of(1024 * 1024))


async def test_a_read_only_disk_is_permanent_and_still_read(small_disk: Path, tier: Tier) -> None:
    member = await store_one(tier, "payload", b"content")
    item = await drop_item(tier, member)
    argv = ["mount", "-o", "remount,ro", str(small_disk)]
    await to_thread.run_sync(lambda: subprocess.run(argv, check=True))
    other = member_of("other", b"other")
    assert kinds(await tier.store([item_of(other, b"other")], fence())) == ["Permanent"]
    assert kinds(await tier.drop([item], fence())) == ["Permanent"]
    assert kinds(await tier.quarantine([item], fence())) == ["Permanent"]
    assert await states(tier, member, other) == [COMPLETE, ABSENT]
    assert await read_all(tier, member) == b"content"
    assert kinds(await tier.verify([member])) == ["Done"]


async def test_an_unmounted_disk_is_unknown_and_never_empty(
    small_disk: Path, harness: FileHarness, tier: Tier
) -> None:
    member = await store_one(tier, "payload", b"content")
    argv = ["umount", "-l", str(small_disk)]
    await to_thread.run_sync(lambda: subprocess.run(argv, check=True))
    assert await states(tier, member) == [UNKNOWN]
    async with harness.tier() as again:
        assert await states(again, member) == [UNKNOWN]
        assert not [*await to_thread.run_sync(os.listdir, small_disk)]
    argv = ["mount", "-t", "tmpfs", "weightctl-test", str(small_disk)]  # for the fixture's umount
    await to_thread.run_sync(lambda: subprocess.run(argv, check=True))
    assert await states(tier, member) == [UNKNOWN]


# --- the factories ---


async def test_memory_lies_in_shared_memory_by_default(tmp_path: Path) -> None:
    tier = memory.factory("memory", {}, context(tmp_path))
    member = member_of("payload", b"content")
    async with tier:
        await store(tier, {"payload": b"content"})
        path = await to_thread.run_sync(tier.map_path, member)
        assert path is not None
        assert path.startswith("/dev/shm/weightctl-")
        assert (await tier.observe(members_of([member]))).epoch.count(":") == 1
    await to_thread.run_sync(shutil.rmtree, Path(path).parents[2])


@pytest.mark.parametrize("factory", [memory.factory, local_disk.factory])
async def test_an_unknown_option_is_refused(factory: object, tmp_path: Path) -> None:
    assert callable(factory)
    with pytest.raises(ConfigError, match="unknown option 'pth'"):
        factory("tier", {"pth": "x"}, context(tmp_path))


def test_a_disk_needs_a_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'path'"):
        local_disk.factory("disk", {}, context(tmp_path))
