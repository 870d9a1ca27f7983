"""Two state directories that name one tier: the second one is refused, and nothing is lost."""

import shutil
from pathlib import Path

import pytest

from tests.support.cli import IDENTITY, Cli, tree
from tests.support.models import write_model
from weightctl.controller.cli.exit_codes import ExitCode

COLD = ("local_disk", "dfs", "nof")


@pytest.fixture(params=COLD)
def pair(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Cli, Cli, str]:
    """Two command lines over state and memory of their own, and one cold tier."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    kind = request.param
    one, two = (Cli(tmp_path / name, ("memory", kind)) for name in ("one", "two"))
    text = two.config.read_text().replace(str(two.folder / kind), str(one.folder / kind))
    two.config.write_text(text)
    write_model(two.model, {"t": ("U8", (4,), b"abcd")})
    return one, two, kind


def adopting(cli: Cli, kind: str) -> None:
    """Set `adopt` on the tier of that kind."""
    text = cli.config.read_text()
    cli.config.write_text(text.replace(f'kind = "{kind}"', f'kind = "{kind}"\nadopt = true'))


def problem(cli: Cli, kind: str) -> str:
    """What `tiers` says of the tier."""
    (row,) = (row for row in cli.json("tiers")["items"] if row["name"] == kind)
    return str(row["problem"])


def test_a_second_store_is_refused_and_the_only_copy_of_the_first_one_stays(
    pair: tuple[Cli, Cli, str],
) -> None:
    one, two, kind = pair
    one.imported()
    kept = tree(one.folder / kind)
    assert "belongs to another store" in problem(two, kind)
    assert not two.json("doctor", code=ExitCode.ERROR)["ok"]

    refused = two.run("import", IDENTITY, str(two.model), code=ExitCode.ERROR).err
    assert "belongs to another store" in refused
    assert "another path" in refused
    assert "`adopt = true`" in refused
    assert not any(path.is_file() for path in (two.folder / "memory").rglob("*~*"))
    one.json("evict", IDENTITY, "--wait")
    two.run("get", IDENTITY, code=ExitCode.NOT_FOUND)
    one.run("snapshot", "save", str(one.folder / "saved.json"))
    two.run("snapshot", "restore", str(one.folder / "saved.json"), "--yes")
    two.times_out("delete", IDENTITY, "--yes", told="belongs to another store")
    doctor = two.json("doctor", code=ExitCode.ERROR)["checks"]
    (check,) = (check for check in doctor if check["name"] == f"tier {kind}")
    assert not check["ok"]
    assert "another path" in check["todo"]

    if kind != "nof":  # whose superblock each opening writes
        assert tree(one.folder / kind).keys() == kept.keys()
    assert one.json("load", IDENTITY, str(one.folder / "out"))["verifiedBytes"]
    assert one.json("doctor")["ok"]


def test_a_tier_is_adopted_once_by_a_store_whose_former_owner_is_gone(
    pair: tuple[Cli, Cli, str],
) -> None:
    one, two, kind = pair
    one.imported()
    one.run("snapshot", "save", str(one.folder / "saved.json"))
    adopting(two, kind)
    assert "belongs to another store" in problem(two, kind)
    two.run("snapshot", "restore", str(one.folder / "saved.json"), "--yes")
    loaded = two.json("load", IDENTITY, str(two.folder / "out"))
    assert set(loaded["bytesByTier"]) == {kind}
    assert problem(two, kind) == ""
    assert "belongs to another store" in problem(one, kind)


def test_a_copied_state_directory_has_the_same_tiers(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    cli.imported()
    shutil.copytree(cli.state_dir, tmp_path / "copy")
    shutil.rmtree(cli.state_dir)
    shutil.move(tmp_path / "copy", cli.state_dir)
    cli.json("evict", IDENTITY, "--wait")
    assert cli.json("doctor")["ok"]


@pytest.mark.parametrize("kind", ["local_disk", "dfs"])
def test_one_place_under_two_names_is_one_tier_and_its_copies_count_once(
    tmp_path: Path, kind: str
) -> None:
    cli = Cli(tmp_path, ("memory", kind), extra="[policy]\ncold_copies = 2")
    text = cli.config.read_text()
    cli.config.write_text(
        f'{text}\n[[tier]]\nname = "second"\nkind = "{kind}"\npath = "{tmp_path / kind}"\n'
    )
    cli.run("import", IDENTITY, str(cli.model))
    said = {problem(cli, kind), problem(cli, "second")}  # they begin at once; either is the first
    assert "" in said
    assert any("lies where the tier" in problem for problem in said), said
    cli.run("repair", IDENTITY, "--wait", "--timeout", "1s", code=ExitCode.TIMEOUT)
