"""A file system that is full, and one that was made read-only: real ones, small.

The room that is left grows page by page, so each write in turn is the one that does not fit.  All
is said clearly, nothing is lost, and once there is room everything becomes as wanted, in the same
process.  That a room check lets a write begin which then does not fit is tried in
test_every_failure.py ("no room from then on").
"""

import asyncio
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from anyio import to_thread

from tests.faults.disks.failing import live_through
from tests.faults.disks.failing_journal import live_through as journal_lives_through
from tests.faults.disks.failing_journal import undisturbed
from tests.faults.disks.journal import Picture, short_limits
from tests.faults.disks.kinds import KINDS
from tests.faults.disks.product import product
from tests.support.loop_rig import IDENTITY
from tests.support.mounts import ram, remount
from weightctl.controller.core.records import Availability, Residency

PAGE_BYTES = 4096
TIER_PAGES = (0, 3, 20)
JOURNAL_PAGES = range(0, 60, 3)
SIZES = {"local_disk": 2 << 20, "dfs": 2 << 20, "nof": 12 << 20}


@dataclass(frozen=True, slots=True)
class Ballast:
    """Fills a file system but for some bytes; the room is there again at the end."""

    root: Path
    free_bytes: int

    def begin(self) -> None:
        room = os.statvfs(self.root)
        size = max(0, room.f_bavail * room.f_frsize - self.free_bytes)
        with (self.root / "ballast").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size or 1)

    def met(self) -> list[str]:
        return ["full"]

    def end(self) -> None:
        (self.root / "ballast").unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class ReadOnly:
    """A file system that refuses every change."""

    root: Path

    def begin(self) -> None:
        remount(self.root, read_only=True)

    def met(self) -> list[str]:
        return ["read-only"]

    def end(self) -> None:
        remount(self.root, read_only=False)


@pytest.mark.parametrize("name", KINDS)
def test_a_full_file_system_costs_a_tier_nothing_but_time(name: str, tmp_path: Path) -> None:
    for pages in TIER_PAGES:
        with ram(tmp_path / f"{pages}", SIZES[name]) as root:
            (root / "life").mkdir()
            trouble = Ballast(root, pages * PAGE_BYTES)
            assert asyncio.run(live_through(KINDS[name], root / "life", trouble))


@pytest.mark.parametrize("name", ["local_disk", "dfs"])
def test_a_file_system_that_is_read_only_for_a_while_costs_a_tier_nothing_but_time(
    name: str, tmp_path: Path
) -> None:
    with ram(tmp_path / "ram", SIZES[name]) as root:
        assert asyncio.run(live_through(KINDS[name], root / "life", ReadOnly(root)))


def test_a_disk_that_turns_read_only_under_a_controller_holds_up_a_deletion_and_no_more(
    tmp_path: Path,
) -> None:
    hot, state_dir = tmp_path / "hot", tmp_path / "state"
    hot.mkdir()

    async def story(disk: Path) -> None:
        async with product(disk, hot, state_dir=state_dir) as one:
            await one.put()
            await one.loop.start(Residency.COLD)
            await one.loop.converge()
            await to_thread.run_sync(partial(remount, disk, read_only=True))
            await one.check_loads()
            await one.loop.delete()
            await one.loop.settle()
            assert await one.loop.summary() == (Availability.DELETING, Residency.COLD, 0)
            said = " ".join(str(condition) for condition in one.loop.board.of(IDENTITY))
            assert "EROFS" in said, said
            await to_thread.run_sync(partial(remount, disk, read_only=False))
            await one.loop.converge()
            assert (await one.loop.record()).availability is Availability.DELETED

    with ram(tmp_path / "ram", SIZES["local_disk"]) as disk:
        asyncio.run(story(disk))


@pytest.fixture
def pictures(tmp_path: Path) -> Iterator[Sequence[Picture]]:
    with short_limits():
        yield asyncio.run(undisturbed(tmp_path / "undisturbed"))


def test_a_full_file_system_stops_the_journal_and_spoils_nothing(
    tmp_path: Path, pictures: Sequence[Picture]
) -> None:
    for pages in JOURNAL_PAGES:
        with ram(tmp_path / f"{pages}", 2 << 20) as root:
            trouble = Ballast(root, pages * PAGE_BYTES)
            assert asyncio.run(journal_lives_through(root, trouble, pictures))
