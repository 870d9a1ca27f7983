"""The store on a simulated disk: the same answers as the contract's tables, crashes included."""

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.model.machine import Driver, WeightMachine, walk
from tests.model.store_driver import StoreDriver, without_counters
from tests.support.stores import begin, published
from tests.support.virtual_time import SeededEntropy, VirtualClock
from tests.support.weights import identity
from weightctl.adapters.conformance.simulation.disk import Disk, Hooks, open_store
from weightctl.adapters.conformance.simulation.loop import run_simulated
from weightctl.controller.core.records import Snapshot
from weightctl.controller.errors import WeightError
from weightctl.controller.store import commit as commits
from weightctl.controller.store import journal
from weightctl.controller.store.commit import Rejected, Uncertain
from weightctl.controller.store.store import WeightMetadataStore

WALKS = 40
WALK_STEPS = 80


class SimDriver(StoreDriver):
    """The model's driver over a simulated disk."""

    def __init__(self) -> None:
        self.disk = Disk()
        super().__init__(Path("/simulated"), asyncio.SelectorEventLoop)

    async def _start(
        self,
    ) -> tuple[WeightMetadataStore, asyncio.Event, "asyncio.Task[None]"]:
        closing = asyncio.Event()
        ready: asyncio.Future[WeightMetadataStore] = asyncio.get_running_loop().create_future()

        async def host() -> None:
            entropy = SeededEntropy(1)
            async with open_store(self.disk, clock=self.clock, entropy=entropy) as store:
                ready.set_result(store)
                await closing.wait()

        task = asyncio.create_task(host())
        return await ready, closing, task

    def audit(self) -> None:
        before = self.snapshot()
        self.close()
        self.open()
        assert without_counters(self.snapshot()) == without_counters(before)
        self.store._engine.state.next_lease_id = before.next_lease_id
        self.store._engine.state.next_operation_id = before.next_operation_id
        self.restarts += 1


def test_it_does_what_the_contracts_tables_say(
    monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    monkeypatch.setattr(journal, "LOG_ENTRIES_MAX", 16)
    monkeypatch.setattr(commits, "FOLD_ENTRIES", 8)
    driver = SimDriver()

    class SimMachine(WeightMachine):
        def driver_of(self, snapshot: Snapshot) -> Driver:
            return driver.begin(snapshot)

    base = int(pytestconfig.option.hypothesis_seed)
    try:
        for seed in range(base, base + WALKS):
            try:
                walk(SimMachine(), Random(seed), WALK_STEPS)
            except BaseException as error:
                error.add_note(f"in the walk with seed {seed}")
                raise
    finally:
        driver.close()
        driver.runner.close()
    assert driver.restarts >= WALKS


class Once(Hooks):
    """What happens to the `at`-th commit."""

    def __init__(self, at: int, before: object = None, after: object = None) -> None:
        self.left = at
        self._before = before
        self._after = after

    async def before(self, kind: str) -> Any:
        if kind == "commit":
            self.left -= 1
            if self.left == 0 and isinstance(self._before, BaseException):
                raise self._before
        return self._before if kind == "commit" and self.left == 0 else None

    async def after(self, kind: str, outcome: object) -> object:
        if kind == "commit" and self.left == 0 and self._after is not None:
            return self._after
        return outcome


REFUSED, LOST, KEPT = Rejected(why="full", todo=""), Uncertain(why="io"), Uncertain(why="io")


@pytest.mark.parametrize(
    "hooks, kept, healthy",
    [
        (Once(2, before=REFUSED), False, True),
        (Once(2, before=LOST), False, False),
        (Once(2, after=KEPT), True, False),
        (Once(2, before=RuntimeError("the thread died")), False, False),
    ],
    ids=["refused", "uncertain and lost", "uncertain and kept", "broken"],
)
def test_what_a_commit_was_is_decided_by_the_disk(
    hooks: Once, *, kept: bool, healthy: bool
) -> None:
    disk, clock, of = Disk(), VirtualClock(), identity("llama", 1)

    async def main() -> None:
        async with open_store(disk, clock=clock, entropy=SeededEntropy(1), hooks=hooks) as store:
            await begin(store, identity("other", 1))
            with pytest.raises(WeightError):
                await begin(store, of)
            assert [record.identity for record in store.records()] == [identity("other", 1)]
            assert store.healthy is healthy
        async with open_store(disk, clock=clock, entropy=SeededEntropy(1)) as store:
            found = {record.identity for record in store.records()}
            assert (of in found) is kept
            assert identity("other", 1) in found

    run_simulated(main(), 1)
    disk.dispose()


def test_a_process_that_dies_leaves_what_was_committed_and_nothing_else() -> None:
    disk, clock = Disk(), VirtualClock()

    async def main() -> None:
        terms = []
        for number in range(5):
            async with open_store(disk, clock=clock, entropy=SeededEntropy(1)) as store:
                terms.append(store.term)
                assert len(list(store.records())) == number
                await published(store, identity(f"llama-{number}", 1))
        assert terms == sorted(set(terms))
        assert [entry.sequence for entry in disk.new_entries()] == list(range(1, 11))

    run_simulated(main(), 1)
    disk.dispose()
