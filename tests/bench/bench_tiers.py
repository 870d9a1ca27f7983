"""Tiers of files beside what they are made of: copying, hashing, listing, unlinking.

Contenders of a comparison run in turn, several times, on the same data with warm caches, and the
best of each counts, so that another load on the machine hits all alike.  A ratio of 1 is the floor.
"""

import asyncio
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from time import perf_counter

from tests.bench.report import row
from weightctl.adapters import local_disk, memory
from weightctl.adapters.conformance.suite.material import (
    content_of,
    context,
    fence,
    item_of,
    member_of,
    members_of,
)
from weightctl.controller.core.observation import Member, Members
from weightctl.controller.ports import PIECE_BYTES, Done, DropItem, StoreItem, Tier

SIZE_BYTES = 512 * 1024**2
MEMBERS = 50_000
SMALL = 2_000
BATCH = 256
ROUNDS = 5

Run = Callable[[], Awaitable[None]]


async def best_of(
    contenders: dict[str, Run], rounds: int = ROUNDS, prepare: Run | None = None
) -> dict[str, float]:
    """Seconds of the best run of each; they take turns.  `prepare` is not measured."""
    best: dict[str, float] = dict.fromkeys(contenders, float("inf"))
    for _ in range(rounds):
        for name, run in contenders.items():
            if prepare is not None:
                await prepare()
            start = perf_counter()
            await run()
            best[name] = min(best[name], perf_counter() - start)
    return best


def blocking(call: Callable[[], object]) -> Run:
    """A plain call as a contender."""

    async def run() -> None:
        await asyncio.to_thread(call)

    return run


def rate(seconds: float) -> str:
    return f"{SIZE_BYTES / 1024**3 / seconds:.2f} GiB/s"


def find(folder: Path, pattern: str) -> Path:
    """The first file of that name anywhere below."""
    return next(folder.rglob(pattern))


def kernel_copy(source: Path, target: Path) -> None:
    """copy_file_range, or sendfile where it does not cross file systems, and fsync."""
    with source.open("rb") as read, target.open("wb") as written:
        left = SIZE_BYTES
        try:
            while left:
                left -= os.copy_file_range(read.fileno(), written.fileno(), left)
        except OSError:
            while left:
                left -= os.sendfile(written.fileno(), read.fileno(), SIZE_BYTES - left, left)
        os.fsync(written.fileno())


def sha256(path: Path) -> None:
    with path.open("rb", buffering=0) as file:
        hashlib.file_digest(file, "sha256")


async def both(source: Path, target: Path) -> None:
    """Copy and hash at the same time: what two cores can do for any program that overlaps them."""
    await asyncio.gather(
        asyncio.to_thread(kernel_copy, source, target), asyncio.to_thread(sha256, source)
    )


def rclone(source: Path, target: Path) -> None:
    argv = ["rclone", "--config", "/dev/null", "copyto", str(source), str(target)]
    subprocess.run(argv, check=True, capture_output=True)


async def drop_all(tier: Tier, members: Members) -> int:
    """Drop every replica in batches; how many there were."""
    found = await tier.observe(members, detail=range(len(members)))
    items = [
        DropItem(member=members.member(index), instance_id=detail.instance_id)
        for index, detail in found.details.items()
    ]
    for start in range(0, len(items), BATCH):
        outcomes = await tier.drop(items[start : start + BATCH], fence())
        assert all(isinstance(outcome, Done) for outcome in outcomes), outcomes
    return len(items)


