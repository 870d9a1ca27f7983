"""Every verb as a person types it: real processes, a real store, real tiers."""

import os
import pty
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import FOUR_TIERS, IDENTITY, INTERRUPTIBLE, PATIENCE_S, WEIGHTCTL, Cli, tree
from tests.support.models import random_tensors, write_model
from weightctl.controller.core.identity import (
    COMPONENT_BYTES_MAX,
    manifest_key,
    parse_identity,
)
from weightctl.controller.store.lock import DirectoryLock
from weightctl.controller.weightstore.source import ModelSource


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


def test_the_whole_life_of_a_revision_without_a_running_controller(cli: Cli) -> None:
    report = cli.imported()
    assert report["tensors"] == len(random_tensors())
    assert report["tiers"] == ["memory", "local_disk"]
    assert cli.json("get", IDENTITY)["availability"] == "READY"

    plan = cli.json("evict", IDENTITY, "--dry-run")
    assert (plan["purpose"], plan["verdict"], plan["converges"]) == ("evict", "work", True)
    evicted = cli.json("evict", IDENTITY, "--wait")
    assert (evicted["residency"], evicted["operation"]) == ("COLD", None)
    assert cli.json("rehydrate", IDENTITY, "--wait")["residency"] == "HOT"

    loaded = cli.json("load", IDENTITY, str(cli.folder / "out"))
    assert loaded["sizeBytes"] == report["logicalBytes"]
    with ModelSource(cli.folder / "out") as copy:
        names = {entry.name for file in copy.files for entry in file.header.entries}
    assert names == set(random_tensors())

    details = cli.json("describe", IDENTITY)
    assert details["membersTotal"] == report["payloadCount"] + 1
    assert {row["droppedTier"] for row in details["evidence"]} == {"memory"}
    assert [row["message"] for row in details["operations"]] == ["completed", "completed"]

    deleted = cli.json("delete", IDENTITY, "--wait", "--yes")
    assert (deleted["availability"], deleted["residency"]) == ("DELETED", "ABSENT")
    assert {row["usedBytes"] for row in cli.json("tiers")["items"]} == {0}
    assert cli.json("oplog", "verify")["ok"]
    again = cli.run("import", IDENTITY, str(cli.model), code=11)
    assert "error: CONFLICT: the name prod/model/v1@1 is used up\nwhy: " in again.err


def test_a_revision_whose_manifest_key_is_as_long_as_may_be_lives_like_any_other(
    tmp_path: Path,
) -> None:
    cli = Cli(tmp_path, extra="[import]\npayload_bytes = 256\n[policy]\npass_members_max = 1")
    shortest = manifest_key(parse_identity("n/r/v@1"))
    longest = f"{'n' * (COMPONENT_BYTES_MAX - len(shortest) + 1)}/r/v@1"
    assert len(manifest_key(parse_identity(longest))) == COMPONENT_BYTES_MAX
    cli.run("import", longest, str(cli.model))
    assert cli.json("evict", longest, "--wait")["residency"] == "COLD"
    cli.run("load", longest, str(cli.folder / "out"))
    assert cli.json("oplog", "verify")["ok"]
    assert cli.json("delete", longest, "--wait", "--yes")["availability"] == "DELETED"
    refused = cli.run("import", f"n{longest}", str(cli.model), code=2)
    assert "its manifest key is longer than 1024 bytes" in refused.err
    assert [row["identity"] for row in cli.json("list")["items"]] == [longest]


def test_the_verbs_that_only_ask(cli: Cli) -> None:
    cli.ready()
    listed = cli.json("list")
    assert [row["identity"] for row in listed["items"]] == [IDENTITY]
    assert cli.json("list", "prod/model")["items"] == listed["items"]
    assert cli.json("list", "prod/other")["items"] == []
    assert cli.run("list", "-o", "name").out == f"{IDENTITY}\n"
    assert cli.json("keys", IDENTITY)["manifestKey"] == manifest_key(parse_identity(IDENTITY))
    entries = cli.json("oplog", "show")["items"]
    assert [row["sequence"] for row in entries] == [1, 2]
    assert entries[1]["summary"] == f"{IDENTITY} generation 2: READY HOT"
    assert cli.json("oplog", "show", "--from", "2", "--limit", "1")["items"] == entries[1:]
    assert cli.json("lease", "list")["items"] == []
    assert "it is complete and readable" in cli.json("explain", IDENTITY)["summary"]
    assert cli.json("config", "show", "--origin")["tiersOrigin"] == f"file {cli.config}"
    tiers = {row["name"]: row for row in cli.json("tiers")["items"]}
    assert (tiers["memory"]["hot"], tiers["local_disk"]["hot"]) == (True, False)
    assert cli.json("doctor")["ok"]
    assert cli.json("plan")["items"][0]["verdict"] == "converged"


