"""What has lost its owner is told, each with the reason, and nothing is taken for it by mistake."""

from pathlib import Path

import pytest

from tests.support.cli import IDENTITY as NAME
from tests.support.cli import Cli
from tests.support.loop_rig import IDENTITY, contents, identity, place, rig, sim_tiers
from weightctl.controller.api.app import StoreRecords
from weightctl.controller.api.orphans import orphan_list
from weightctl.controller.api.planning import Planning
from weightctl.controller.core.identity import payload_group_id
from weightctl.controller.core.policy import Policy


async def test_a_group_without_an_owner_is_told_and_an_owned_one_is_not(tmp_path: Path) -> None:
    mem, disk, far = sim_tiers()
    async with rig(tmp_path, (mem, disk, far)) as r:
        kept, deleted, stranger = (identity(number) for number in range(3))
        place(mem, kept, await r.publish(kept))
        data = await r.publish(deleted)
        await r.delete(deleted)
        await r.converge(deleted)
        place(far, deleted, data)  # a medium that was away comes back
        place(disk, stranger, contents(stranger, 2))
        await r.store.begin_import(
            identity=IDENTITY, expected_payload_count=2, expected_logical_bytes=128
        )
        place(mem, IDENTITY, contents(IDENTITY, 2))
        before = [tier.contents() for tier in (mem, disk, far)]
        planning = Planning(
            records=StoreRecords(r.store), tiers=(mem, disk, far), policy=Policy(), clock=r.clock
        )
        found = (await orphan_list(planning))["items"]
        assert [
            (row["tier"], row["payloadGroupId"], row["why"].split(":")[0]) for row in found
        ] == [
            ("disk", payload_group_id(stranger), "NoOwner"),
            ("far", payload_group_id(deleted), "OwnerDeleted"),
        ]
        assert [row["objects"] for row in found] == [3, 4]
        assert [row["identity"] for row in found] == [str(stranger), str(deleted)]
        assert found[1]["keys"] == sorted(data)
        assert ["adopt" in row["todo"] for row in found] == [True, False]
        assert all(row["todo"] for row in found)
        assert found[1]["sizeBytes"] == sum(map(len, data.values()))
        assert [tier.contents() for tier in (mem, disk, far)] == before
        far.faults.silent = True
        (_, silent) = (await orphan_list(planning))["items"]
        assert silent["why"].startswith("NotListed: switched off"), "no list is no empty list"
        assert "doctor" in silent["todo"]


def test_a_tier_that_could_not_be_listed_is_no_success(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    cli.ready()
    (cli.folder / "local_disk").rename(cli.folder / "away")
    (row,) = cli.json("orphans", code=1)["items"]
    assert row["why"].startswith("NotListed")


@pytest.mark.parametrize("attended", [False, True])
def test_a_restored_state_tells_what_it_does_not_own(tmp_path: Path, attended: bool) -> None:
    cli = Cli(tmp_path)
    empty = tmp_path / "empty.snapshot"
    cli.run("snapshot", "save", str(empty))
    cli.imported()
    assert cli.json("orphans")["items"] == []
    cli.run("snapshot", "restore", str(empty), "--yes")
    if attended:
        with cli.running():
            found = cli.json("orphans")["items"]
    else:
        found = cli.json("orphans")["items"]
    assert {row["tier"] for row in found} == {"memory", "local_disk"}
    assert all(row["why"].startswith("NoOwner") for row in found)
    assert NAME in cli.run("keys", NAME).out
