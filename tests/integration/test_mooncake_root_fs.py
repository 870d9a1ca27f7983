"""The tier `mooncake-disk` beside a real Master with `--root_fs_dir`: files are the cold copies.

What is relied on is in tests/contract/test_mooncake_root_fs.py; here is what weightctl makes of it.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest
from anyio import to_thread

from tests.support.mooncake.below_fs import below_fs, tiers
from tests.support.mooncake.driven import client
from tests.support.mooncake.lab import (
    PATIENT,
    SOON_DISCARDED,
    Cluster,
    cluster,
    needs_wheel,
    until,
)
from weightctl.adapters.conformance.suite.material import (
    content_of,
    drop_item,
    fence,
    item_of,
    kinds,
    member_of,
    members_of,
    read_all,
    states,
    store,
)
from weightctl.adapters.mooncake.client.transfers import put as session_put
from weightctl.adapters.mooncake.connection import Connection
from weightctl.adapters.mooncake.root_fs import putting
from weightctl.adapters.mooncake.root_fs.engine import KEPT
from weightctl.adapters.mooncake.root_fs.tier import DiskTier
from weightctl.adapters.mooncake.tier import MooncakeTier
from weightctl.controller.core.observation import Member, MemberState
from weightctl.controller.errors import TransientError
from weightctl.controller.ports import Outcome, Retry, StoreItem

pytestmark = needs_wheel

COMPLETE, ABSENT, UNKNOWN = MemberState.COMPLETE, MemberState.ABSENT, MemberState.UNKNOWN
KEY = "weights/a/payload"
CONTENT = content_of(9_000_000)


@pytest.fixture(scope="module")
def shared_master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with below_fs(tmp_path_factory.mktemp("shared"), *SOON_DISCARDED) as made:
        yield made


@pytest.fixture
def real(shared_master: Cluster, tmp_path: Path) -> Cluster:
    """Emptied, also of what a test that has failed did not end; its host offloads nothing."""
    shared_master.remove_all()
    return shared_master


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Cluster]:
    with below_fs(tmp_path / "cluster") as made:
        yield made


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[Cluster]:
    """A Master that soon releases what was begun and not ended."""
    short = ("--put_start_discard_timeout_sec=1", "--put_start_release_timeout_sec=2")
    with below_fs(tmp_path / "cluster", *short) as made:
        yield made


async def put(memory: MooncakeTier, disk: DiskTier) -> Member:
    (member,) = await store(memory, {KEY: CONTENT})
    assert kinds(await disk.store([item_of(member, CONTENT)], fence())) == ["NoOp"]
    return member


async def evicted(memory: MooncakeTier, member: Member) -> None:
    assert kinds(await memory.drop([await drop_item(memory, member)], fence())) == ["Done"]


async def file_of(real: Cluster) -> Path:
    entry = await to_thread.run_sync(real.entry, KEY)
    return Path(entry["disk_values"][0]["file_path"])


async def files_below(path: Path) -> set[str]:
    """Names of all files of the cluster's folder but the sign and those of small objects."""
    root = path.parents[2]

    def names() -> set[str]:
        found = {one.name for one in root.rglob("*") if one.is_file()}
        return {name for name in found if not name.startswith("weightctl-")}

    return await to_thread.run_sync(names)


async def when(what: str, holds: Callable[[], bool]) -> None:
    await to_thread.run_sync(until, what, holds)


async def test_a_whole_life_leaves_nothing(real: Cluster, tmp_path: Path) -> None:
    async with tiers(real, tmp_path) as (memory, disk):
        member = await put(memory, disk)
        path = await file_of(real)
        assert kinds(await disk.verify([member])) == ["Done"]
        await evicted(memory, member)
        assert (await states(memory, member), await states(disk, member)) == ([ABSENT], [COMPLETE])
        assert await read_all(disk, member) == CONTENT
        taken = await to_thread.run_sync(real.entry, KEY)
        assert not taken["values"], "reading the file promotes nothing"
        back = StoreItem(member=member, open_source=lambda: disk.open(member))
        assert kinds(await memory.store([back], fence())) == ["Done"]
        assert (await states(memory, member), await states(disk, member)) == (
            [COMPLETE],
            [COMPLETE],
        )
        assert await files_below(path) == {path.name}
        item = replace(await drop_item(memory, member), whole=True)
        assert kinds(await memory.drop([item], fence())) == ["Done"]
        assert await states(disk, member) == [ABSENT]
        assert not await files_below(path)
        assert not await disk.inventory()