def test_pages_of_a_listing_follow_each_other(cli: Cli) -> None:
    small = write_model(cli.folder / "small.safetensors", {"t": ("U8", (4,), b"abcd")})
    for revision in ("v1@10", "v1@2", "v%2541@1"):
        cli.run("import", f"prod/model/{revision}", str(small))
    for words in (("list", "prod/model"), ("list",)):
        seen, token = [], ""
        for _ in range(3):
            page = cli.json(*words, "--limit", "1", "--page-token", token)
            seen += [row["identity"] for row in page["items"]]
            token = page["nextPageToken"]
        revisions = ["v%2541@1", "v1@2", "v1@10"]
        assert (seen, token) == ([f"prod/model/{revision}" for revision in revisions], "")
    stored = cli.run("list", "prod/model", "--page-token", "v%41\x1f1", "-o", "name").out.split()
    assert stored == ["prod/model/v1@2", "prod/model/v1@10"], "the contract's own token"
    assert cli.run("list", "prod/model", "--limit", "1001", code=2).out == ""


def test_a_dry_run_and_a_question_write_nothing_anywhere(tmp_path: Path) -> None:
    cli = Cli(tmp_path, FOUR_TIERS, "[policy]\ncold_copies = 3\n")
    cli.imported()
    before = tree(tmp_path)
    for verb in ("evict", "rehydrate", "repair", "delete"):
        assert cli.json(verb, IDENTITY, "--dry-run")["purpose"] == verb
    for words in (("plan",), ("plan", IDENTITY), ("tiers",), ("explain", IDENTITY), ("doctor",)):
        cli.run(*words)
    for words in (("get", IDENTITY), ("list",), ("describe", IDENTITY), ("oplog", "verify")):
        cli.run(*words)
    assert tree(tmp_path) == before


def test_questions_make_neither_a_state_directory_nor_a_tier(tmp_path: Path) -> None:
    cli = Cli(tmp_path, FOUR_TIERS)
    before = tree(tmp_path)
    tiers = cli.json("tiers")["items"]
    assert all("not set up yet" in row["problem"] for row in tiers), tiers
    cli.run("doctor")
    assert "holds no state" in cli.run("list", code=1).err
    assert "holds no state" in cli.run("evict", IDENTITY, "--dry-run", code=1).err
    assert tree(tmp_path) == before


def test_a_dry_run_is_refused_where_the_real_verb_would_be(cli: Cli) -> None:
    cli.ready()
    assert (
        "STALE" in cli.run("evict", IDENTITY, "--dry-run", "--expected-generation", "9", code=4).err
    )
    cli.run("lease", "acquire", IDENTITY, "--holder", "reader")
    for verb in ("evict", "rehydrate", "delete"):
        assert "BUSY" in cli.run(verb, IDENTITY, "--dry-run", code=5).err


@pytest.mark.parametrize(
    "words, code, said",
    [
        (("get", "prod/model/v1@2"), 3, "NOT_FOUND"),
        (("get", "prod/model@2"), 2, "cannot be read"),
        (("get", "prod/model/%zz@2"), 2, "two hexadecimal digits"),
        (("evict", "prod/model/v1@2", "--wait"), 3, "NOT_FOUND"),
        (("evict", IDENTITY, "--wait", "--expected-generation", "9"), 4, "STALE_GENERATION"),
        (("lease", "renew", "99"), 3, "NOT_FOUND"),
        (("lease", "acquire", IDENTITY, "--holder", "", "--ttl", "1s"), 2, "holder"),
        (("load", IDENTITY, "out", "--tensor", "none"), 3, "none"),
        (("import", "prod/model/v2@1", "none.safetensors"), 1, "none.safetensors"),
        (("oplog", "show", "--limit", "x"), 2, "it must be a whole number from 0"),
        (("evict", IDENTITY, "--wait", "--dry-run"), 2, "not allowed with"),
    ],
)
def test_a_refusal_has_its_exit_code_and_leaves_stdout_empty(
    cli: Cli, words: tuple[str, ...], code: int, said: str
) -> None:
    cli.ready()
    ran = cli.run(*words, code=code, cwd=cli.folder)
    assert said in ran.err
    assert ran.out == ""


