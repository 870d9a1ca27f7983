"""`doctor` says ok only where the next step works."""

import os
from pathlib import Path

import pytest

from tests.support.cli import IDENTITY, Cli
from weightctl.controller.cli.commands import doctor
from weightctl.controller.cli.exit_codes import ExitCode
from weightctl.controller.config.loading import load

MIB = 1024 * 1024


def cold_nof(cli: Cli, **options: object) -> None:
    """Let the cold tier be a nof tier on `folder`/n.img with these options."""
    head = cli.config.read_text().split("[[tier]]")[:2]
    path = cli.folder / "n.img"
    lines = ['name = "nof"', 'kind = "nof"', f'path = "{path}"']
    lines += [f"{name} = {str(value).lower()}" for name, value in options.items()]
    cli.config.write_text("[[tier]]".join([*head, "\n" + "\n".join(lines) + "\n"]))


def check(cli: Cli, name: str, *, ok: bool) -> str:
    """The detail of one check, which must have that result, and what to do."""
    code = ExitCode.OK if ok else ExitCode.ERROR
    (found,) = (c for c in cli.json("doctor", code=code)["checks"] if c["name"] == name)
    assert found["ok"] is ok, found
    return f"{found['detail']}; {found['todo']}"


@pytest.mark.parametrize(
    "there, options, wanted",
    [
        (None, {}, "set `size_bytes` on this tier"),
        (None, {"format": True}, "set `size_bytes` on this tier"),
        (64 * MIB, {}, "set `format = true` on this tier"),
        (64 * MIB, {"size_bytes": 64 * MIB}, "set `format = true` on this tier"),
        (None, {"size_bytes": MIB}, "larger size_bytes"),
        (None, {"size_bytes": 2**60}, "make room"),
    ],
    ids=["missing", "missing-format", "blank", "blank-size", "too-small", "too-large"],
)
def test_a_nof_tier_that_an_import_cannot_set_up_is_not_ok(
    tmp_path: Path, there: int | None, options: dict[str, object], wanted: str
) -> None:
    cli = Cli(tmp_path)
    cold_nof(cli, **options)
    if there is not None:
        (tmp_path / "n.img").touch()
        os.truncate(tmp_path / "n.img", there)
    assert wanted in check(cli, "tier nof", ok=False)
    assert wanted in cli.json("tiers")["items"][1]["problem"]
    cli.run("import", IDENTITY, str(cli.model), code=ExitCode.ERROR)


@pytest.mark.parametrize(
    "there, options",
    [(None, {"size_bytes": 64 * MIB}), (64 * MIB, {"format": True})],
    ids=["created", "formatted"],
)
def test_a_nof_tier_that_an_import_sets_up_is_ok(
    tmp_path: Path, there: int | None, options: dict[str, object]
) -> None:
    cli = Cli(tmp_path)
    cold_nof(cli, **options)
    if there is not None:
        (tmp_path / "n.img").touch()
        os.truncate(tmp_path / "n.img", there)
    assert "the first import sets it up" in check(cli, "tier nof", ok=True)
    cli.imported()
    check(cli, "tier nof", ok=True)


def test_a_folder_in_which_an_import_cannot_begin_is_not_ok(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    (tmp_path / "local_disk").mkdir()
    assert "the first import sets it up" in check(cli, "tier local_disk", ok=True)
    (tmp_path / "local_disk" / "thesis.tex").touch()
    assert "thesis.tex" in check(cli, "tier local_disk", ok=False)


@pytest.mark.parametrize("used", [False, True])
def test_memory_that_is_smaller_than_its_capacity_is_not_ok(tmp_path: Path, used: bool) -> None:
    cli = Cli(tmp_path)
    if used:
        cli.ready()
    check(cli, "tier memory", ok=True)
    text = cli.config.read_text()
    cli.config.write_text(
        text.replace('kind = "memory"', 'kind = "memory"\ncapacity_bytes = "1024TiB"')
    )
    assert "capacity_bytes is" in check(cli, "tier memory", ok=False)


def test_a_state_directory_that_cannot_be_made_is_not_ok(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    assert "not there yet" in check(cli, "state directory", ok=True)
    cli.state_dir.touch()
    assert "is not a directory" in check(cli, "state directory", ok=False)
    cli.state_dir.unlink()
    below = cli.config.read_text().replace(f'"{cli.state_dir}"', f'"{cli.model}/state"')
    cli.config.write_text(below)
    assert "is not a directory" in check(cli, "state directory", ok=False)


@pytest.mark.parametrize("free_mib, ok", [(0, False), (8, False), (64, True)])
def test_a_state_directory_without_room_is_not_ok(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_mib: int, ok: bool
) -> None:
    cli = Cli(tmp_path)
    cli.ready()
    like = os.statvfs(tmp_path)
    room = os.statvfs_result((4096, 4096, 10**6, 0, free_mib * MIB // 4096, *tuple(like)[5:]))
    monkeypatch.setattr(os, "statvfs", lambda _: room)
    found = doctor._state_dir(load(environ={}, file=str(cli.config)))
    assert found["ok"] is ok
    assert bool(found["todo"]) is not ok


def test_a_master_that_nobody_reaches_is_named_once_and_says_what_to_do(tmp_path: Path) -> None:
    address = "127.0.0.1:1"  # where nobody may listen
    section = f"""
[mooncake]
admin = "{address}"
master = "{address}"

[[tier]]
name = "memory"
kind = "mooncake-memory"
"""
    cli = Cli(tmp_path, (), extra=section)
    said = check(cli, "tier memory", ok=False)
    assert said.count(address) == 1
    assert "start the Master" in said
    assert "weightctl doctor" not in said
