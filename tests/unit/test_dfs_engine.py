"""The dfs engine on a file system that changes under its calls, or of which a part is away."""

import os
from pathlib import Path

import pytest

from weightctl.adapters.dfs.engine import Engine
from weightctl.adapters.shared.layout import encode_text
from weightctl.controller.core.observation import Member
from weightctl.controller.errors import TransientError
from weightctl.controller.ports import Fence

FENCE = Fence(holder="store", term=1, operation_id=1, generation=1)
GROUP = "weight:" + "0" * 64


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    engine = Engine(
        memoryview(bytearray(64)),
        path=str(tmp_path / "shared"),
        remembered=str(tmp_path / "tiers" / "dfs.uuid"),
        host="00ff00",
        uuid="medium",
    )
    engine.enter()
    return engine


def test_a_group_that_has_gone_since_it_was_listed_holds_nothing(engine: Engine) -> None:
    assert engine.group_size(encode_text(GROUP)) == 0


def test_a_replica_that_goes_while_its_group_is_measured_is_left_out(
    engine: Engine, tmp_path: Path
) -> None:
    folder = tmp_path / "shared" / "groups" / encode_text(GROUP)
    folder.mkdir(parents=True)
    stem = f"key~{'0' * 64}~{'0' * 16}"
    (folder / stem).write_bytes(b"four")
    (entry,) = os.scandir(folder)
    assert engine._size_of(entry) == 4
    (entry,) = os.scandir(folder)
    (folder / stem).unlink()
    assert engine._size_of(entry) == 0


def test_room_that_is_not_known_is_no_lack_of_room(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MooseFS counts no storage at all while its chunkservers are away."""
    nothing = os.statvfs_result((4096, 4096, 0, 0, 0, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "fstatvfs", lambda _: nothing)
    with pytest.raises(TransientError, match="not known"):
        engine.free_bytes()
    member = Member(group_id=GROUP, key="key", size_bytes=4, sha256=bytes(32))
    with pytest.raises(TransientError, match="not known"):
        engine.begin(member, FENCE, "0123456789", frozenset())
