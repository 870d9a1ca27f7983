"""A state directory that is put back from an older copy: its tiers have served later terms."""

import re
import shutil
from pathlib import Path

import pytest

from tests.support.cli import IDENTITY, Cli
from weightctl.controller.cli.exit_codes import ExitCode


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
    refused = cli.run("evict", IDENTITY, "--wait", "--timeout", "2s", code=ExitCode.TIMEOUT)
    found = re.search(r"--set store\.term_above=(\d+)", refused.err)
    assert found is not None, refused.err
    cli.run("evict", IDENTITY, "--wait", "--set", f"store.term_above={found[1]}")
    assert cli.json("get", IDENTITY)["residency"] == "COLD"
    cli.run("rehydrate", IDENTITY, "--wait")
    assert cli.json("get", IDENTITY)["residency"] == "HOT"
