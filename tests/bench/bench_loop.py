"""The loop's own cost: idle rounds, reaction time, bandwidth error.

Tiers answer from memory at no cost, so what is measured is the loop, the queue, the planner and the
store; CPU is that of the whole process.  An event is a wake-up of one revision out of many; its
first primitive is the first call of a tier that the pass makes.
"""

import asyncio
import gc
import itertools
import resource
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import uvloop

from tests.bench.report import row
from tests.support.loop_rig import contents, members_of, reference_of
from weightctl.controller.clock import SystemClock, SystemEntropy
from weightctl.controller.core.identity import Identity, payload_group_id
from weightctl.controller.core.observation import Members, MemberState, TierObservation
from weightctl.controller.core.plan import TierView
from weightctl.controller.core.records import Availability, Residency, RevisionMetadata, Snapshot
from weightctl.controller.core.tiers import TierCapacity, TierProfile
from weightctl.controller.runtime.controller import Controller
from weightctl.controller.runtime.garbage import collect_in_rounds
from weightctl.controller.runtime.limits import TokenBucket
from weightctl.controller.runtime.observer import Seen
from weightctl.controller.runtime.settings import ResyncOptions, RuntimeSettings
from weightctl.controller.store.archive import Archive, write_archive
from weightctl.controller.store.rows import ObjectRow
from weightctl.controller.store.store import WeightMetadataStore

REVISIONS = 100_000
EVENTS_PER_S = 1000
EVENTS = 5000
PIECE_BYTES = 8 * 1024 * 1024
RATE_BYTES_PER_S = 200 * 1024 * 1024
NEVER_S = 1e9


class StillTier:
    """Holds every member of every group, or none: the cheapest possible answer to a look."""

    def __init__(self, name: str, *, hot: bool, state: MemberState) -> None:
        self.profile = TierProfile(name=name, kind="bench", hot=hot)
        self._state = bytes([state])
        self.looks = 0
        self.awaited: set[str] = set()
        self.first_call_s: dict[str, float] = {}

    async def observe(self, members: Members, *, detail: Sequence[int] = ()) -> TierObservation:
        self.looks += 1
        if members.group_id in self.awaited:
            self.awaited.discard(members.group_id)
            self.first_call_s[members.group_id] = time.perf_counter()
        return TierObservation(states=self._state * len(members), epoch="1")

    async def capacity(self) -> TierCapacity:
        return TierCapacity(used_bytes=0, free_bytes=1 << 40, total_bytes=1 << 40)


def still_tiers() -> list[StillTier]:
    return [
        StillTier("memory", hot=True, state=MemberState.COMPLETE),
        StillTier("disk", hot=False, state=MemberState.ABSENT),
    ]


def revision(number: int) -> Identity:
    return Identity(
        namespace="bench", resource_id=f"model-{number}", revision="v1", weight_generation=1
    )


def record(of: Identity, data: dict[str, bytes]) -> RevisionMetadata:
    return RevisionMetadata(
        identity=of,
        manifest=reference_of(of, data),
        availability=Availability.READY,
        residency=Residency.HOT,
        metadata_generation=2,
    )


def archive(count: int) -> Archive:
    """So many READY revisions of one payload and a manifest."""
    records, objects = [], []
    for number in range(count):
        of = revision(number)
        data = contents(of, 1, 32)
        records.append(record(of, data))
        for member in members_of(of, data):
            values = (member.key.encode(), int(member.data_type), member.size_bytes, member.sha256)
            objects.append((of.tenant_id, member.group_id, ObjectRow(*values, 0)))
    records.sort(key=lambda made: made.identity.sort_key())
    return Archive(weights=Snapshot(metadata=tuple(records)), objects=tuple(objects))


async def fill(folder: Path) -> None:
    """Fill a state directory; in a process of its own, so that it does not colour the memory."""
    path = folder / "archive"
    write_archive(path, archive(REVISIONS))
    async with opened(folder) as store:
        await store.restore_archive(path)


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[WeightMetadataStore]:
    clock, entropy = SystemClock(), SystemEntropy()
    async with WeightMetadataStore.open(folder / "state", clock=clock, entropy=entropy) as store:
        yield store


def loop_over(
    store: WeightMetadataStore, tiers: Sequence[StillTier], published_s: float
) -> Controller:
    settings = RuntimeSettings(resync=ResyncOptions(published_s=published_s))
    return Controller(
        store,
        tiers,  # type: ignore[arg-type]
        clock=SystemClock(),
        entropy=SystemEntropy(),
        settings=settings,
    )


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


