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
