"""Every example runs as its docstring says, and prints what it promises."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from weightctl.controller.config.places import memory_path

EXAMPLES = Path("examples")
PRINTS = {
    "hold_a_lease": ["delete refused: BUSY", "after the release: DELETING"],
    "map_tensors": ["layer.1: uint16[4, 16], sum 2016", "mapped: True, bytes copied: 0"],
    "move_a_model": [
        "imported 2 tensors into memory, local_disk",
        "evicted: COLD",
        "rehydrated: HOT",
        "deleted: DELETED",
    ],
    "tier_plugin": ["COLD: the cupboard holds"],
}
LIBRARY = {"picture", "small_model"}


def test_every_example_is_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*PRINTS, *LIBRARY}


@pytest.mark.parametrize("name", PRINTS)
def test_an_example_prints_what_it_promises(name: str, tmp_path: Path) -> None:
    environ = {key: value for key, value in os.environ.items() if key[:10] != "WEIGHTCTL_"}
    command = [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py"), str(tmp_path)]
    try:
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    finally:
        shutil.rmtree(memory_path(str(tmp_path / "state")), ignore_errors=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(PRINTS[name])
    assert all(map(str.startswith, lines, PRINTS[name])), lines
