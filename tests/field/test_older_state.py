"""A state directory that is put back from an older copy: its tiers have served later terms."""

import re
import shutil
from pathlib import Path

import pytest

from tests.support.cli import IDENTITY, Cli


@pytest.mark.parametrize("cold", ["local_disk", "dfs", "nof"])
def test_an_older_copy_is_refused_and_told_how_it_may_go_on(tmp_path: Path, cold: str) -> None:
    cli = Cli(tmp_path, ("memory", cold))
    cli.ready()
    state, older = tmp_path / "state", tmp_path / "older"
    shutil.copytree(state, older)
    for verb in ("evict", "rehydrate"):
        cli.run(verb, IDENTITY, "--wait")
    shutil.rmtree(state)
    older.rename(state)
    told = r"--set store\.term_above=(\d+)"
    found = re.search(told, cli.times_out("evict", IDENTITY, told=told).err)
    assert found is not None
    cli.run("evict", IDENTITY, "--wait", "--set", f"store.term_above={found[1]}")
    assert cli.json("get", IDENTITY)["residency"] == "COLD"
    cli.run("rehydrate", IDENTITY, "--wait")
    assert cli.json("get", IDENTITY)["residency"] == "HOT"


def test_a_copy_of_the_moment_before_the_last_start_removes_nothing_however_often_it_is_started(
    tmp_path: Path,
) -> None:
    cli = Cli(tmp_path)
    cli.ready()
    state, copy, living = tmp_path / "state", tmp_path / "copy", tmp_path / "living"
    shutil.copytree(state, copy)
    cli.run("evict", IDENTITY, "--wait")
    state.rename(living)
    copy.rename(state)
    for _ in range(2):
        cli.times_out("delete", IDENTITY, "--yes", told=r"--set store\.term_above=")
    shutil.rmtree(state)
    living.rename(state)
    cli.run("rehydrate", IDENTITY, "--wait")
    assert cli.json("get", IDENTITY)["residency"] == "HOT"
