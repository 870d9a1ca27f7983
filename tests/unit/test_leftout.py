"""Notes of plugins that are left out: they hold for one version, and a damaged one for none."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from weightctl.controller.runtime.holding import Owner
from weightctl.controller.runtime.leftout import FOLDER, LeftOut, leave_out

OWNER = Owner(name="cold", plugin="cold:factory", package="cold 1.0")


def test_a_note_holds_for_its_package_in_that_version(tmp_path: Path) -> None:
    file = leave_out(str(tmp_path), OWNER, "the stack")
    assert str(file) in LeftOut(str(tmp_path)).why(OWNER)
    assert not LeftOut(str(tmp_path)).why(
        Owner(name="cold", plugin="cold:factory", package="cold 1.1")
    )
    assert [path.name for path in file.parent.iterdir()] == ["cold.json"]
    file.unlink()
    assert not LeftOut(str(tmp_path)).why(OWNER)


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(b'{"plugin": "cold:fac'),
        lambda file: file.write_bytes(b"[" * 100_000),
        lambda file: file.write_bytes(b"\xff\xfe"),
        lambda file: file.write_bytes(b"[]"),
        lambda file: file.mkdir(),
        os.mkfifo,
        lambda file: file.symlink_to("/dev/zero"),
    ],
    ids=["empty", "half", "nested", "no text", "a list", "a folder", "a pipe", "a device"],
)
def test_a_damaged_note_names_nobody_and_stops_no_command(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    (tmp_path / FOLDER).mkdir()
    damage(tmp_path / FOLDER / "cold.json")
    assert not LeftOut(str(tmp_path)).why(OWNER)