async def test_a_master_that_was_restarted_has_lost_the_objects_and_the_files_count(
    own: Cluster, tmp_path: Path
) -> None:
    async with tiers(own, tmp_path / "s") as (memory, disk):
        member = await put(memory, disk)
        path = await file_of(own)
    await to_thread.run_sync(own.stop_master)
    await to_thread.run_sync(own.start_master)
    await when("the host is back", lambda: '"OK"' in own.get("/get_segments_detail"))
    async with tiers(own, tmp_path / "s") as (memory, disk):
        assert await states(memory, member) == [ABSENT]
        assert await states(disk, member) == [COMPLETE]
        observed = await disk.observe(members_of([member]), detail=[0])
        assert observed.details[0].sha256 == member.sha256
        assert await read_all(disk, member) == CONTENT
        back = StoreItem(member=member, open_source=lambda: disk.open(member))
        assert kinds(await memory.store([back], fence())) == ["Done"]
        await evicted(memory, member)
        assert await file_of(own) == path
        assert await read_all(disk, member) == CONTENT
        await to_thread.run_sync(own.stop_master)
        await to_thread.run_sync(own.start_master)
        await when("the host is back", lambda: '"OK"' in own.get("/get_segments_detail"))
        while await states(disk, member) != [COMPLETE]:  # until our client is connected again
            pass
        item = await drop_item(disk, member)
        assert kinds(await disk.drop([replace(item, whole=True)], fence())) == ["Done"]
        assert await states(disk, member) == [ABSENT]
        assert not await files_below(path)


