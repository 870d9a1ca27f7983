"""`weightctl run` and the verbs that are sent to it: one holder, many askers, kills and signals."""

import json
import signal
import socket
import subprocess
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.cli import FOUR_TIERS, IDENTITY, PATIENCE_S, Cli
from weightctl.controller.api import wire

WAITING = ("evict", IDENTITY, "--wait", "--timeout", "3m")
PAUSED = "[policy]\npaused = true\n"


def test_verbs_are_carried_out_by_the_running_controller(tmp_path: Path) -> None:
    cli = Cli(tmp_path, FOUR_TIERS)
    with cli.running():
        cli.imported()
        assert cli.json("evict", IDENTITY, "--dry-run")["purpose"] == "evict"
        assert cli.json(*WAITING)["residency"] == "COLD"
        assert cli.json("plan", IDENTITY)["verdict"] == "converged"
        assert cli.json("rehydrate", IDENTITY, "--wait")["residency"] == "HOT"
        lease = cli.json("lease", "acquire", IDENTITY, "--holder", "reader")
        assert "BUSY" in cli.run("delete", IDENTITY, "--yes", code=5).err
        cli.run("lease", "release", str(lease["leaseId"]))
        assert cli.json("load", IDENTITY, str(tmp_path / "out"))["bytesByTier"].keys() == {"memory"}
        assert len(cli.json("tiers")["items"]) == 4
        assert "`weightctl run` is ready" in cli.run("doctor").out
        cli.json("snapshot", "save", str(tmp_path / "snap"))
        refused = cli.run("snapshot", "restore", str(tmp_path / "snap"), "--yes", code=2)
        assert "stop `weightctl run` first" in refused.err
        assert cli.json("delete", IDENTITY, "--yes", "--wait")["availability"] == "DELETED"
    assert not (cli.state_dir / wire.SOCKET_NAME).exists()
    assert "Traceback" not in cli.log()


