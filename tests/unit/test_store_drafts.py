"""Drafts of files: a dead writer's is removed by the next one, a living writer's never."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from weightctl.controller.store.drafts import draft_of, open_draft, sweep_drafts

TOKEN = "0123456789abcdef"
DIE = """
import os, sys
from pathlib import Path
from weightctl.controller.store.drafts import draft_of, open_draft
open_draft(draft_of(Path(sys.argv[1]), sys.argv[2]))
os.kill(os.getpid(), 9)
"""


def test_a_killed_writer_s_draft_is_removed_by_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    subprocess.run([sys.executable, "-c", DIE, str(path), TOKEN], check=False, env=environ())
    assert draft_of(path, TOKEN).exists()
    sweep_drafts(path)
    assert not list(tmp_path.iterdir())


def test_a_living_writer_s_draft_stays(tmp_path: Path) -> None:
    path = tmp_path / "file"
    descriptor = open_draft(draft_of(path, TOKEN))
    try:
        sweep_drafts(path)
        assert draft_of(path, TOKEN).exists()
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    "name",
    [f".other.{TOKEN}.partial", ".file.partial", f".file.{TOKEN}.partial.bak", f"file.{TOKEN}"],
)
def test_what_is_no_draft_of_the_file_stays(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("x")
    (tmp_path / f".file.{'f' * 16}.partial").symlink_to(tmp_path / name)
    sweep_drafts(tmp_path / "file")
    assert len(list(tmp_path.iterdir())) == 2


def environ() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / ".devroot")}
