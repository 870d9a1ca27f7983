"""The nof tier on a plain file, beside raw aligned writes and reads of the same file system.

A store and a verify digest every byte, so their floor is a loop that does nothing but direct writes
or reads with SHA-256 in a second thread; a ranged read has a raw direct read.  The rounds alternate
and the best of each counts: disks and cores of shared machines vary.
"""

import asyncio
import hashlib
import mmap
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from time import perf_counter

from tests.bench.report import row
from tests.support.nof_media import FENCE, formatted, member, reopened, store
from tests.support.nof_tiers import BytesReader, item, nof
from weightctl.adapters.nof.tier import NofTier
from weightctl.controller.ports import Done, DropItem, Outcome, StoreItem

MIB = 1024 * 1024
SIZE = 256 * MIB
PIECE = 8 * MIB
ROUNDS = 5
SMALL = 2000
MEMBERS = 50_000


def _seconds(call: Callable[[], object]) -> float:
    start = perf_counter()
    call()
    return perf_counter() - start


async def _time(call: Awaitable[object]) -> float:
    start = perf_counter()
    await call
    return perf_counter() - start


class RawFile:
    """Direct writes and reads of one reserved file, a piece at a time."""

    def __init__(self, folder: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT
        try:
            self.fd = os.open(folder / "raw", flags | os.O_DIRECT)
        except OSError:
            self.fd = os.open(folder / "raw", flags)
        os.posix_fallocate(self.fd, 0, SIZE)
        memory = memoryview(mmap.mmap(-1, 2 * PIECE))
        memory[:] = os.urandom(2 * PIECE)
        self.halves = memory[:PIECE], memory[PIECE:]
        self.thread = ThreadPoolExecutor(1)

    def write_and_digest(self) -> None:
        digest = hashlib.sha256()
        for number in range(SIZE // PIECE):
            half = self.halves[number % 2]
            digested = self.thread.submit(digest.update, half)
            os.pwrite(self.fd, half, number * PIECE)
            digested.result()
        os.fdatasync(self.fd)

    def read_and_digest(self) -> None:
        digest = hashlib.sha256()
        digested = self.thread.submit(digest.update, b"")
        for number in range(SIZE // PIECE):
            half = self.halves[number % 2]
            os.preadv(self.fd, [half], number * PIECE)
            digested.result()
            digested = self.thread.submit(digest.update, half)
        digested.result()

    def read(self) -> None:
        with suppress(OSError):
            os.posix_fadvise(self.fd, 0, SIZE, os.POSIX_FADV_DONTNEED)
        for offset in range(0, SIZE, PIECE):
            os.preadv(self.fd, [self.halves[0]], offset)

    def flushes(self) -> None:
        block = mmap.mmap(-1, 4096)
        for index in range(100):
            os.pwrite(self.fd, block, index * 4096)
            os.fdatasync(self.fd)


def _must(outcomes: object) -> None:
    assert isinstance(outcomes, list)
    wrong: list[Outcome] = [outcome for outcome in outcomes if not isinstance(outcome, Done)]
    assert not wrong, wrong[0]


async def _large(tier: NofTier, raw: RawFile, content: bytes) -> dict[str, float]:
    """Seconds of the fastest of each; the rounds of ours and the floors alternate."""
    best: dict[str, float] = {}
    source = BytesReader(content)
    wanted = item("large", source)
    buffer = memoryview(bytearray(PIECE))

    async def read() -> None:
        async with tier.open(wanted.member) as reader:
            for offset in range(0, SIZE, PIECE):
                await reader.read_into(offset, buffer)

    for _ in range(ROUNDS):
        for name, seconds in {
            "write": _seconds(raw.write_and_digest),
            "store": await _time(_bring(tier, [wanted])),
            "check": _seconds(raw.read_and_digest),
            "verify": await _time(tier.verify([wanted.member])),
            "ranged": await _time(read()),
            "read": _seconds(raw.read),
        }.items():
            best[name] = min(seconds, best.get(name, seconds))
        await _drop_all(tier)
    return best


async def _bring(tier: NofTier, batch: list[StoreItem]) -> None:
    _must(await tier.store(batch, FENCE))


async def _drop_all(tier: NofTier) -> None:
    listed = await tier.inventory()
    items = [
        DropItem(member=member(entry.key, b"", group), instance_id=entry.instance_id)
        for group, entries in listed.items()
        for entry in entries
    ]
    _must(await tier.drop(items, FENCE))


def _replay() -> tuple[float, int]:
    """Seconds to open a device with that many replicas, and the bytes of its index."""
    medium = formatted(512 * MIB)
    device = reopened(medium)
    for start in range(0, MEMBERS, 1000):
        store(medium, device, *((f"payload/{start + i:08}", b"") for i in range(1000)))
    medium.events.clear()
    size = device.catalog.record_bytes
    return min(_seconds(lambda: reopened(medium)) for _ in range(ROUNDS)), size


def _rate(seconds: float) -> str:
    return f"{SIZE / MIB / 1024 / seconds:.2f} GiB/s"


async def _tier(folder: Path, content: bytes) -> tuple[dict[str, float], float, float]:
    raw = RawFile(folder)
    small = [item(f"k{number:05}", b"x" * 4000) for number in range(SMALL)]
    async with nof(folder, size_bytes=2 * SIZE) as tier:
        best = await _large(tier, raw, content)
        flush = min(_seconds(raw.flushes) for _ in range(ROUNDS)) / 100
        return best, flush, await _time(_bring(tier, small)) / SMALL


def main() -> None:
    """Print the rows."""
    folder = Path(tempfile.mkdtemp(prefix="weightctl-bench-nof-"))
    try:
        best, flush, each = asyncio.run(_tier(folder, os.urandom(SIZE)))
    finally:
        shutil.rmtree(folder)
    for name, ours, peer, what in (
        ("nof store, one replica of 256 MiB", "store", "write", "direct write and sha256 at once"),
        ("nof verify, read from the medium", "verify", "check", "direct read and sha256 at once"),
    ):
        ratio = f"{best[peer] / best[ours]:.2f}x"
        row(name, _rate(best[ours]), f"{what} {_rate(best[peer])}", ratio, "0.9x")
    ratio = f"{best['read'] / best['ranged']:.2f}x"
    text = f"direct read {_rate(best['read'])}"
    row("nof ranged read, 8 MiB a call", _rate(best["ranged"]), text, ratio)
    text = f"write and flush of 4 KiB {1 / flush:,.0f}/s"
    row(
        f"nof store, {SMALL:,} replicas of 4 kB", f"{1 / each:,.0f}/s", text, f"{flush / each:.2f}x"
    )
    replay, size = _replay()
    name = f"nof index replay, {MEMBERS:,} replicas"
    row(name, f"{replay * 1000:.0f} ms", f"{size / MIB:.1f} MiB of records")


if __name__ == "__main__":
    main()