def test_an_unwaited_operation_is_recorded_and_carried_out_later(cli: Cli) -> None:
    cli.ready()
    ran = cli.run("evict", IDENTITY, "-o", "json")
    assert ran.document["operation"]["operation"] == "EVICTING"
    assert "`weightctl run`, or the same verb with --wait" in ran.err
    assert "OperationRunning" in cli.run("explain", IDENTITY).out
    assert cli.json("plan", IDENTITY)["purpose"] == "evict"
    cli.run("rehydrate", IDENTITY, code=5)
    assert cli.json("evict", IDENTITY, "--wait")["residency"] == "COLD"


def test_load_never_replaces_what_it_was_not_asked_to(cli: Cli) -> None:
    cli.ready()
    other = write_model(cli.folder / "other.safetensors", {"t": ("U8", (4,), b"abcd")})
    (cli.folder / "out").mkdir()
    inside = write_model(cli.folder / "out" / "model.safetensors", {"t": ("U8", (4,), b"abcd")})
    for target, path in ((other, other), (inside.parent, inside)):
        kept = path.read_bytes()
        refused = cli.run("load", IDENTITY, str(target), code=11)
        assert "--force" in refused.err
        assert path.read_bytes() == kept
        cli.run("load", IDENTITY, str(target), "--force")
        assert path.read_bytes() == cli.model.read_bytes()
        cli.run("load", IDENTITY, str(target))


def test_a_plan_has_an_exit_code_for_scripts(cli: Cli) -> None:
    cli.ready()
    detailed = ("plan", IDENTITY, "--detailed-exitcode")
    cli.run(*detailed, code=0)
    cli.run("evict", IDENTITY)
    cli.run(*detailed, code=2)
    cli.run(*detailed, "--set", "policy.paused=true", code=3)
    cli.run("evict", IDENTITY, "--wait")
    cli.run(*detailed, code=0)


def test_leases_hold_off_and_let_go(cli: Cli) -> None:
    cli.ready()
    lease = cli.json("lease", "acquire", IDENTITY, "--holder", "reader", "--ttl", "1h")
    number = str(lease["leaseId"])
    assert cli.run("lease", "list", "-o", "name").out == f"{number}\n"
    assert cli.json("lease", "list", IDENTITY)["items"] == [lease]
    renewed = cli.json("lease", "renew", number, "--ttl", "2h")
    assert renewed["expiresAtMs"] > lease["expiresAtMs"]
    assert "LeaseLive" in cli.run("explain", IDENTITY).out
    for verb in (("evict", IDENTITY), ("delete", IDENTITY, "--yes")):
        assert "BUSY" in cli.run(*verb, code=5).err
    cli.run("lease", "release", number)
    cli.run("lease", "release", number)
    assert cli.json("lease", "list")["items"] == []
    cli.run("delete", IDENTITY, "--yes", "--wait")


def test_a_lease_says_who_holds_it_and_what_was_released(cli: Cli) -> None:
    cli.ready()
    acquire = ("lease", "acquire", IDENTITY, "--holder", "reader", "--ttl", "1h")
    lease = cli.json(*acquire)
    again = cli.run(*acquire, "-o", "json")
    assert again.document == lease
    assert f"reader holds lease {lease['leaseId']} already" in again.err
    assert "lease renew" in again.err
    busy = cli.run("delete", IDENTITY, "--yes", code=5).err
    assert f"lease {lease['leaseId']} of 'reader' until 20" in busy
    assert f"({lease['expiresAtMs']} ms)" in busy
    release = ("lease", "release", str(lease["leaseId"]))
    assert cli.json(*release)["items"] == [{**lease, "live": False}]
    nothing = cli.run(*release, "-o", "json")
    assert nothing.document["items"] == []
    assert "no such lease: nothing to release" in nothing.err