async def copying(disk: Tier, hot: Tier, folder: Path, shared: Path) -> None:
    """One large replica each way, digest checked, beside copy, hash and rclone."""
    content = b"".join(content_of(PIECE_BYTES, seed=n) for n in range(SIZE_BYTES // PIECE_BYTES))
    member = member_of("large", content)
    assert isinstance((await disk.store([item_of(member, content)], fence()))[0], Done)
    del content
    source = find(folder, "large~*")
    for name, upstream, downstream, target in (
        ("local_disk to memory", disk, hot, shared / "copy"),
        ("memory to local_disk", hot, disk, folder / "copy"),
    ):
        contenders: dict[str, Run] = {
            "ours": transfer(member, upstream, downstream),
            "copy": blocking(partial(kernel_copy, source, target)),
            "sha256": blocking(partial(sha256, source)),
            "both": partial(both, source, target),
        }
        if shutil.which("rclone"):
            contenders["rclone"] = blocking(partial(rclone, source, target))
        clear = partial(make_room, downstream, member, target)
        report_copy(name, await best_of(contenders, prepare=clear))
        await clear()
        await contenders["ours"]()
        source = find(shared, "large~*")
    await verifying(disk, hot, member, folder)


def transfer(member: Member, upstream: Tier, downstream: Tier) -> Run:
    """Store one replica of `upstream` into `downstream`."""

    async def run() -> None:
        batch = [StoreItem(member=member, open_source=lambda: upstream.open(member))]
        (outcome,) = await downstream.store(batch, fence())
        assert isinstance(outcome, Done), outcome

    return run


async def make_room(downstream: Tier, member: Member, target: Path) -> None:
    """Nothing of the last run is left to be overwritten or to be found."""
    await drop_all(downstream, members_of([member]))
    await asyncio.to_thread(target.unlink, missing_ok=True)


def report_copy(name: str, best: dict[str, float]) -> None:
    slower = max(best["copy"], best["sha256"])
    peer = f"copy+fsync {rate(best['copy'])}, sha256 {rate(best['sha256'])}"
    row(f"{name}, digest checked", rate(best["ours"]), peer, f"{slower / best['ours']:.2f}", "0.9")
    peer = f"copy+fsync and sha256 at once {rate(best['both'])}"
    both_ratio = f"{best['both'] / best['ours']:.2f}"
    row(f"{name}, beside both at once", rate(best["ours"]), peer, both_ratio)
    if "rclone" not in best:
        row(f"{name}, beside rclone", rate(best["ours"]), "rclone: not installed", "", "3")
        return
    ratio = f"{best['rclone'] / best['ours']:.1f}"
    row(f"{name}, beside rclone", rate(best["ours"]), f"rclone {rate(best['rclone'])}", ratio, "3")


async def verifying(disk: Tier, hot: Tier, member: Member, folder: Path) -> None:
    """Reading back; from the disk past its cache, beside the same read without a digest."""
    source = find(folder, "large~*")

    def read_cold() -> None:
        with source.open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            buffer = bytearray(PIECE_BYTES)
            while file.readinto(buffer):
                pass

    async def verify(tier: Tier) -> None:
        assert isinstance((await tier.verify([member]))[0], Done)

    contenders = {
        "memory": lambda: verify(hot),
        "disk": lambda: verify(disk),
        "sha256": blocking(lambda: sha256(source)),
        "read": blocking(read_cold),
    }
    best = await best_of(contenders, rounds=3)
    floor = best["sha256"]
    peer = f"sha256 {rate(floor)}"
    row("verify in memory", rate(best["memory"]), peer, f"{floor / best['memory']:.2f}", "0.9")
    floor = max(best["read"], best["sha256"])
    peer = f"cold read {rate(best['read'])}, sha256 {rate(best['sha256'])}"
    row("verify on local_disk, past the cache", rate(best["disk"]), peer,
        f"{floor / best['disk']:.2f}", "0.9")  # fmt: skip


async def many(hot: Tier, shared: Path) -> None:
    """Observing 50,000 members of one group, and batches of small ones."""
    keys = [f"weights/prod/llama%2F70b/main/7/payload/{index:06d}" for index in range(MEMBERS)]
    table = [member_of(key, b"") for key in keys]
    members = members_of(table)
    start = perf_counter()
    for at in range(0, MEMBERS, BATCH):
        batch = [item_of(member, b"") for member in table[at : at + BATCH]]
        assert all(isinstance(outcome, Done) for outcome in await hot.store(batch, fence()))
    seconds = perf_counter() - start
    each = f"{seconds / MEMBERS * 1e6:.0f} us each"
    row("store 50,000 empty members in memory", f"{seconds:.1f} s, {each}")
    group = find(shared, "*payload*~*").parent

    async def observe() -> None:
        observation = await hot.observe(members)
        assert observation.states == b"\3" * MEMBERS

    def list_and_stat() -> None:
        with os.scandir(group) as entries:
            for entry in entries:
                entry.stat(follow_symlinks=False)

    best = await best_of({"ours": observe, "floor": blocking(list_and_stat)})
    peer, ratio = f"scandir and stat {best['floor'] * 1e3:.0f} ms", best["floor"] / best["ours"]
    row("observe 50,000 members of a group", f"{best['ours'] * 1e3:.0f} ms", peer, f"{ratio:.2f}")
    start = perf_counter()
    for at in range(0, SMALL, BATCH):
        assert all(isinstance(found, Done) for found in await hot.verify(table[at : at + BATCH]))
    each = f"{(perf_counter() - start) / SMALL * 1e6:.0f} us each"
    row("verify empty members in memory, in batches", each)
    start = perf_counter()
    dropped = await drop_all(hot, members)
    seconds = perf_counter() - start
    row("drop 50,000 members in batches, details first", f"{seconds:.1f} s, "
        f"{seconds / dropped * 1e6:.0f} us each")  # fmt: skip


async def measure(folder: Path, shared: Path) -> None:
    (folder / "state").mkdir()
    host = context(folder / "state")
    async with (
        local_disk.factory("disk", {"path": str(folder / "disk")}, host) as disk,
        memory.factory("memory", {"path": str(shared / "memory")}, host) as hot,
    ):
        await copying(disk, hot, folder, shared)
        await many(hot, shared)


def main() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="weightctl-bench-", dir="/var/tmp") as folder,
        tempfile.TemporaryDirectory(prefix="weightctl-bench-", dir="/dev/shm") as shared,
    ):
        asyncio.run(measure(Path(folder), Path(shared)))


if __name__ == "__main__":
    main()
