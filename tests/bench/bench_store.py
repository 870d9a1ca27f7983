"""Durable mutations beside raw sqlite3, restart and memory with 100,000 records."""

import asyncio
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, closing, contextmanager
from pathlib import Path

import uvloop

from tests.bench.report import row
from weightctl.controller.clock import SystemClock, SystemEntropy
from weightctl.controller.core.identity import Identity, manifest_key, payload_group_id
from weightctl.controller.core.records import ManifestReference
from weightctl.controller.store.reading import read_state
from weightctl.controller.store.store import WeightMetadataStore

ONE_ROW_COMMITS = 2000
ROWS_PER_COMMIT = 500
LARGE_COMMITS = 100
CALLERS = 512
MUTATIONS = 60_000
LONE_MUTATIONS = 1000
RECORDS = 100_000
PAYLOAD = b"x" * 400


@contextmanager
def folder() -> Iterator[Path]:
    """A folder on a real disk, not on a tmpfs."""
    with tempfile.TemporaryDirectory(prefix="weightctl-bench-", dir="/var/tmp") as name:
        yield Path(name)


def per_second(count: int, started_s: float) -> float:
    return count / (time.perf_counter() - started_s)


# --- floors ---------------------------------------------------------------------------------------


def raw(path: Path, rows: int, commits: int) -> float:
    """Rows a second that bare sqlite3 makes durable with so many rows a commit."""
    with closing(sqlite3.connect(path / f"raw-{rows}.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, key TEXT, payload BLOB)")
        started_s = time.perf_counter()
        for commit in range(commits):
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(
                "INSERT INTO t VALUES (?, ?, ?)",
                [(commit * rows + n, "weight-revision:" + "a" * 64, PAYLOAD) for n in range(rows)],
            )
            connection.execute("COMMIT")
        return per_second(rows * commits, started_s)


# --- the store ------------------------------------------------------------------------------------


def opened(path: Path) -> AbstractAsyncContextManager[WeightMetadataStore]:
    return WeightMetadataStore.open(path, clock=SystemClock(), entropy=SystemEntropy())


def identity(resource_number: int, revision: int) -> Identity:
    return Identity(
        namespace="production",
        resource_id=f"model-{resource_number}",
        revision=f"step-{revision}",
        weight_generation=1,
    )


def reference(of: Identity) -> ManifestReference:
    return ManifestReference(
        manifest_key=manifest_key(of),
        manifest_sha256="a" * 64,
        payload_group_id=payload_group_id(of),
        payload_keys_sha256="b" * 64,
        payload_count=100,
        logical_bytes=10**9,
    )


async def publish(store: WeightMetadataStore, of: Identity) -> None:
    await store.begin_import(identity=of, expected_payload_count=100, expected_logical_bytes=10**9)
    await store.commit_import(identity=of, expected_metadata_generation=1, manifest=reference(of))


async def lives(store: WeightMetadataStore, number: int, rounds: int) -> None:
    """Six durable mutations a round: import, lease, renewal, release, deletion."""
    for turn in range(rounds):
        of = identity(number, turn)
        await publish(store, of)
        lease = await store.acquire_lease(
            identity=of, expected_metadata_generation=2, holder="bench", ttl_ms=60_000
        )
        await store.renew_lease(lease_id=lease.lease_id, ttl_ms=60_000)
        await store.release_lease(lease_id=lease.lease_id)
        await store.delete_revision(identity=of, expected_metadata_generation=2)


async def mutations(path: Path) -> tuple[float, float]:
    """Mutations a second of many callers, and the mean number that shared a commit."""
    rounds = MUTATIONS // 6 // CALLERS
    async with opened(path) as store:
        started_s = time.perf_counter()
        await asyncio.gather(*(lives(store, number, rounds) for number in range(CALLERS)))
        rate = per_second(CALLERS * rounds * 6, started_s)
        return rate, store.last_sequence / store.commits


async def lone(path: Path) -> float:
    """Mutations a second of one caller that waits for each."""
    async with opened(path) as store:
        started_s = time.perf_counter()
        for number in range(LONE_MUTATIONS):
            of = identity(0, number)
            await store.begin_import(
                identity=of, expected_payload_count=1, expected_logical_bytes=1
            )
        return per_second(LONE_MUTATIONS, started_s)


async def fill(path: Path) -> None:
    async with opened(path) as store:
        for start in range(0, RECORDS, 2000):
            batch = (identity(n // 100, n) for n in range(start, start + 2000))
            await asyncio.gather(*(publish(store, of) for of in batch))


async def restart(path: Path) -> None:
    """Open a store of 100,000 records; prints seconds and MiB resident."""
    started_s = time.perf_counter()
    async with opened(path) as store:
        elapsed_s = time.perf_counter() - started_s
        peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        assert len(tuple(store.records())) == RECORDS
        print(elapsed_s, peak_mib)


def in_a_process_of_its_own(path: Path) -> tuple[float, float]:
    command = (sys.executable, "-m", "tests.bench.bench_store", "restart", str(path))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    elapsed_s, peak_mib = map(float, done.stdout.split())
    return elapsed_s, peak_mib


def look(path: Path) -> float:
    """Milliseconds to read a small state from outside."""
    started_s = time.perf_counter()
    with read_state(path) as stored:
        assert stored.state.metadata
    return (time.perf_counter() - started_s) * 1000


def timed(work: Callable[[], object]) -> float:
    started_s = time.perf_counter()
    work()
    return time.perf_counter() - started_s


def main() -> None:
    with folder() as path:
        one_row = raw(path, 1, ONE_ROW_COMMITS)
        many_rows = raw(path, ROWS_PER_COMMIT, LARGE_COMMITS)
        rate, shared = uvloop.run(mutations(path / "many"))
        row(
            f"durable mutations, {CALLERS} callers ({shared:.0f} share a commit)",
            f"{rate:,.0f}/s",
            f"raw sqlite3, one row a commit {one_row:,.0f}/s",
            f"{rate / one_row:.1f}x",
            "20,000/s",
        )
        row(
            "the same",
            f"{rate:,.0f}/s",
            f"raw sqlite3, {ROWS_PER_COMMIT} rows a commit {many_rows:,.0f}/s",
            f"{rate / many_rows:.2f}x",
        )
        alone = uvloop.run(lone(path / "lone"))
        row(
            "durable mutations, one caller",
            f"{alone:,.0f}/s",
            f"raw sqlite3, one row a commit {one_row:,.0f}/s",
            f"{alone / one_row:.2f}x",
        )
        uvloop.run(fill(path / "large"))
        size_mib = (path / "large" / "weightctl.db").stat().st_size / 2**20
        elapsed_s, peak_mib = in_a_process_of_its_own(path / "large")
        floor_s = timed(lambda: scan(path / "large"))
        row(
            f"restart with {RECORDS:,} records ({size_mib:.0f} MiB)",
            f"{elapsed_s:.1f} s",
            f"reading the rows alone {floor_s:.2f} s",
            f"{elapsed_s / floor_s:.0f}x",
            "a few seconds",
        )
        row("memory after it, whole process", f"{peak_mib:.0f} MiB", "", "", "200 MiB")
        row("reading a small state from outside", f"{look(path / 'lone'):.0f} ms", "", "", "50 ms")


def scan(path: Path) -> None:
    with closing(sqlite3.connect(path / "weightctl.db")) as connection:
        for table in ("snapshot", "oplog"):
            connection.execute(f"SELECT sum(length(payload)) FROM {table}").fetchone()


if __name__ == "__main__":
    if sys.argv[1:2] == ["restart"]:
        uvloop.run(restart(Path(sys.argv[2])))
    else:
        main()