def test_what_is_deleted_says_so_and_stays_so(cli: Cli) -> None:
    cli.ready()
    cli.run("delete", IDENTITY, "--yes", "--wait")
    for words in (
        ("evict", IDENTITY),
        ("rehydrate", IDENTITY, "--dry-run"),
        ("repair", IDENTITY),
        ("load", IDENTITY, str(cli.folder / "out")),
        ("lease", "acquire", IDENTITY, "--holder", "reader"),
    ):
        refused = cli.run(*words, code=6).err
        assert "it is DELETED, and its name is never used again" in refused
        assert "under a new weight generation" in refused
    again = cli.run("delete", IDENTITY, "--yes", "-o", "json")
    assert again.document["availability"] == "DELETED"
    assert f"{IDENTITY} is deleted already" in again.err


def test_destructive_verbs_need_a_yes_where_nobody_can_be_asked(cli: Cli) -> None:
    cli.ready()
    cli.run("snapshot", "save", str(cli.folder / "snap"))
    before = tree(cli.folder)
    for words in (("delete", IDENTITY), ("snapshot", "restore", str(cli.folder / "snap"))):
        ran = cli.run(*words, code=2)
        assert "--yes" in ran.err
    assert tree(cli.folder) == before


@pytest.mark.parametrize(
    "answer, code, availability", [("n\n", 1, "READY"), ("y\n", 0, "DELETING")]
)
def test_on_a_terminal_a_destructive_verb_asks(
    cli: Cli, answer: str, code: int, availability: str
) -> None:
    cli.ready()
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        cli.command("delete", IDENTITY), env=cli.environ(), stdin=theirs, stderr=theirs
    )
    os.close(theirs)
    asked = b""
    while b"[y/N]" not in asked:
        asked += os.read(ours, 1000)
    os.write(ours, answer.encode())
    assert child.wait(PATIENCE_S) == code
    os.close(ours)
    assert cli.json("get", IDENTITY)["availability"] == availability


def test_an_import_that_was_not_finished_is_deleted_by_delete(cli: Cli) -> None:
    cli.ready()
    store = "weightctl.controller.store.store"
    begin = (
        "import asyncio, sys; from weightctl.controller.clock import *\n"
        f"from {store} import WeightMetadataStore as S\n"
        "from weightctl.controller.core.identity import parse_identity\n"
        "async def main():\n"
        " async with S.open(sys.argv[1], clock=SystemClock(), entropy=SystemEntropy()) as s:\n"
        "  await s.begin_import(identity=parse_identity('prod/model/v2@1'),"
        " expected_payload_count=1, expected_logical_bytes=1)\n"
        "asyncio.run(main())"
    )
    subprocess.run([sys.executable, "-c", begin, str(cli.state_dir)], check=True)
    deleted = cli.json("delete", "prod/model/v2@1", "--yes", "--wait")
    assert deleted["availability"] == "DELETED"


def test_a_snapshot_is_saved_verified_and_restored(cli: Cli) -> None:
    cli.ready()
    file = str(cli.folder / "snap")
    saved = cli.json("snapshot", "save", file)
    assert cli.json("snapshot", "verify", file) == {**saved, "action": "verified"}
    record = cli.json("get", IDENTITY)
    cli.run("delete", IDENTITY, "--yes")
    cli.run("snapshot", "restore", file, "--yes")
    assert cli.json("get", IDENTITY) == record
    Path(file).write_bytes(Path(file).read_bytes().replace(b"READY", b"REDAY"))
    Path(file).write_bytes(Path(file).read_bytes()[:-9])
    cli.run("snapshot", "verify", file, code=2)
    cli.run("snapshot", "restore", file, "--yes", code=2)
    assert cli.json("get", IDENTITY) == record


def test_a_damaged_op_log_is_found_and_reading_goes_on(cli: Cli) -> None:
    cli.ready()
    (file,) = cli.state_dir.glob("*.db")
    with sqlite3.connect(file) as connection:
        connection.execute(
            "UPDATE oplog SET payload = x'00' || substr(payload, 2) WHERE sequence = 2"
        )
    connection.close()
    report = cli.json("oplog", "verify", code=8)
    assert not report["ok"]
    ran = cli.run("get", IDENTITY)
    assert "IMPORTING" in ran.out
    assert "warning" in ran.err


