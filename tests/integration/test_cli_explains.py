"""What the command line says of a revision that waits: for whom, until when, and what to do."""

import json
import os
from pathlib import Path

import pytest

from tests.support.cli import IDENTITY, Cli
from tests.support.models import random_tensors, write_model
from weightctl.controller.store.lock import DirectoryLock, holder_of

NOBODY = "no controller runs: start `weightctl run`, or repeat the verb with --wait"


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


def reasons(cli: Cli, *words: str) -> dict[str, str]:
    document = cli.json("explain", IDENTITY, *words)
    assert document["observed"]
    return {hold["reason"]: hold["what"] for hold in document["holds"]}


def test_explain_asks_the_tiers_what_an_operation_waits_for(cli: Cli) -> None:
    cli.ready()
    cli.run("evict", IDENTITY)
    cli.run("lease", "list")
    held = reasons(cli)
    assert held["NoController"] == NOBODY
    assert "EVICTING" in held["OperationRunning"]
    assert "Paused" in reasons(cli, "--set", "policy.paused=true")
    (cli.folder / "local_disk").rename(cli.folder / "away")
    held = reasons(cli)
    assert "local_disk" in held["TierUnknown"], held
    cli.run("plan", "--detailed-exitcode", code=3)


def test_explain_says_that_no_tier_has_room(cli: Cli) -> None:
    cli.ready()
    cli.run("evict", IDENTITY, "--wait")
    text = cli.config.read_text()
    head, _, tail = text.partition('kind = "memory"')
    cli.config.write_text(f'{head}kind = "memory"\ncapacity_bytes = 9{tail}')
    cli.run("rehydrate", IDENTITY)
    assert "NoCapacity" in reasons(cli)


def test_explain_says_nothing_of_a_controller_where_one_runs_or_nothing_is_to_do(
    cli: Cli,
) -> None:
    cli.ready()
    assert reasons(cli) == {}
    cli.run("evict", IDENTITY)
    lock = DirectoryLock(cli.state_dir).acquire(0)
    try:
        assert "NoController" not in reasons(cli)
    finally:
        lock.release()


def test_a_busy_refusal_says_that_nobody_works_on_what_is_recorded(cli: Cli) -> None:
    cli.ready()
    cli.run("evict", IDENTITY)
    for words in (
        ("rehydrate", IDENTITY),
        ("rehydrate", IDENTITY, "--dry-run"),
        ("delete", IDENTITY, "--yes"),
        ("load", IDENTITY, str(cli.folder / "out")),
        ("lease", "acquire", IDENTITY, "--holder", "reader"),
    ):
        refused = cli.run(*words, code=5).err
        assert NOBODY in refused, words
        assert f"`weightctl evict {IDENTITY} --wait`" in refused
    with cli.running():
        cli.run("evict", IDENTITY, "--wait")
        cli.run("rehydrate", IDENTITY, "--set", "policy.paused=true")


def test_the_tensors_of_a_revision_are_listed(cli: Cli) -> None:
    cli.ready()
    model = random_tensors()
    listed = cli.json("describe", IDENTITY, "--tensors")["items"]
    assert {row["name"]: (row["dtype"], tuple(row["shape"])) for row in listed} == {
        name: (dtype, shape) for name, (dtype, shape, _) in model.items()
    }
    assert sum(row["sizeBytes"] for row in listed) == sum(len(raw) for _, _, raw in model.values())
    shown = cli.run("describe", IDENTITY, "--tensors").out
    assert "scalar" in shown
    refused = cli.run("load", IDENTITY, str(cli.folder / "out"), "--tensor", "nope", code=3).err
    assert "--tensors` lists them" in refused
    with cli.running():
        assert cli.json("describe", IDENTITY, "--tensors")["items"] == listed


def test_an_import_that_finds_no_place_leaves_its_name_free(cli: Cli) -> None:
    text = cli.config.read_text()
    cli.config.write_text(f"{text}\ncapacity_bytes = 9\n")
    refused = cli.run("import", IDENTITY, str(cli.model), code=7).err
    assert "run the same command again" in refused
    assert "IMPORTING" not in refused
    cli.run("describe", IDENTITY, code=3)
    cli.config.write_text(text)
    cli.imported()