async def test_what_was_removed_to_be_put_anew_and_was_not_is_kept_beside_and_comes_back(
    real: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ends_there(*_: object) -> int:
        raise TransientError("the process", "it was killed")

    async with tiers(real, tmp_path) as (memory, disk):
        member = await put(memory, disk)
        path = await file_of(real)
        await evicted(memory, member)
        with monkeypatch.context() as patched:
            patched.setattr(putting, "_put", ends_there)
            assert kinds(await memory.store([item_of(member, CONTENT)], fence())) == ["Retry"]
    async with tiers(real, tmp_path) as (memory, disk):
        assert await files_below(path) == {path.name + KEPT}
        assert (await states(memory, member), await states(disk, member)) == ([ABSENT], [COMPLETE])
        assert kinds(await disk.verify([member])) == ["Done"]
        assert kinds(await disk.store([item_of(member, CONTENT)], fence())) == ["NoOp"]
        back = StoreItem(member=member, open_source=lambda: disk.open(member))
        assert kinds(await memory.store([back], fence())) == ["Done"]
        assert await files_below(path) == {path.name}
        await evicted(memory, member)


async def test_what_a_stranger_puts_meanwhile_costs_no_file(
    real: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def strangers_put() -> int:
        with client(real) as stranger:
            assert stranger(f"store.put({KEY!r}, b'z' * {len(CONTENT)}, config())") == 0
            # Ended before its file is written, it leaves what cannot be removed for minutes.
            until("its file is written", lambda: bool(real.entry(KEY)["disk_values"]))
        return 0

    async def comes_first(*_: object) -> int:
        return await to_thread.run_sync(strangers_put)

    async with tiers(real, tmp_path) as (memory, disk):
        member = await put(memory, disk)
        await evicted(memory, member)
        with monkeypatch.context() as patched:
            patched.setattr(putting, "_put", comes_first)
            assert kinds(await memory.store([item_of(member, CONTENT)], fence())) == ["Conflict"]
        observed = await memory.observe(members_of([member]), detail=[0])
        assert observed.details[0].sha256 is None
        assert await states(disk, member) == [COMPLETE]
        assert kinds(await disk.verify([member])) == ["Done"]
        assert await read_all(disk, member) == CONTENT


async def test_beside_another_masters_store_in_the_same_folder_nothing_is_touched(
    own: Cluster, tmp_path: Path
) -> None:
    root = f"--root_fs_dir={tmp_path / 'cluster' / 'fs'}"
    async with tiers(own, tmp_path / "a") as (memory, disk):
        member = await put(memory, disk)
        await evicted(memory, member)

        def beside() -> AbstractContextManager[Cluster]:
            (tmp_path / "other").mkdir()
            return cluster(
                tmp_path / "other", PATIENT, root, hosts=1, segment_mib=64, offload=False
            )

        manager = await to_thread.run_sync(beside)
        other = await to_thread.run_sync(manager.__enter__)
        try:
            async with tiers(other, tmp_path / "b", holder="store-b") as (theirs, _):
                outcomes = await theirs.store([item_of(member, CONTENT)], fence())
                assert kinds(outcomes) == ["Permanent"]
                assert "belongs to another store" in str(outcomes[0])
        finally:
            await to_thread.run_sync(manager.__exit__, None, None, None)
        assert await states(disk, member) == [COMPLETE]
        assert await read_all(disk, member) == CONTENT


async def test_a_file_that_is_gone_is_absent_justifies_nothing_and_is_written_again(
    real: Cluster, tmp_path: Path
) -> None:
    async with tiers(real, tmp_path, patience_s=0.001) as (memory, disk):
        member = await put(memory, disk)
        path = await file_of(real)
        await to_thread.run_sync(path.unlink)
        assert await states(disk, member) == [ABSENT]
        item = await drop_item(memory, member)
        assert kinds(await memory.drop([item], fence())) == ["Busy"]
        again = StoreItem(member=member, open_source=lambda: memory.open(member))
        assert kinds(await disk.store([again], fence())) == ["Done"]
        assert await to_thread.run_sync(path.read_bytes) == CONTENT
        assert await files_below(path) == {path.name}


async def test_a_file_that_was_changed_is_told_as_damaged_set_aside_and_written_again(
    real: Cluster, tmp_path: Path
) -> None:
    async with tiers(real, tmp_path, patience_s=0.001) as (memory, disk):
        member = await put(memory, disk)
        path = await file_of(real)
        await to_thread.run_sync(path.write_bytes, b"y" * len(CONTENT))
        observed = await disk.observe(members_of([member]), detail=[0])
        assert observed.details[0].sha256 is None
        item = await drop_item(memory, member)
        assert kinds(await memory.drop([item], fence())) == ["Busy"]
        assert kinds(await disk.verify([member])) == ["Corrupt"]
        bad = await drop_item(disk, member)
        assert kinds(await disk.quarantine([bad], fence())) == ["Done"]
        assert await states(disk, member) == [ABSENT]
        assert kinds(await disk.store([item_of(member, CONTENT)], fence())) == ["Done"]
        assert await read_all(disk, member) == CONTENT


async def test_what_is_not_mounted_is_unknown_and_never_absent(
    real: Cluster, tmp_path: Path
) -> None:
    async with tiers(real, tmp_path) as (memory, disk):
        member = await put(memory, disk)
        folder = (await file_of(real)).parents[2]
        aside = folder.with_name("aside")
        await to_thread.run_sync(folder.rename, aside)
        try:
            observed = await disk.observe(members_of([member]))
            assert [*observed.states] == [UNKNOWN]
            assert "may not be mounted on this host" in observed.problem
            assert kinds(await disk.verify([member])) == ["Retry"]
            item = await drop_item(memory, member)
            assert kinds(await memory.drop([item], fence())) == ["Retry"]
        finally:
            await to_thread.run_sync(aside.rename, folder)
        assert await states(disk, member) == [COMPLETE]


async def test_a_put_that_was_killed_before_its_file_is_put_anew_once_that_is_released(
    hasty: Cluster, tmp_path: Path
) -> None:
    """A session leaves what such a put leaves; the bytes come from outside of the cluster."""
    async with tiers(hasty, tmp_path / "s", patience_s=0.001) as (memory, disk):
        member, disk.connection.disk = member_of(KEY, CONTENT), None
        while await states(memory, member) != [COMPLETE]:
            await memory.store([item_of(member, CONTENT)], fence())
        disk.connection.disk = disk.files
        again = StoreItem(member=member, open_source=lambda: memory.open(member))
        importing = replace(fence(), operation_id=0)
        (outcome,) = await disk.store([item_of(member, CONTENT)], fence())
        assert isinstance(outcome, Retry), "a published revision's memory stays"
        (outcome,) = await disk.store([again], importing)
        assert isinstance(outcome, Retry)
        assert "nothing else is known to hold its bytes" in outcome.detail
        seen = set[str]()
        while await states(disk, member) != [COMPLETE]:
            seen.update(kinds(await disk.store([item_of(member, CONTENT)], importing)))
        assert seen <= {"Busy", "Retry", "Done"}
        assert await read_all(disk, member) == CONTENT


@pytest.mark.parametrize("wrote", [True, False], ids=["its file written", "no file"])
async def test_what_a_killed_rehydrate_has_brought_is_read_and_can_be_evicted_again(
    hasty: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrote: bool
) -> None:
    """Nobody saw the end of its put, so that the book does not say what lies in memory."""

    async def is_killed(*_: object, **__: object) -> Outcome:
        raise TransientError("the process", "it was killed")

    async def without_a_file(connection: Connection, member: Member) -> int:
        await session_put(connection, item_of(member, CONTENT), fence(), None)
        await is_killed()
        return 0

    async with tiers(hasty, tmp_path / "s", patience_s=0.001) as (memory, disk):
        member = await put(memory, disk)
        assert kinds(await disk.verify([member])) == ["Done"]
        await dropped(memory, member)
        with monkeypatch.context() as patched:
            if wrote:
                patched.setattr(putting, "settle", is_killed)
            else:
                patched.setattr(putting, "_put", without_a_file)
            assert kinds(await memory.store([item_of(member, CONTENT)], fence())) == ["Retry"]
            if wrote:
                entries = disk.connection.look.entries
                while not (await entries([KEY]))[0][KEY].disk:
                    pass
    async with tiers(hasty, tmp_path / "s", patience_s=0.001) as (memory, disk):
        assert (await states(memory, member), await states(disk, member)) == (
            [COMPLETE],
            [COMPLETE],
        )
        await dropped(memory, member)
        assert (await states(memory, member), await states(disk, member)) == ([ABSENT], [COMPLETE])
        assert kinds(await disk.verify([member])) == ["Done"]
        assert await read_all(disk, member) == CONTENT
        back = StoreItem(member=member, open_source=lambda: disk.open(member))
        assert kinds(await memory.store([back], fence())) == ["Done"]


async def dropped(memory: MooncakeTier, member: Member) -> None:
    """Drop its memory, however often that has to be asked for."""
    seen = set[str]()
    while "Done" not in seen:
        seen.update(kinds(await memory.drop([await drop_item(memory, member)], fence())))
    assert seen <= {"Busy", "Retry", "Done"}