def test_relative_paths_are_those_of_the_asker(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    with cli.running():
        cli.run("import", IDENTITY, "model.safetensors", cwd=tmp_path)
        cli.run("load", IDENTITY, "out", cwd=tmp_path)
    assert (tmp_path / "out").is_dir()


def test_a_second_controller_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    with cli.running() as first:
        second = cli.run("run", code=12)
        assert f"process {first.pid} holds it" in second.err
        assert first.poll() is None


def test_an_operation_goes_on_after_the_controller_was_killed(tmp_path: Path) -> None:
    cli = Cli(tmp_path, extra=PAUSED)
    cli.ready()
    with cli.running() as child:
        assert cli.json("evict", IDENTITY)["operation"]["operation"] == "EVICTING"
        assert "Paused" in cli.run("explain", IDENTITY).out
        child.kill()
        child.wait()
    assert (cli.state_dir / wire.SOCKET_NAME).exists(), "a killed process leaves its socket"
    assert cli.json("get", IDENTITY)["operation"]["operation"] == "EVICTING"
    cli.config.write_text(cli.config.read_text().replace("paused = true", "paused = false"))
    with cli.running():
        assert cli.json(*WAITING)["residency"] == "COLD"


def test_an_asker_whose_controller_dies_is_told_that_the_outcome_is_unknown(tmp_path: Path) -> None:
    cli = Cli(tmp_path, extra=PAUSED)
    cli.ready()
    with cli.running() as child:
        asker = subprocess.Popen(
            cli.command(*WAITING), env=cli.environ(), stderr=subprocess.PIPE, text=True
        )
        assert asker.stderr is not None
        assert "Paused" in asker.stderr.readline()
        child.kill()
        assert asker.wait(PATIENCE_S) == 1
        assert "answer was lost" in asker.stderr.read()
        asker.stderr.close()


def test_an_asker_whose_controller_stops_is_told_that_the_operation_goes_on(tmp_path: Path) -> None:
    cli = Cli(tmp_path, extra=PAUSED)
    cli.ready()
    with cli.running() as child:
        with subprocess.Popen(
            cli.command(*WAITING), env=cli.environ(), stderr=subprocess.PIPE, text=True
        ) as asker:
            assert asker.stderr is not None
            assert "Paused" in asker.stderr.readline()
            child.send_signal(signal.SIGTERM)
            assert asker.wait(PATIENCE_S) == 14
            said = asker.stderr.read()
        assert child.wait(PATIENCE_S) == 0
    assert "why: Stopping: the controller is stopping" in said
    assert "the operation is recorded and goes on with the next start" in said
    assert cli.json("get", IDENTITY)["operation"]["operation"] == "EVICTING"


def test_the_log_tells_of_each_operation_and_of_what_holds_it(tmp_path: Path) -> None:
    cli = Cli(tmp_path, extra=PAUSED)
    cli.ready()
    cli.run("evict", IDENTITY)
    with cli.running() as child:
        cli.wait(lambda: "Blocked: true" in cli.log(), cli.log)
        cli.config.write_text(cli.config.read_text().replace("paused = true", "paused = false"))
        child.send_signal(signal.SIGHUP)
        cli.wait(lambda: "ended revision" in cli.log(), cli.log)
        cli.run("rehydrate", IDENTITY, "--wait")
        cli.run("delete", IDENTITY, "--yes", "--wait")
    lines = [line for line in cli.log().splitlines() if IDENTITY in line]
    for said in (
        "goes on revision={} work=EVICTING:1",
        "Blocked: true revision={} reason=Paused",
        "Blocked: no longer revision={}",
        "ended revision={} work=EVICTING:1 now=READY/COLD",
        "started revision={} work=REHYDRATING:2",
        "ended revision={} work=REHYDRATING:2 now=READY/HOT",
        "started revision={} work=DELETING",
        "ended revision={} work=DELETING now=DELETED/ABSENT",
    ):
        wanted = f"INFO weightctl.runtime: {said.format(IDENTITY)}"
        assert any(line.startswith(wanted) for line in lines), (wanted, lines)
    assert "INFO weightctl.runtime: signal name=SIGTERM" in cli.log()


def test_an_asker_that_goes_away_leaves_the_operation_running(tmp_path: Path) -> None:
    cli = Cli(tmp_path, extra=PAUSED)
    cli.ready()
    with cli.running():
        with subprocess.Popen(
            cli.command(*WAITING), env=cli.environ(), stderr=subprocess.PIPE, text=True
        ) as asker:
            assert asker.stderr is not None
            assert "Paused" in asker.stderr.readline()
            asker.send_signal(signal.SIGINT)
            assert asker.wait(PATIENCE_S) == 130
        assert cli.json("get", IDENTITY)["operation"]["operation"] == "EVICTING"
        assert cli.json("tiers")["items"]


def test_a_new_policy_is_used_without_a_restart(tmp_path: Path) -> None:
    cli = Cli(tmp_path, extra=PAUSED)
    cli.ready()
    with cli.running() as child:
        cli.run("evict", IDENTITY)
        assert cli.json("explain", IDENTITY)["observed"]
        good = cli.config.read_text()
        cli.config.write_text(good.replace("paused", "pased"))
        child.send_signal(signal.SIGHUP)
        cli.wait(lambda: "configuration not reloaded" in cli.log(), cli.log)
        assert "did you mean policy.paused?" in cli.log()
        cli.config.write_text(good.replace("paused = true", "paused = false"))
        child.send_signal(signal.SIGHUP)
        assert cli.json(*WAITING)["residency"] == "COLD"
        assert "configuration reloaded" in cli.log()


def test_a_second_signal_leaves_at_once(tmp_path: Path) -> None:
    cli = Cli(tmp_path, extra="[run]\ndrain_s = 3600\n")
    cli.ready()
    with cli.running() as child, closing(socket.socket(socket.AF_UNIX)) as client:
        client.connect(str(cli.state_dir / wire.SOCKET_NAME))
        client.send(b"{")  # a request that was begun holds up the first one
        cli.json("plan", IDENTITY)  # it is being read by now
        for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGCONT):
            child.send_signal(number)
        assert child.wait(PATIENCE_S) == 1
    assert "second signal: leaving at once" in cli.log()
    assert cli.json("oplog", "verify")["ok"]


