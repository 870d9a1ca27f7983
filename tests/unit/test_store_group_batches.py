"""Reading the members of many groups at once gives what reading each alone gives."""

import sqlite3
from pathlib import Path

import pytest

from tests.support.loop_rig import identity, rig
from weightctl.controller.errors import StateDirectoryError


async def test_many_groups_are_read_as_each_alone(tmp_path: Path) -> None:
    async with rig(tmp_path, ()) as r:
        groups = []
        for number in range(150):
            await r.publish(identity(number), payloads=1 + number % 3)
            groups.append((await r.record(identity(number))).manifest.payload_group_id)
        asked = [groups[3], "weight:unknown", *groups, groups[3]]
        alone = [await r.store.directory.members(group_id) for group_id in asked]
        assert await r.store.directory.members_of(asked) == alone
        r.store.directory.clear()
        assert await r.store.directory.members_of(asked) == alone
        assert await r.store.directory.members_of([]) == []


def spoil(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("UPDATE object SET size_bytes = 7 WHERE group_number = 2")
    connection.execute("COMMIT")


async def test_a_damaged_group_is_refused_in_a_batch_too(tmp_path: Path) -> None:
    async with rig(tmp_path, ()) as r:
        groups = []
        for number in range(3):
            await r.publish(identity(number))
            groups.append((await r.record(identity(number))).manifest.payload_group_id)
        r.store.directory.clear()
        await r.store._opened.writer.run(spoil)
        with pytest.raises(StateDirectoryError):
            await r.store.directory.members_of(groups)