def test_a_full_tier_has_an_exit_code_of_its_own(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    cli.config.write_text(f"{cli.config.read_text()}\ncapacity_bytes = 9\n")
    assert "local_disk" in cli.run("import", IDENTITY, str(cli.model), code=7).err


def largest_replica(cli: Cli, tier: str) -> Path:
    replicas = [path for path in (cli.folder / tier).rglob("*") if path.is_file()]
    return max(replicas, key=lambda path: path.stat().st_size)


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.chmod(0o600)
    path.write_bytes(content)


def test_wrong_bytes_in_the_only_copy_are_an_integrity_error(cli: Cli) -> None:
    cli.ready()
    cli.run("evict", IDENTITY, "--wait")
    flip_a_bit(largest_replica(cli, "local_disk"))
    ran = cli.run("load", IDENTITY, str(cli.folder / "out"), code=8)
    assert "error: " in ran.err
    assert not (cli.folder / "out" / "model.safetensors").exists()


def test_a_load_that_finds_no_readable_replica_anywhere_is_a_loss(cli: Cli) -> None:
    cli.ready()
    largest_replica(cli, "memory").unlink()
    largest_replica(cli, "local_disk").unlink()
    ran = cli.run("load", IDENTITY, str(cli.folder / "out"), code=15)
    assert "no tier holds a readable replica of it (memory: ABSENT; local_disk: ABSENT)" in ran.err
    assert "weightctl tiers" in ran.err


def test_wrong_bytes_in_a_cold_copy_are_replaced_before_memory_is_let_go(cli: Cli) -> None:
    cli.ready()
    flip_a_bit(largest_replica(cli, "local_disk"))
    assert cli.json("evict", IDENTITY, "--wait")["residency"] == "COLD"
    loaded = cli.json("load", IDENTITY, str(cli.folder / "out"))
    assert loaded["verifiedBytes"] > 0
    assert loaded["bytesByTier"].keys() == {"local_disk"}


def test_a_loss_ends_the_waiting_with_its_own_exit_code(cli: Cli) -> None:
    cli.ready()
    cli.run("evict", IDENTITY, "--wait")
    cli.run("rehydrate", IDENTITY)
    largest_replica(cli, "local_disk").unlink()
    ran = cli.run("rehydrate", IDENTITY, "--wait", code=15)
    assert "NothingReadable" in ran.err
    assert cli.json("get", IDENTITY)["availability"] == "DEGRADED"


def test_nothing_is_started_that_could_never_end_because_a_member_is_lost(cli: Cli) -> None:
    cli.ready()
    cli.run("evict", IDENTITY, "--wait")
    lost = largest_replica(cli, "local_disk")
    content, key = lost.read_bytes(), payload_key(cli)
    lost.unlink()
    for words in (("repair", "--dry-run"), ("repair", "--wait"), ("rehydrate",), ("evict",)):
        refused = cli.run(words[0], IDENTITY, *words[1:], code=15).err
        assert key in refused, words
        assert "weight generation" in refused, words
    assert cli.json("get", IDENTITY)["operation"] is None
    lost.write_bytes(content)
    cli.run("rehydrate", IDENTITY, "--wait")


def test_a_refusal_names_what_an_operation_that_cannot_end_has_lost(cli: Cli) -> None:
    cli.ready()
    cli.run("evict", IDENTITY, "--wait")
    cli.run("rehydrate", IDENTITY)
    key = payload_key(cli)
    largest_replica(cli, "local_disk").unlink()
    for words in (
        ("evict", IDENTITY),
        ("delete", IDENTITY, "--yes"),
        ("delete", IDENTITY, "--dry-run"),
    ):
        refused = cli.run(*words, code=5).err
        assert "cannot end" in refused
        assert key in refused
        assert "weight generation" in refused
    with cli.running():
        cli.wait(lambda: key in cli.run("delete", IDENTITY, "--yes", code=5).err, cli.log)


def test_explain_judges_by_what_it_has_just_seen(cli: Cli) -> None:
    cli.ready()
    for tier in ("memory", "local_disk"):
        largest_replica(cli, tier).unlink()
    found = cli.json("explain", IDENTITY)
    assert cli.json("get", IDENTITY)["availability"] == "READY"
    assert "not every member is readable; residency MIXED as observed now" in found["summary"]
    reasons = {hold["reason"]: hold["what"] for hold in found["holds"]}
    assert payload_key(cli) in reasons["NothingReadable"]
    assert "recorded READY HOT" in reasons["SummaryDiffers"]


def payload_key(cli: Cli) -> str:
    members = cli.json("describe", IDENTITY)["members"]
    return str(max(members, key=lambda member: member["sizeBytes"])["key"])


def test_a_held_state_directory_without_a_controller_names_its_holder(cli: Cli) -> None:
    cli.ready()
    lock = DirectoryLock(cli.state_dir).acquire(0)
    try:
        ran = cli.run("evict", IDENTITY, code=12)
    finally:
        lock.release()
    assert f"process {os.getpid()} holds it" in ran.err


def test_a_reader_of_stdout_that_goes_away_is_no_fault(cli: Cli) -> None:
    cli.ready()
    with subprocess.Popen(
        cli.command("oplog", "show"),
        env=cli.environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        said = child.stderr.read()
        assert (child.wait(PATIENCE_S), said) == (141, b"")


def test_no_color_is_kept_on_a_terminal(cli: Cli) -> None:
    cli.ready()
    shown = {}
    for name, more in (("color", {"TERM": "xterm"}), ("plain", {"NO_COLOR": "1"})):
        ours, theirs = pty.openpty()
        subprocess.run(
            cli.command("list"),
            env=cli.environ() | more,
            stdout=theirs,
            check=True,
            timeout=PATIENCE_S,
        )
        shown[name] = os.read(ours, 10_000)
        os.close(theirs)
        os.close(ours)
    assert b"\x1b[32mREADY" in shown["color"]
    assert b"\x1b" not in shown["plain"]


def test_ctrl_c_ends_the_waiting_and_not_the_operation(cli: Cli) -> None:
    cli.ready()
    paused = (*cli.command("evict", IDENTITY, "--wait"), "--set", "policy.paused=true")
    with subprocess.Popen(paused, env=cli.environ(), stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        assert "Paused" in child.stderr.readline()
        child.send_signal(signal.SIGINT)
        assert child.wait(PATIENCE_S) == 130
        assert "no longer waiting; the operation is recorded" in child.stderr.read()
    assert cli.json("get", IDENTITY)["operation"]["operation"] == "EVICTING"


def test_ctrl_c_reaches_a_command_whose_parent_ignores_it() -> None:
    """As below a shell that has started the tests in the background."""
    ask = "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    for prefix, ignored in (((), "True"), (INTERRUPTIBLE, "False")):
        below = ["bash", "-c", "trap '' INT; exec \"$@\"", "-", *prefix, sys.executable, "-c", ask]
        done = subprocess.run(below, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == ignored


def test_a_timeout_ends_the_waiting_with_the_reason(cli: Cli) -> None:
    cli.ready()
    cli.times_out("evict", IDENTITY, "--set", "policy.paused=true", told="Paused")


def python(program: str, cli: Cli) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        env=cli.environ(),
        capture_output=True,
        text=True,
        check=True,
    )


HEAVY = ("aiosqlite", "anyio", "asyncio", "opentelemetry", "pydantic", "uvloop", "yaml")


QUESTIONS = (
    ("get", IDENTITY),
    ("list",),
    ("describe", IDENTITY),
    ("keys", IDENTITY),
    ("lease", "list"),
    ("oplog", "show"),
    ("oplog", "verify"),
    ("config", "show"),
    ("exit-codes",),
)


def test_commands_that_only_ask_import_nothing_heavy(cli: Cli) -> None:
    cli.ready()
    program = (
        "import sys; from weightctl.controller.cli.main import main\n"
        f"for words in {QUESTIONS!r}:\n"
        f"    assert main([*words, '--config', {str(cli.config)!r}]) == 0, words\n"
        f"    assert not set({HEAVY!r}) & set(sys.modules), words\n"
    )
    assert python(program, cli).stderr == ""


def test_help_imports_nothing_heavy(cli: Cli) -> None:
    program = (
        "import sys; from weightctl.controller.cli.main import main\n"
        "try: main(['--help'])\n"
        f"finally: print(sorted(set({HEAVY!r}) & set(sys.modules)), file=sys.stderr)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stderr == "[]\n"


def test_the_installed_command_is_the_same(cli: Cli) -> None:
    script = Path(sys.executable).with_name("weightctl")
    shown = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    module = subprocess.run([*WEIGHTCTL, "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout == module.stdout


def test_repair_of_a_whole_revision_reads_every_replica_back(cli: Cli) -> None:
    cli.ready()
    planned = cli.json("repair", IDENTITY, "--dry-run")
    assert {(step["step"], step["source"]) for step in planned["steps"] if step["source"]} == {
        ("verify", "memory"),
        ("verify", "local_disk"),
    }
    assert cli.json("repair", IDENTITY, "--wait")["availability"] == "READY"
