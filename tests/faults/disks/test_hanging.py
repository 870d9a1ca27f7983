"""An operation of the disk that is not answered for longer than every deadline.

As with a real file system whose server is gone, the process that asked cannot even be killed.  The
tier answers all the same, says what it does not know, closes, and is as wanted when the answer
comes late.  A real distributed file system that hangs is in tests/faults/moosefs.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from anyio import to_thread

from tests.faults.disks import replicas
from tests.faults.disks.faults import WRITING
from tests.faults.disks.kinds import KINDS
from tests.faults.disks.recording import note_to
from tests.support.fuse.faults import Fault, How
from tests.support.fuse.mounted import Lab, mounted
from weightctl.adapters import dfs, nof
from weightctl.controller.ports import Tier, TierContext

DEADLINE_S = 1.0
"""Of one call; what hangs costs so long."""


def _dfs(folder: Path, context: TierContext) -> Tier:
    options = {"path": str(folder / "root"), "workers": 3, "deadline_s": DEADLINE_S}
    return dfs.factory("tier", options, context)


def _nof(folder: Path, context: TierContext) -> Tier:
    options = {"path": str(folder / "device"), "size_bytes": 4 << 20, "deadline_s": DEADLINE_S}
    return nof.factory("tier", options, context)


HASTY = {
    "dfs": replace(KINDS["dfs"], build=_dfs),
    "nof": replace(KINDS["nof"], build=_nof),
}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[tuple[Lab, Path]]:
    with mounted(tmp_path / "disk") as lab:
        yield lab, tmp_path / "disk"


@pytest.mark.parametrize("name, ops, at", [("dfs", WRITING, 7), ("nof", WRITING, 9)])
def test_a_disk_that_does_not_answer_costs_a_tier_nothing_but_time(
    disk: tuple[Lab, Path], name: str, ops: frozenset[int], at: int
) -> None:
    lab, folder = disk
    kind = HASTY[name]

    async def story() -> None:
        life = replicas.Life(kind, folder, note_to(lab))
        await to_thread.run_sync(lab.arm, Fault(ops=ops, at=at, how=How.HUNG))
        await life.run()
        assert await to_thread.run_sync(lab.met)
        assert life.problems, "nobody noticed"
        assert await to_thread.run_sync(lab.let_go)
        life.kind = KINDS[name]  # with patience: from now on everything must succeed
        await life.converge()
        await to_thread.run_sync(replicas.judge, kind, folder, list(life.facts))

    asyncio.run(story())
