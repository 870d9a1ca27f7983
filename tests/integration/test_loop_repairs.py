"""A repair that has to wait, for room or for whatever else, does what it can once."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.loop_rig import IDENTITY, place, rig, sim_tiers
from weightctl.controller.core.observation import Member
from weightctl.controller.core.policy import Policy
from weightctl.controller.core.records import Operation, Residency


async def test_a_repair_without_room_reads_nothing_back_anew_when_the_clock_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mem, disk, far = sim_tiers()
    disk.capacity_bytes = 10
    reads: list[str] = []
    verify = far.verify

    async def counted(batch: Sequence[Member], **more: Any) -> Any:
        reads.extend(member.key for member in batch)
        return await verify(batch, **more)

    monkeypatch.setattr(far, "verify", counted)
    policy = Policy(cold_copies=2, evidence_max_age_s=100.0)
    async with rig(tmp_path, (mem, disk, far), policy=policy) as r:
        data = await r.publish()
        place(far, IDENTITY, data)
        await r.repair(Residency.COLD)
        await r.settle()
        for _ in range(5):
            r.clock.jump(90.0)
            r.clock.jump_wall(-60.0)
            await r.step()
        assert sorted(reads) == sorted(data)
        assert (await r.record()).operation is Operation.REPAIRING