def test_the_log_is_json_where_asked_for(tmp_path: Path) -> None:
    cli = Cli(tmp_path, extra='[log]\nformat = "json"\n')
    with cli.running():
        pass
    lines = [json.loads(line) for line in cli.log().splitlines()]
    assert any("ready" in line["message"] for line in lines)


def test_metrics_need_their_exporter_to_be_installed(tmp_path: Path) -> None:
    cli = Cli(tmp_path, extra='[telemetry]\notlp_endpoint = "http://127.0.0.1:1/v1/metrics"\n')
    if find_spec("opentelemetry.exporter") is None:
        assert "install weightctl[otel]" in cli.run("run", code=2).err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_controller_cleanly(tmp_path: Path, number: int) -> None:
    cli = Cli(tmp_path)
    with cli.running() as child:
        child.send_signal(number)
        assert child.wait(PATIENCE_S) == 0
    assert "Traceback" not in cli.log()


def test_a_verb_waits_for_a_controller_that_is_starting(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    cli.ready()
    with (tmp_path / "run.log").open("ab") as log:
        child = subprocess.Popen(cli.command("run"), env=cli.environ(), stderr=log)
    try:
        assert cli.json("evict", IDENTITY, "--wait")["residency"] == "COLD"
    finally:
        child.kill()
        child.wait()


def test_a_broken_plugin_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    package = tmp_path / "plugin"
    info = package / "broken_tier-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-tier\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[weightctl.tiers]\nbroken = broken_tier:factory\n")
    (package / "broken_tier.py").write_text("raise RuntimeError('no such library')\n")
    with_plugin = {"PYTHONPATH": str(package)}
    doctor = cli.run("doctor", code=1, env=with_plugin)
    assert "no such library" in doctor.out
    cli.run("import", IDENTITY, str(cli.model), env=with_plugin)
    cli.config.write_text(cli.config.read_text() + '\n[[tier]]\nname = "extra"\nkind = "broken"\n')
    tiers = cli.run("tiers", env=with_plugin)
    assert "no such library" in tiers.out
    assert "local_disk" in tiers.out
    cli.run("load", IDENTITY, str(tmp_path / "out"), env=with_plugin)
    unknown = cli.run("tiers", code=2)
    assert "no plugin is called 'broken'" in unknown.err


@pytest.mark.parametrize(
    "version, told",
    [
        ("'2.0'", "it speaks tier API 2.0, this weightctl speaks 1.0"),
        ("'1.99'", "it needs tier API 1.99, this weightctl has 1.0 only"),
        ("1", "its API version is 1, not a text such as '1.0'"),
    ],
)
def test_a_plugin_of_another_api_version_is_refused(
    tmp_path: Path, version: str, told: str
) -> None:
    cli = Cli(tmp_path)
    package = tmp_path / "plugin"
    info = package / "old_tier-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: old-tier\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[weightctl.tiers]\nold = old_tier:factory\n")
    (package / "old_tier.py").write_text(
        "from weightctl.controller.core.tiers import TierProfile\n"
        "class Old:\n"
        f"    profile = TierProfile(name='old', kind='old', hot=False, api_version={version})\n"
        "def factory(name, options, context): return Old()\n"
    )
    cli.config.write_text(cli.config.read_text() + '\n[[tier]]\nname = "old"\nkind = "old"\n')
    refused = cli.run("tiers", code=2, env={"PYTHONPATH": str(package)})
    assert told in refused.err
    assert "install the plugin's version for this weightctl" in refused.err


def test_a_tier_option_that_is_not_known_is_refused_with_the_nearest(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    cli.config.write_text(cli.config.read_text() + '\ncapacity_byte = "1GiB"\n')
    assert "capacity_bytes" in cli.run("tiers", code=2).err
