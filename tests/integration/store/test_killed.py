"""kill -9 of a real process: what was acknowledged is there, what was not is not there by half."""

import asyncio
import json
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.store_child import ACKS, REVISIONS, walk
from tests.support.stores import opened
from tests.support.weights import identity
from weightctl.controller.core.identity import Identity, payload_group_id
from weightctl.controller.core.records import Snapshot
from weightctl.controller.store.evidence import EvidenceRow
from weightctl.controller.store.reading import read_state
from weightctl.controller.store.store import WeightMetadataStore

ROOT = Path(__file__).resolve().parents[3]
STATEMENTS = 240
"""Some more than the scenario runs, so the last children end by themselves."""
OPEN_AT_ONCE = 8

Picture = tuple[Snapshot, tuple[tuple[str, ...], ...], tuple[EvidenceRow, ...], dict[str, str]]
MEMBERS_EACH = 20
TOMBSTONE = 6
"""What a revision of the storm has: members, and the generation of its tombstone."""


def child(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "tests.support.store_child", *map(str, arguments)]


async def picture(store: WeightMetadataStore) -> Picture:
    """Everything durable, without the counters, which may skip ids."""
    snapshot = replace(await store.export_snapshot(), next_lease_id=1, next_operation_id=1)
    groups = [await store.directory.members(payload_group_id(of)) for of in REVISIONS]
    return (
        snapshot,
        tuple(tuple(group.keys) for group in groups),
        await store.evidence.rows(REVISIONS[0]),
        {"memory": store.tier_epochs.get("memory")},
    )


async def expected_pictures(folder: Path) -> list[Picture]:
    """The picture after each step of a run that nobody disturbs; index 0 is the empty store."""
    pictures: list[Picture] = []

    async def note(store: WeightMetadataStore, _: int) -> None:
        pictures.append(await picture(store))

    async with opened(folder / "empty") as store:
        await note(store, 0)
    await walk(folder / "whole", note)
    return pictures


def test_killed_before_or_after_any_statement(tmp_path: Path) -> None:
    """Each statement of each transaction is a point of death: the step before, or the one after."""
    points = tmp_path / "points"
    points.mkdir()
    subprocess.run(child("points", points, STATEMENTS), cwd=ROOT, check=True)

    acked = [
        int((points / str(statement) / ACKS).read_bytes() or b"0")
        for statement in range(1, STATEMENTS + 1)
    ]

    async def check() -> None:
        pictures = await expected_pictures(tmp_path)
        slots = asyncio.Semaphore(OPEN_AT_ONCE)

        async def check_one(statement: int, step: int) -> None:
            async with slots, opened(points / str(statement)) as store:
                found = await picture(store)
            assert found in pictures[step : step + 2], f"died at statement {statement}"

        await asyncio.gather(*(check_one(*pair) for pair in enumerate(acked, 1)))
        assert 0 < acked.count(len(pictures) - 1) < STATEMENTS // 2, acked

    asyncio.run(check())


@pytest.mark.parametrize("rounds", [8])
def test_killed_at_random_in_a_storm_again_and_again(
    tmp_path: Path, rounds: int, pytestconfig: pytest.Config
) -> None:
    seed = int(pytestconfig.option.hypothesis_seed)
    rng = random.Random(seed)
    acknowledged: dict[Identity, tuple[int, int]] = {}
    for number in range(rounds):
        for of, generation, members in killed_storm(tmp_path, seed + number, rng):
            acknowledged[of] = generation, members
        check_acknowledged(tmp_path, acknowledged)
    assert len(acknowledged) > rounds


def killed_storm(folder: Path, seed: int, rng: random.Random) -> list[tuple[Identity, int, int]]:
    """Let a child work, kill it after a random number of acknowledgements; give these."""
    lines: list[str] = []
    with subprocess.Popen(
        child("storm", folder, seed), cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        lines += (process.stdout.readline() for _ in range(rng.randrange(1, 2000)))
        process.kill()
        lines += process.stdout.readlines()  # written before it died
    return [parsed(line) for line in lines if line.endswith("\n")]


def parsed(line: str) -> tuple[Identity, int, int]:
    revision, number, generation, members = json.loads(line)
    return identity(revision, number), generation, members


def check_acknowledged(folder: Path, acknowledged: dict[Identity, tuple[int, int]]) -> None:
    with read_state(folder) as stored:
        assert stored.problem == ""
        for of, (generation, members) in acknowledged.items():
            record = stored.state.metadata[of]
            assert record.metadata_generation >= generation
            found = len(stored.members(payload_group_id(of)))
            assert found in {0, MEMBERS_EACH}, "a group of which only a part was registered"
            assert found >= (0 if record.metadata_generation == TOMBSTONE else members)
            assert found == 0 or record.metadata_generation != TOMBSTONE
