"""Failing the n-th operation of a journal's life.

The life goes on as a caller does: a change that was refused for certain is asked for again once the
fault has ended; one of which nobody knows makes the store poisoned, which is left and opened anew,
and there the log decides.  After each life the state is what was acknowledged, with the step that
was under way wholly or not at all, and the store works.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from anyio import to_thread

from tests.faults.disks import journal
from tests.faults.disks.failing import NEVER, Failing, Failures, Trouble, fresh_folder
from tests.faults.disks.journal import Picture
from tests.support.fuse.faults import Fault
from tests.support.fuse.mounted import Lab
from tests.support.store_child import scenario
from tests.support.stores import begin, commit, opened
from tests.support.virtual_time import VirtualClock
from tests.support.weights import identity
from weightctl.controller.errors import ErrorCode, StateDirectoryError, WeightError
from weightctl.controller.store.oplog import verify_log
from weightctl.controller.store.store import WeightMetadataStore

AFTER = identity("after", 1)
CERTAIN = ("DiskFull", "ReadOnly", "AppendRefused")
"""Reasons of a refusal after which nothing has changed and the store goes on."""


async def undisturbed(folder: Path) -> list[Picture]:
    """What is to be seen after each step of a life without a fault."""

    async def nothing(_: object) -> None:
        return

    return await journal.live(folder, nothing)


def fail_each(
    lab: Lab, disk: Path, faults: Iterable[Fault], pictures: Sequence[Picture]
) -> Failures:
    """One life for each fault."""
    failures = Failures()
    for fault in faults:
        with fresh_folder(lab, disk, f"run{failures.lives}") as folder:
            try:
                met = asyncio.run(live_through(folder, Failing(lab, fault), pictures))
            except Exception as error:  # noqa: BLE001 - whatever leaves the store is a failure
                met = lab.met() or ["?"]
                problem = f"{type(error).__name__}: {error}".replace("\n", "; ")
                failures.found.setdefault(problem, f"{fault}, {met}")
            finally:
                lab.arm(None)
        failures.lives += 1
        for name in met[:1]:
            failures.met[name] = failures.met.get(name, 0) + 1
    return failures


def count_operations(lab: Lab, disk: Path, ops: frozenset[int]) -> int:
    """How many operations of those kinds a life without a fault has."""
    with fresh_folder(lab, disk, "clean") as folder:
        lab.arm(Fault(ops=ops, at=NEVER))
        asyncio.run(_walk(folder, []))
        return lab.arm(None)


async def live_through(folder: Path, trouble: Trouble, pictures: Sequence[Picture]) -> list[str]:
    """One life with that trouble, and all that has to be true after it; what it met."""
    acknowledged: list[Picture] = []
    met: list[str] = []
    refusal: Exception | None = None

    async def lift() -> None:
        met.extend(await to_thread.run_sync(trouble.met))
        await to_thread.run_sync(trouble.end)

    await to_thread.run_sync(trouble.begin)
    try:
        await _walk(folder, acknowledged, lift)
    except (WeightError, StateDirectoryError) as error:
        refusal = error
    await lift()
    assert refusal is None or met, f"refused without a fault: {refusal}"
    if isinstance(refusal, WeightError):
        assert refusal.code is ErrorCode.DURABILITY_FAILED, refusal
    assert acknowledged == list(pictures[: len(acknowledged)])
    await _judge_restart(folder, acknowledged, pictures)
    return met


async def _nothing() -> None:
    return


async def _walk(
    folder: Path,
    acknowledged: list[Picture],
    lift: Callable[[], Awaitable[None]] = _nothing,
) -> None:
    """The steps up to the first that is refused; and what the store says of itself then."""
    clock = VirtualClock(wall_ms=1000)
    async with opened(folder / journal.STATE, clock) as store:
        acknowledged.append(await journal.picture(store))
        try:
            async for _ in scenario(store, clock):
                acknowledged.append(await journal.picture(store))  # noqa: PERF401 - keeps what was
        except WeightError as error:
            await _judge_refusal(store, error, acknowledged, lift)
            raise


async def _judge_refusal(
    store: WeightMetadataStore,
    error: WeightError,
    acknowledged: Sequence[Picture],
    lift: Callable[[], Awaitable[None]],
) -> None:
    """Reads go on and show what was acknowledged; the store says whether it can go on, and does."""
    certain = error.why.startswith(CERTAIN)
    assert store.healthy == certain, error
    assert bool(error.todo), error
    assert not (certain and "may or may not" in str(error)), error
    snapshot = await store.export_snapshot()
    shown = replace(snapshot, next_lease_id=1, next_operation_id=1)
    assert shown == acknowledged[-1][0], "something shows that was not acknowledged"
    if certain:
        await lift()
        await store.tier_epochs.set("healed", "1")
        assert not store.problem


async def _judge_restart(
    folder: Path, acknowledged: Sequence[Picture], pictures: Sequence[Picture]
) -> None:
    last = max(len(acknowledged) - 1, 0)
    async with _reopened(folder) as store:
        found = await journal.picture(store)
        assert found in pictures[last : last + 2], f"step {last} was acknowledged"
        await begin(store, AFTER)
        await commit(store, AFTER)
        assert store.healthy
    report = await to_thread.run_sync(verify_log, folder / journal.STATE)
    assert report.ok, report.problem


@asynccontextmanager
async def _reopened(folder: Path) -> AsyncIterator[WeightMetadataStore]:
    async with opened(folder / journal.STATE, VirtualClock(wall_ms=100_000)) as store:
        yield store
