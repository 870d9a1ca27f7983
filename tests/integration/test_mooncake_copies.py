"""Two sidecars over copies of one state directory beside a real Master: one of them acts."""

import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from tests.support.models import random_tensors, write_model
from tests.support.mooncake.lab import PATIENT, Cluster, cluster, needs_wheel
from tests.support.mooncake.sidecar import WAIT_S, Sidecar, sidecar
from tests.support.rig import IDENTITY, contents
from weightctl.adapters.conformance.suite.material import drop_item, kinds
from weightctl.controller.core.records import Availability, Residency

pytestmark = needs_wheel

READY, HOT, COLD = Availability.READY, Residency.HOT, Residency.COLD
MODEL = random_tensors()


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with cluster(folder, PATIENT) as made:
        yield made


async def test_an_older_copy_is_fenced_until_a_person_says_that_nobody_else_acts(
    real: Cluster, tmp_path: Path
) -> None:
    source = await to_thread.run_sync(write_model, tmp_path / "model.safetensors", MODEL)
    first, copy = tmp_path / "first", tmp_path / "copy"
    async with beside(real, first) as living:
        await living.weights.put(IDENTITY, source)
        await living.becomes(READY, HOT)
    await to_thread.run_sync(shutil.copytree, first, copy)
    async with beside(real, first) as living:
        await living.becomes(READY, HOT)
        members = await living.members()
        items = [await drop_item(living.memory, members.member(0))]
        async with beside(real, copy) as older:
            seen = await older.memory.observe(members)
            assert f"--set store.term_above={living.store.term}" in seen.problem
            assert set(kinds(await older.memory.drop(items, older.store.fence))) == {"Fenced"}
            await older.start(COLD)
            await older.misses()
        await living.becomes(READY, HOT)
        loaded = await living.weights.load(IDENTITY, verify=True)
        assert contents(loaded.tensors) == MODEL
        async with beside(real, copy, term_above=living.store.term) as chosen:
            await chosen.becomes(READY, COLD)  # what was asked for above
            told = f"term {chosen.store.term} has already been served here"
            # A claim that a host has just read stays until its lease ends: seen a little later.
            with anyio.fail_after(WAIT_S):
                while True:
                    seen = await living.memory.observe(members)
                    if told in seen.problem:
                        break
                    await anyio.sleep(0.1)
            loaded = await chosen.weights.load(IDENTITY, verify=True)
            assert contents(loaded.tensors) == MODEL


@asynccontextmanager
async def beside(real: Cluster, folder: Path, term_above: int = 0) -> AsyncIterator[Sidecar]:
    async with sidecar(real, folder, claims=True, term_above=term_above) as made:
        yield made