async def idle_round(folder: Path) -> None:
    """A drift round over converged revisions of which nothing has changed."""
    tiers = still_tiers()
    async with opened(folder) as store:
        controller = loop_over(store, tiers, NEVER_S)
        views = tuple(TierView(profile=tier.profile, states=tier._state * 2) for tier in tiers)
        empty = Members(group_id="", keys=(), sizes_bytes=array("Q"), sha256=b"", data_types=b"")
        seen = Seen(members=empty, views=views, epochs={"memory": "1", "disk": "1"})
        gc.freeze()  # as the command does after loading
        for known in store.records():
            controller._drift.remember(known, seen)
        costs = []
        for _ in range(3):
            tiers[0].looks = 0
            started_s = time.process_time()
            await controller._resync.drift_round(0.0)
            costs.append(time.process_time() - started_s)
            assert tiers[0].looks == REVISIONS
        assert len(controller._queue) == 0
    row(
        f"idle round over {REVISIONS:,} converged revisions, 2 tiers",
        f"{min(costs):.2f} s CPU",
        f"{min(costs) / REVISIONS * 1e6:.0f} us a revision",
        "",
        "under 2 s CPU",
    )
    row("idle round: resident memory", f"{resident_mib():.0f} MiB", "", "", "under 200 MiB")


async def react(folder: Path, *, restarted: bool) -> None:
    """Wake-ups at a steady rate; right after the start, all other records are due as well."""
    tiers = still_tiers()
    async with opened(folder) as store:
        collecting = asyncio.create_task(collect_in_rounds(SystemClock()))
        controller = loop_over(store, tiers, 600.0 if restarted else NEVER_S)
        woken_s: dict[str, float] = {}
        groups = [(revision(n), payload_group_id(revision(n))) for n in range(EVENTS)]
        async with controller:
            while not restarted and controller.health().drift_round_age_s is None:  # noqa: ASYNC110
                await asyncio.sleep(0.1)  # the first round over everything comes before
            started_s, started_cpu_s = time.perf_counter(), time.process_time()
            for number, (of, group_id) in enumerate(groups):
                wait_s = started_s + number / EVENTS_PER_S - time.perf_counter()
                await asyncio.sleep(max(wait_s, 0))
                woken_s[group_id] = time.perf_counter()
                tiers[0].awaited.add(group_id)
                controller.wake(of)
            while len(tiers[0].first_call_s) < EVENTS:  # noqa: ASYNC110 - asked twice a run
                await asyncio.sleep(0.01)
            cpu_ms = 1000 * (time.process_time() - started_cpu_s) / EVENTS
        collecting.cancel()
    waits_ms = sorted(
        1000 * (tiers[0].first_call_s[group_id] - at_s) for group_id, at_s in woken_s.items()
    )
    p50, p99 = waits_ms[EVENTS // 2], waits_ms[EVENTS * 99 // 100]
    name = f"event to first primitive, {EVENTS_PER_S:,}/s"
    name += f", right after a restart with {REVISIONS:,} keys" if restarted else ""
    peer = f"p50 {p50:.1f} ms, {cpu_ms:.2f} ms CPU an event"
    row(name, f"p99 {p99:.1f} ms", peer, "", f"p99 {50 if restarted else 20} ms")


async def bandwidth() -> None:
    """Four streams through one limit for ten seconds, by the real clock."""
    bucket = TokenBucket(SystemClock(), RATE_BYTES_PER_S)
    ends_s = time.perf_counter() + 10
    moved = itertools.count()

    async def stream() -> None:
        while time.perf_counter() < ends_s:
            await bucket.charge(PIECE_BYTES)
            if time.perf_counter() <= ends_s:
                next(moved)

    await asyncio.gather(*(stream() for _ in range(4)))
    rate = next(moved) * PIECE_BYTES / 10
    error = rate / RATE_BYTES_PER_S - 1
    row(
        "bandwidth limit over 10 s",
        f"{rate / 2**20:.1f} MiB/s",
        f"limit {RATE_BYTES_PER_S / 2**20:.0f} MiB/s",
        f"{error:+.1%}",
        "within 3 %",
    )


def main() -> None:
    if sys.argv[1:2] == ["fill"]:
        uvloop.run(fill(Path(sys.argv[2])))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [sys.executable, "-m", "tests.bench.bench_loop", "fill", name]
        subprocess.run(command, check=True)
        uvloop.run(idle_round(folder))
        uvloop.run(react(folder, restarted=False))
        uvloop.run(react(folder, restarted=True))
    uvloop.run(bandwidth())


if __name__ == "__main__":
    main()
