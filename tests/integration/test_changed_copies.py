"""A copy that was read back right and changed since: a look overrules what was read."""

from pathlib import Path

import pytest
from anyio import to_thread

from tests.support.file_media import FileHarness
from tests.support.loop_rig import IDENTITY, members_of, place, rig, sim_tiers
from weightctl.adapters.conformance.suite.material import read_all
from weightctl.controller.core.policy import Policy
from weightctl.controller.core.records import Availability, Operation, Residency
from weightctl.controller.runtime.runner import Failed


@pytest.mark.parametrize("kind", ["local_disk", "dfs"])
@pytest.mark.parametrize("left_bytes", [0, 20])
async def test_a_file_that_was_cut_after_it_was_read_back_justifies_no_drop(
    tmp_path: Path, kind: str, left_bytes: int
) -> None:
    harness = FileHarness(f"weightctl.adapters.{kind}:factory", tmp_path / kind)
    mem, _, _ = sim_tiers()
    async with harness.tier() as cold, rig(tmp_path / "state", (mem, cold)) as r:
        data = await r.publish()
        place(mem, IDENTITY, data)
        await r.repair()
        await r.converge()
        victim = members_of(IDENTITY, data)[1]

        def cut() -> None:
            with harness.replica(victim).open("r+b") as file:
                file.truncate(left_bytes)

        await to_thread.run_sync(cut)
        await r.start(Residency.COLD)
        await r.converge()
        assert await r.summary() == (Availability.READY, Residency.COLD, Operation.NONE)
        for member in members_of(IDENTITY, data):
            assert await read_all(cold, member) == data[member.key]


async def test_no_copy_that_a_tier_shows_otherwise_than_recorded_is_the_last_one(
    tmp_path: Path,
) -> None:
    mem, disk, far = sim_tiers()
    async with rig(tmp_path, (mem, disk, far), policy=Policy(cold_copies=2)) as r:
        data = await r.publish()
        place(mem, IDENTITY, data)
        await r.repair()
        await r.converge()
        victim = members_of(IDENTITY, data)[1]
        for tier in (disk, far):
            copy = tier.find(victim.key)
            assert copy is not None
            del copy.content[5:]
        await r.start(Residency.COLD)
        await r.converge()
        whole = [tier.find(victim.key) for tier in (disk, far)]
        assert data[victim.key] in [bytes(copy.content) for copy in whole if copy is not None]


async def test_a_copy_that_was_made_anew_is_read_back_again_without_a_wait(tmp_path: Path) -> None:
    mem, disk, _ = sim_tiers()
    async with rig(tmp_path, (mem, disk)) as r:
        data = await r.publish()
        place(mem, IDENTITY, data)
        await r.repair()
        await r.converge()
        disk.replicas.clear()
        place(disk, IDENTITY, data)
        await r.start(Residency.COLD)
        before = len(r.reports)
        await r.converge()
        passes = r.reports[before:]
        assert any("Retry" in one.tally.reasons for one in passes)
        assert all("Conflict" not in one.tally.reasons for one in passes), "nothing is in the way"
        assert not [one for one in passes if isinstance(one.following, Failed)]
        assert await r.summary() == (Availability.READY, Residency.COLD, Operation.NONE)
