"""A process that changes a store and is killed in the middle of it.

`points FOLDER COUNT` forks one child for each number of a SQL statement up to COUNT; the child runs
the scenario in FOLDER/<number> and kills itself just before that statement, or just after it when
it is a COMMIT. `storm FOLDER SEED` opens FOLDER and lets many tasks change it until it is killed;
each acknowledged change is a line on stdout.
"""

import asyncio
import itertools
import json
import os
import random
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import uvloop

from tests.support.stores import begin, commit, manifest, opened, payload
from tests.support.virtual_time import VirtualClock
from tests.support.weights import MEMBERS, identity
from weightctl.controller.clock import SystemClock, SystemEntropy
from weightctl.controller.core.identity import Identity
from weightctl.controller.core.records import Availability, Residency
from weightctl.controller.errors import WeightError
from weightctl.controller.store import commit as commits
from weightctl.controller.store import journal
from weightctl.controller.store.evidence import EvidenceRow
from weightctl.controller.store.store import WeightMetadataStore

ACKS = "acks"
REVISIONS = (identity("a", 1), identity("b", 1, "tenant-b"))
STORM_TASKS = 64
CHILDREN_AT_ONCE = 8


def small_log() -> None:
    """Fold every few entries, so that folding is killed as well."""
    journal.LOG_ENTRIES_MAX = 6
    commits.FOLD_ENTRIES = 4


def evidence(number: int) -> EvidenceRow:
    return EvidenceRow(
        member_key=f"key-{number}",
        dropped_tier="memory",
        dropped_instance=f"m{number}",
        evidence_tier="disk",
        evidence_instance=f"d{number}",
        evidence_sha256=bytes(32),
        evidence_epoch="e",
        verified_at_ms=1,
        operation_id=1,
        at_ms=number,
    )


async def scenario(store: WeightMetadataStore, clock: VirtualClock) -> AsyncIterator[None]:
    """Walk revisions through every kind of durable change, yielding after each one."""
    for of in REVISIONS:
        await begin(store, of)
        yield
        await store.directory.register(of, [payload(of)])
        yield
        await store.directory.register(of, [payload(of), manifest(of)])
        yield
        await commit(store, of)
        yield
    a, b = REVISIONS
    for holder in ("x", "y"):
        await store.acquire_lease(
            identity=a, expected_metadata_generation=2, holder=holder, ttl_ms=50
        )
        yield
    await store.renew_lease(lease_id=1, ttl_ms=80)
    yield
    await store.release_lease(lease_id=2)
    yield
    clock.jump(1)
    started = await store.start_residency_operation(
        identity=a,
        expected_metadata_generation=2,
        target_residency=Residency.COLD,
        member_count=MEMBERS,
    )
    yield
    await store.evidence.record(a, [evidence(number) for number in range(300)])
    yield
    await store.update_progress(
        operation_id=started.operation_id,
        processed_members=1,
        total_members=MEMBERS,
        cursor="k",
        availability=Availability.DEGRADED,
        residency=Residency.MIXED,
    )
    yield
    await store.finish_operation(
        operation_id=started.operation_id, observed_residency=Residency.COLD
    )
    yield
    await store.tier_epochs.set("memory", "epoch-1")
    yield
    await store.delete_revision(identity=a, expected_metadata_generation=5)
    yield
    await store.finish_delete(identity=a, expected_metadata_generation=6)
    yield
    kept = await store.export_snapshot()
    await store.publish_observation(
        identity=b,
        expected_metadata_generation=2,
        availability=Availability.DEGRADED,
        residency=Residency.MIXED,
    )
    yield
    await store.restore_snapshot(kept)
    yield
    await store.acquire_lease(identity=b, expected_metadata_generation=2, holder="z", ttl_ms=9)
    yield
    clock.jump(1)
    await store.expire_leases()
    yield


async def walk(folder: Path, after_each: Callable[[WeightMetadataStore, int], Any]) -> None:
    """Run the scenario; `after_each(store, number)` may be a coroutine function."""
    clock = VirtualClock(wall_ms=1000)
    async with opened(folder, clock) as store:
        steps = itertools.count(1)
        async for _ in scenario(store, clock):
            await after_each(store, next(steps))


