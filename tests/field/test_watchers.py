"""Who watches is watched: a round that hangs, a picture that is old, a pass without end."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio

from tests.support.loop_rig import IDENTITY, identity
from tests.support.running import Running, eventually, running
from tests.support.virtual_time import SeededEntropy, VirtualClock
from weightctl.controller.errors import ErrorCode, WeightError
from weightctl.controller.runtime.resync import Resync
from weightctl.controller.runtime.settings import ResyncOptions, RuntimeSettings
from weightctl.controller.runtime.timer import Timer
from weightctl.controller.runtime.workqueue import Priority, WorkQueue

QUICK = RuntimeSettings(
    slots=2,
    resync=ResyncOptions(working_s=5.0, published_s=10.0, leases_s=2.0),
    stuck_after_s=100.0,
    drain_s=1.0,
)


async def hang(*_: Any, **__: Any) -> Any:
    await anyio.sleep_forever()


async def unready(r: Running, name: str) -> None:
    async def check() -> bool:
        health = r.controller.health()
        return not health.ready and name in health.problems

    await eventually(check)


async def test_a_watcher_that_hangs_in_its_first_round_is_not_ready_and_its_picture_is_old(
    tmp_path: Path,
) -> None:
    clock = VirtualClock()
    async with running(tmp_path, clock, QUICK) as r:
        r.store.directory.members_of = hang  # type: ignore[method-assign]
        await r.publish(IDENTITY, 0)
        await unready(r, "drift")
        health = r.controller.health()
        assert "no round has ended" in health.problems["drift"]
        age_s = (await r.controller.refresh_metrics()).drift_age.value()
        assert age_s >= 60, "an old picture is not called a new one"


async def test_every_watcher_that_hangs_is_named(tmp_path: Path) -> None:
    async with running(tmp_path, VirtualClock(), QUICK) as r:
        r.store.expire_leases = hang  # type: ignore[method-assign]
        await unready(r, "leases")
        assert set(r.controller.health().problems) == {"leases"}


async def test_a_refused_round_is_a_round(tmp_path: Path) -> None:
    async with running(tmp_path, VirtualClock(), QUICK) as r:
        rounds = [0]

        async def refused(**_: Any) -> Any:
            rounds[0] += 1
            raise WeightError(ErrorCode.DURABILITY_FAILED, "closed")

        r.store.expire_leases = refused  # type: ignore[method-assign]

        async def many() -> bool:
            return rounds[0] > 50

        await eventually(many)
        assert r.controller.health().ready


async def test_passes_that_never_end_are_told_and_when_all_do_it_is_not_ready(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, VirtualClock(), QUICK) as r:
        real = r.store.directory.members
        r.store.directory.members = hang  # type: ignore[method-assign]
        await r.publish(IDENTITY, 0)

        async def told() -> bool:
            return "workers" in r.controller.health().problems

        await eventually(told)
        assert str(IDENTITY) in r.controller.health().problems["workers"]
        assert r.controller.health().ready, "another slot works on"
        await r.publish(identity(1), 0)
        await unready(r, "workers")
        r.store.directory.members = real  # type: ignore[method-assign]


# --- the first round after a restart --------------------------------------------------------------


class Records:
    """A store of very many unfinished records."""

    def __init__(self, count: int) -> None:
        self.made = [
            SimpleNamespace(identity=identity(number), availability=None, operation=None)
            for number in range(count)
        ]

    def records(self) -> Iterator[Any]:
        return iter(self.made)


async def test_after_a_restart_fresh_work_overtakes_fifty_thousand_unfinished_records() -> None:
    clock, entropy = VirtualClock(), SeededEntropy(1)
    queue: WorkQueue[Any] = WorkQueue(clock, entropy, Timer(clock))
    resync = Resync(
        Records(50_000),  # type: ignore[arg-type]
        queue,
        drift=None,  # type: ignore[arg-type]
        clock=clock,
        entropy=entropy,
        options=ResyncOptions(),
    )
    turns = [0]

    async def others() -> None:
        while True:
            turns[0] += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(others)
        await resync._enqueue_unfinished(0.0)
        tasks.cancel_scope.cancel()
    assert turns[0] > 50, "the loop was free meanwhile"
    assert queue.due_count(Priority.RESYNC) == 50_000, "none is held back by a rate"
    assert queue.delayed_count == 0
    queue.add("changed just now")
    assert await queue.claim() == "changed just now"
