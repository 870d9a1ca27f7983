"""A tier is taken out of the configuration: a person is told, and nothing is left behind."""

from pathlib import Path

from tests.support.cli import IDENTITY, Cli
from weightctl.controller.cli.exit_codes import ExitCode


def test_a_deletion_without_a_former_tier_is_not_done_and_says_why(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    cli.ready()
    cli.run("evict", IDENTITY, "--wait")
    text = cli.config.read_text()
    cli.config.write_text(text.rpartition("[[tier]]")[0])
    (found,) = (
        check
        for check in cli.json("doctor", code=ExitCode.ERROR)["checks"]
        if check["name"] == "former tiers"
    )
    assert not found["ok"]
    assert "local_disk" in found["detail"]
    cli.run("delete", IDENTITY, "--yes", "--wait", "--timeout", "1s", code=ExitCode.TIMEOUT)
    assert cli.json("get", IDENTITY)["availability"] == "DELETING"
    holds = cli.json("explain", IDENTITY)["holds"]
    (why,) = (hold["what"] for hold in holds if hold["reason"] == "TierUnknown")
    assert why.startswith("local_disk: it was used and is not configured")
    cli.config.write_text(text)
    cli.run("delete", IDENTITY, "--yes", "--wait")
    assert cli.json("get", IDENTITY)["availability"] == "DELETED"
    assert not list((tmp_path / "local_disk").rglob("*payload*"))


def test_a_deletion_looks_for_a_tier_that_only_an_import_has_written_to(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    cli.ready()
    text = cli.config.read_text()
    cli.config.write_text(text.rpartition("[[tier]]")[0])
    cli.run("delete", IDENTITY, "--yes", "--wait", "--timeout", "1s", code=ExitCode.TIMEOUT)
    cli.config.write_text(text)
    cli.run("delete", IDENTITY, "--yes", "--wait")
    assert cli.json("get", IDENTITY)["availability"] == "DELETED"
    assert not list((tmp_path / "local_disk").rglob("*payload*"))