class Doomed(sqlite3.Connection):
    """A connection whose process dies at the statement that `left` counts down to."""

    left = sys.maxsize

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        count(before=True, sql=sql)
        cursor = super().execute(sql, *parameters)
        count(before=False, sql=sql)
        return cursor

    def executemany(self, sql: str, parameters: Iterable[Any]) -> sqlite3.Cursor:
        count(before=True, sql=sql)
        return super().executemany(sql, parameters)


def count(*, before: bool, sql: str) -> None:
    """A statement counts before it runs; a COMMIT also after it."""
    if before or sql == "COMMIT":
        Doomed.left -= 1
        if Doomed.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def die_at(folder: Path, statement: int) -> None:
    """Run the scenario until a statement, noting each step that was acknowledged."""
    connect = sqlite3.connect

    def doomed(*arguments: Any, **options: Any) -> sqlite3.Connection:
        if not options.get("uri"):
            options["factory"] = Doomed
        connection: sqlite3.Connection = connect(*arguments, **options)
        return connection

    sqlite3.connect = doomed  # type: ignore[assignment]
    small_log()
    Doomed.left = statement
    folder.mkdir()
    acks = os.open(folder / ACKS, os.O_WRONLY | os.O_CREAT)

    async def note(_: WeightMetadataStore, step: int) -> None:
        os.pwrite(acks, str(step).encode(), 0)

    asyncio.run(walk(folder, note))


def points(folder: Path, statements: Iterable[int]) -> None:
    """Fork one doomed child for each statement number, a few at a time."""
    living: set[int] = set()
    for statement in statements:
        if len(living) == CHILDREN_AT_ONCE:
            living.remove(os.wait()[0])
        pid = os.fork()
        if pid == 0:
            die_at(folder / str(statement), statement)
            os._exit(0)
        living.add(pid)
    for _ in living:
        os.wait()


# --- storm ----------------------------------------------------------------------------------------


async def storm(folder: Path, seed: int) -> None:
    """Change many revisions at once until the end of the process."""
    small_log()
    rng = random.Random(seed)
    clock, entropy = SystemClock(), SystemEntropy()
    async with (
        WeightMetadataStore.open(folder, clock=clock, entropy=entropy) as store,
        asyncio.TaskGroup() as tasks,
    ):
        for number in range(STORM_TASKS):
            tasks.create_task(worker(store, number, random.Random(rng.random())))


async def worker(store: WeightMetadataStore, number: int, rng: random.Random) -> None:
    for turn in itertools.count():
        of = identity(f"w{number}", 1 + turn + store.term * 1_000_000)
        await life(store, of, rng)


async def life(store: WeightMetadataStore, of: Identity, rng: random.Random) -> None:
    """One revision from its begin to its tombstone, or part of the way."""
    acknowledge(of, (await begin(store, of)).metadata_generation, 0)
    members = [payload(of, index) for index in range(20)]
    await store.directory.register(of, members)
    acknowledge(of, 1, len(members))
    acknowledge(of, (await commit(store, of)).metadata_generation, len(members))
    for _ in range(rng.randrange(3)):
        lease = await store.acquire_lease(
            identity=of, expected_metadata_generation=2, holder="h", ttl_ms=60_000
        )
        await store.release_lease(lease_id=lease.lease_id)
    if rng.random() < 0.3:
        return
    started = await store.start_residency_operation(
        identity=of,
        expected_metadata_generation=2,
        target_residency=Residency.COLD,
        member_count=MEMBERS,
    )
    acknowledge(of, 3, len(members))
    await store.finish_operation(
        operation_id=started.operation_id, observed_residency=Residency.COLD
    )
    await store.delete_revision(identity=of, expected_metadata_generation=4)
    acknowledge(of, 5, len(members))
    await store.finish_delete(identity=of, expected_metadata_generation=5)
    acknowledge(of, 6, 0)


def acknowledge(of: Identity, generation: int, members: int) -> None:
    line = json.dumps([of.revision, of.weight_generation, generation, members])
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    mode, folder, *rest = sys.argv[1:]
    if mode == "points":
        points(Path(folder), range(1, int(rest[0]) + 1))
    else:
        try:
            uvloop.run(storm(Path(folder), int(rest[0])))
        except* WeightError as errors:
            raise errors.exceptions[0] from None


if __name__ == "__main__":
    main()
