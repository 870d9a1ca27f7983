"""`weightctl import --dry-run` beside the real verb: both say the same, and it changes nothing."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import cli as support
from tests.support.cli import FOUR_TIERS, IDENTITY, TWO_TIERS, Cli, Ran
from tests.support.models import random_tensors, write_model
from weightctl.controller.cli.exit_codes import ExitCode

KILLED = -9
OTHER_BYTES, OTHER_SIZE = random_tensors(1), random_tensors(rows=32)


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


def tree(folder: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """All below a folder, but for the index that SQLite shares between those who read."""
    found = support.tree(folder)
    return {path: what for path, what in found.items() if not path.endswith(".db-shm")}


def told(ran: Ran) -> tuple[int, str | None, str, str]:
    """Exit code, contract code, reason and the failed thing, of a dry run or of the verb."""
    if ran.out:
        first: Any = ran.document["obstacles"][0]
    else:
        first = json.loads(ran.err[ran.err.index('{"') :])
    return ran.code, first["code"], first["reason"], first["what"]


def another(cli: Cli, tensors: Any) -> None:
    write_model(cli.model, tensors)


def ready_with_other_bytes(cli: Cli) -> None:
    cli.ready()
    another(cli, OTHER_BYTES)


def ready_with_another_size(cli: Cli) -> None:
    cli.ready()
    another(cli, OTHER_SIZE)


def deleted(cli: Cli) -> None:
    cli.ready()
    cli.run("delete", IDENTITY, "--yes", "--wait")


def begun_with_other_bytes(cli: Cli) -> None:
    begun(cli)
    another(cli, OTHER_BYTES)


def forgotten_with_other_bytes(cli: Cli) -> None:
    """The tiers hold objects of a revision that no record knows any more."""
    begun_elsewhere(cli)
    another(cli, OTHER_BYTES)


def begun_elsewhere(cli: Cli) -> None:
    empty = cli.folder / "empty.snapshot"
    cli.run("snapshot", "save", str(empty))
    cli.imported()
    cli.run("snapshot", "restore", str(empty), "--yes")


def no_room(cli: Cli) -> None:
    cli.ready()
    limit(cli, "local_disk", 32_000)
    another(cli, random_tensors(rows=4096))


def limit(cli: Cli, kind: str, size_bytes: int) -> None:
    text = cli.config.read_text(encoding="utf-8")
    mark = f'kind = "{kind}"'
    cli.config.write_text(text.replace(mark, f"{mark}\ncapacity_bytes = {size_bytes}"), "utf-8")


def no_medium(cli: Cli) -> None:
    cli.ready()
    (cli.folder / "local_disk").rename(cli.folder / "unmounted")


def of_another_store(cli: Cli) -> None:
    cli.ready()
    shutil.rmtree(cli.state_dir)


def no_cold_tier(cli: Cli) -> None:
    text = cli.config.read_text(encoding="utf-8")
    cli.config.write_text(text[: text.rindex("[[tier]]")], encoding="utf-8")


def no_source(cli: Cli) -> None:
    cli.model.unlink()


def torn_source(cli: Cli) -> None:
    cli.model.write_bytes(cli.model.read_bytes()[:-1])


def nothing(_: Cli) -> None:
    """The identity alone is wrong."""


def begun(cli: Cli) -> None:
    """An import that was killed before its manifest was written."""
    point = {"WEIGHTCTL_FAILPOINTS": "tier.local_disk.store.before=kill"}
    cli.run("import", IDENTITY, str(cli.model), code=KILLED, env=point)


V2, LONG = "prod/model/v1@2", f"prod/model/{'%2F' * 400}@1"
REFUSALS: list[tuple[Callable[[Cli], None], str, ExitCode]] = [
    (ready_with_other_bytes, IDENTITY, ExitCode.CONFLICT),
    (ready_with_another_size, IDENTITY, ExitCode.CONFLICT),
    (deleted, IDENTITY, ExitCode.CONFLICT),
    (begun_with_other_bytes, IDENTITY, ExitCode.CONFLICT),
    (forgotten_with_other_bytes, IDENTITY, ExitCode.CONFLICT),
    (no_room, V2, ExitCode.CAPACITY),
    (no_medium, V2, ExitCode.ERROR),
    (of_another_store, V2, ExitCode.ERROR),
    (no_cold_tier, IDENTITY, ExitCode.USAGE),
    (no_source, IDENTITY, ExitCode.ERROR),
    (torn_source, IDENTITY, ExitCode.ERROR),
    (nothing, LONG, ExitCode.USAGE),
    (nothing, "prod/model@1", ExitCode.USAGE),
]


@pytest.mark.parametrize("arrange, identity, code", REFUSALS)
def test_a_dry_run_is_refused_where_and_as_the_import_is(
    cli: Cli, arrange: Callable[[Cli], None], identity: str, code: ExitCode
) -> None:
    arrange(cli)
    words = ("import", identity, str(cli.model), "-o", "json")
    before = tree(cli.folder)
    dry = cli.run(*words, "--dry-run", code=code)
    assert tree(cli.folder) == before
    real = cli.run(*words, code=code)
    (_, *seen, dry_what), (_, *got, real_what) = told(dry), told(real)
    assert seen == got
    # All tiers are written at the same time: which of them refuses first is open.
    real_what, dry_what = (what.partition(" to tier ")[0] for what in (real_what, dry_what))
    assert real_what.removeprefix(f"import of {identity}: ") == dry_what


def plan(cli: Cli, identity: str, verdict: str) -> dict[str, Any]:
    """The dry run, which must say `verdict` and change nothing."""
    before = tree(cli.folder)
    found = cli.json("import", identity, str(cli.model), "--dry-run")
    assert found["verdict"] == verdict
    assert tree(cli.folder) == before
    return found


def ways(found: dict[str, Any]) -> list[tuple[int, str, str]]:
    return [(row["round"], row["step"], row["target"]) for row in found["steps"]]


WHOLE = [
    (1, "store", "memory"),
    (1, "store", "local_disk"),
    (1, "verify", "local_disk"),
    (2, "store", "memory"),
    (2, "store", "local_disk"),
    (2, "verify", "local_disk"),
    (3, "commit", ""),
]


def test_a_dry_run_needs_no_state_directory_and_makes_none(tmp_path: Path) -> None:
    cli = Cli(tmp_path, FOUR_TIERS)
    found = plan(cli, IDENTITY, "importable")
    assert ways(found) == WHOLE
    assert not cli.state_dir.exists()
    assert [row["chosen"] for row in found["tiers"]] == [True, True, False, False]
    assert all("its room is not known" in row["why"] for row in found["tiers"])


def test_what_is_foretold_is_what_is_then_imported(cli: Cli) -> None:
    cli.ready()
    found = plan(cli, V2, "importable")
    assert (found["readBytes"], ways(found)) == (0, WHOLE)
    for row in found["tiers"]:
        assert row["neededBytes"] == found["logicalBytes"] + found["manifestBytes"]
        assert row["freeBytes"] > row["neededBytes"]
    report = cli.json("import", V2, str(cli.model))
    assert report["tiers"] == [row["name"] for row in found["tiers"] if row["chosen"]]
    assert report["movedBytes"] == sum(row["neededBytes"] for row in found["tiers"])
    shown = cli.json("describe", V2)["members"]
    sizes = [(row["key"], row["dataType"], row["sizeBytes"]) for row in shown]
    assert [(row["key"], row["dataType"], row["sizeBytes"]) for row in found["members"]] == sizes


def test_an_interrupted_import_and_a_finished_one_are_told_apart(cli: Cli) -> None:
    begun(cli)
    found = plan(cli, IDENTITY, "resumable")
    assert (found["availability"], found["readBytes"]) == ("IMPORTING", found["logicalBytes"])
    assert ways(found)[-1] == (3, "commit", "")
    report = cli.json("import", IDENTITY, str(cli.model))
    needed = {row["name"]: row["neededBytes"] for row in found["tiers"]}
    assert report["movedBytes"] == sum(needed.values())
    found = plan(cli, IDENTITY, "published")
    assert (found["availability"], found["steps"]) == ("READY", [])
    assert cli.json("import", IDENTITY, str(cli.model))["movedBytes"] == 0


def test_a_running_controller_says_the_same(cli: Cli) -> None:
    with cli.running():
        assert cli.json("import", IDENTITY, str(cli.model), "--dry-run")["verdict"] == "importable"
        cli.imported()
        another(cli, OTHER_BYTES)
        words = ("import", IDENTITY, str(cli.model), "-o", "json")
        dry = cli.run(*words, "--dry-run", code=ExitCode.CONFLICT)
        assert told(dry) == told(cli.run(*words, code=ExitCode.CONFLICT))


def test_people_read_what_is_in_the_way_before_everything_else(cli: Cli) -> None:
    no_room(cli)
    out = cli.run("import", V2, str(cli.model), "--dry-run", code=ExitCode.CAPACITY).out
    head, way, why, todo = out.splitlines()[:4]
    assert "import: refused" in head
    assert "in the way: Capacity" in way
    assert "are free" in why
    assert "evict or delete something" in todo
    assert set(TWO_TIERS) <= set(out.split())