def test_an_import_that_fails_once_it_is_recorded_says_when_its_name_is_used_up(cli: Cli) -> None:
    point = {"WEIGHTCTL_FAILPOINTS": "tier.local_disk.store.before=kill"}
    cli.run("import", IDENTITY, str(cli.model), code=-9, env=point)
    write_model(cli.model, random_tensors(1))
    refused = cli.run("import", IDENTITY, str(cli.model), code=11).err
    assert f"{IDENTITY} stays IMPORTING" in refused
    assert "300 s after the last attempt" in refused
    assert "its name is then used up" in refused
    cli.run("delete", IDENTITY, "--yes")
    refused = cli.run("import", IDENTITY, str(cli.model), code=11).err
    assert f"the name {IDENTITY} is used up" in refused
    assert "stays IMPORTING" not in refused


@pytest.mark.parametrize(
    "words, usage, why",
    [
        (("evict",), "evict", "the following arguments are required: identity"),
        (("evict", IDENTITY, "--wat"), "evict", "unrecognized arguments: --wat"),
        (("lease", "renew", "x"), "lease renew", "invalid int value"),
        (("evcit", IDENTITY), "", "invalid choice"),
    ],
)
def test_a_misspelt_command_line_is_refused_in_three_parts(
    cli: Cli, words: tuple[str, ...], usage: str, why: str
) -> None:
    lines = cli.run(*words, code=2).err.splitlines()
    command = f"weightctl {usage}".strip()
    assert lines[0].startswith(f"usage: {command} ")
    assert lines[-3] == f"error: {command} cannot be understood"
    assert lines[-2].startswith("why: ")
    assert why in lines[-2]
    assert lines[-1] == f"next: see `{command} --help`"


def test_the_holder_of_a_directory_is_told_in_words(cli: Cli) -> None:
    cli.ready()
    assert holder_of(cli.state_dir) == 0
    assert holder_of(cli.folder / "none") == 0
    lock = DirectoryLock(cli.state_dir).acquire(1_700_000_000_000)
    try:
        assert holder_of(cli.state_dir) == os.getpid()
        refused = cli.run("snapshot", "save", str(cli.folder / "snap"), "-o", "json", code=12).err
    finally:
        lock.release()
    why = json.loads(refused)["why"]
    assert f"process {os.getpid()} holds it on " in why
    assert why.endswith("since 2023-11-14T22:13:20Z (1700000000000 ms)")


def test_a_plan_of_a_revision_that_lost_a_member_says_so(cli: Cli) -> None:
    cli.ready()
    members = cli.json("describe", IDENTITY)["members"]
    key = max(members, key=lambda member: member["sizeBytes"])["key"]
    for tier in ("memory", "local_disk"):
        files = [path for path in (cli.folder / tier).rglob("*") if path.is_file()]
        max(files, key=lambda path: path.stat().st_size).unlink()
    for recorded in ("READY", "DEGRADED"):
        assert cli.json("get", IDENTITY)["availability"] == recorded
        plan = cli.json("plan", IDENTITY)
        assert (plan["lostMembers"], plan["converges"]) == (1, False)
        assert plan["processedMembers"] == plan["totalMembers"] - 1
        (warning,) = plan["warnings"]
        assert key in warning
        assert "weight generation" in warning
        assert "converged" not in cli.run("plan").out
        cli.run("plan", IDENTITY, "--detailed-exitcode", code=15)
        cli.run("plan", "--detailed-exitcode", code=15)
        refused = cli.run("load", IDENTITY, str(cli.folder / "out"), code=15).err
        assert key in refused
        if recorded == "READY":
            with cli.running():
                cli.run("explain", IDENTITY)  # what it finds, the loop looks at soon
                cli.wait(lambda: "DEGRADED" in cli.run("get", IDENTITY).out, cli.log)
                assert cli.json("plan", IDENTITY)["verdict"] == "lost"
