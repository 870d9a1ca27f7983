"""`weightctl adopt` in real processes: objects become a revision, or each reason is told."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from tests.support.cli import IDENTITY, TWO_TIERS, Cli, tree
from tests.support.models import random_tensors

KILLED = -9
NOTHING_READABLE, WRONG_BYTES = 15, 8


@pytest.fixture(scope="module")
def orphaned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose tiers hold a model of which the state knows nothing any more."""
    folder = tmp_path_factory.mktemp("orphaned")
    cli, empty = Cli(folder), folder / "empty.snapshot"
    cli.run("snapshot", "save", str(empty))
    cli.imported()
    cli.run("snapshot", "restore", str(empty), "--yes")
    return folder


class Lost(Cli):
    """A copy of that folder, and the manifest's bytes in a file."""

    def __init__(self, orphaned: Path, folder: Path) -> None:
        super().__init__(folder)
        for name in ("state", *TWO_TIERS):
            shutil.copytree(orphaned / name, folder / name)
        self.manifest = folder / "manifest.json"
        shutil.copy(self.replica("local_disk", "manifest"), self.manifest)

    def replica(self, tier: str, last: str) -> Path:
        """The file of the object whose key ends so."""
        (found,) = (self.folder / tier / "groups").rglob(f"*%2F{last}~*")
        return found

    def adopt(self, *words: str) -> tuple[str, ...]:
        return ("adopt", IDENTITY, "--manifest", str(self.manifest), *words)

    def tiers(self) -> list[object]:
        return [tree(self.folder / tier / "groups") for tier in TWO_TIERS]


@pytest.fixture
def lost(orphaned: Path, tmp_path: Path) -> Lost:
    return Lost(orphaned, tmp_path)


def test_objects_without_an_owner_are_adopted_as_they_lie_and_can_be_loaded(lost: Lost) -> None:
    before, state = lost.tiers(), tree(lost.state_dir)
    dry = lost.json(*lost.adopt("--dry-run"))
    assert (dry["verdict"], dry["readBytes"]) == ("adoptable", 0)
    assert tree(lost.state_dir) == state
    done = lost.json(*lost.adopt())
    assert (done["verdict"], done["residency"]) == ("adopted", "HOT")
    assert done["readBytes"] > 2 * done["logicalBytes"], "every replica of it was read"
    told, recorded, taken = (done[f"digests{word}"] for word in ("Told", "Recorded", "Taken"))
    assert (told, recorded, taken) == (0, 1, 0), "a file tier keeps what it was given"
    assert lost.tiers() == before
    loaded = lost.json("load", IDENTITY, str(lost.folder / "out"))
    assert loaded["tensors"] == len(random_tensors())
    assert loaded["verifiedBytes"] == done["logicalBytes"]


def test_a_new_state_directory_adopts_through_the_running_controller(lost: Lost) -> None:
    shutil.rmtree(lost.state_dir)
    refused = lost.run(*lost.adopt(), code=1)
    assert "another store" in refused.err, "the medium still belongs to the one that is gone"
    lost.config.write_text(
        lost.config.read_text(encoding="utf-8").replace("path =", "adopt = true\npath ="),
        encoding="utf-8",
    )
    with lost.running():
        assert "adoptable" in lost.run(*lost.adopt("--dry-run")).out
        assert lost.json(*lost.adopt())["verdict"] == "adopted"
        lost.run("evict", IDENTITY, "--wait")
        assert lost.json("get", IDENTITY)["residency"] == "COLD"


def test_a_dry_run_needs_no_state_directory_and_makes_none(lost: Lost) -> None:
    """Whose the media are is then not asked, which is told."""
    shutil.rmtree(lost.state_dir)
    before = lost.tiers()
    dry = lost.json(*lost.adopt("--dry-run"))
    assert (dry["verdict"], dry["readBytes"]) == ("adoptable", 0)
    assert {row["name"]: row["objects"] for row in dry["held"]} == dict.fromkeys(TWO_TIERS, 2)
    assert any("`adopt = true`" in remark for remark in dry["remarks"])
    for tier in TWO_TIERS:
        lost.replica(tier, "payload%2F00000000").unlink()
    assert lost.json(*lost.adopt("--dry-run"), code=1)["verdict"] == "refused"
    assert not lost.state_dir.exists()
    assert lost.tiers() != before


@pytest.mark.parametrize(
    "point, left",
    [("journal.append.before", "adopted"), ("journal.append.after", "managed")],
)
def test_a_kill_leaves_objects_as_they_were_or_a_whole_revision(
    lost: Lost, point: str, left: str
) -> None:
    """Never an import that is not finished: that is cleaned away, and its objects with it."""
    before = lost.tiers()
    lost.run(*lost.adopt(), code=KILLED, env={"WEIGHTCTL_FAILPOINTS": f"{point}=kill"})
    assert lost.tiers() == before
    assert lost.json(*lost.adopt())["verdict"] == left
    shown = lost.json("describe", IDENTITY)
    assert (shown["revision"]["availability"], len(shown["members"])) == ("READY", 2)


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe"])
def test_a_file_that_is_no_manifest_is_named(lost: Lost, content: bytes) -> None:
    lost.manifest.write_bytes(content)
    for words in ((), ("--dry-run",)):
        told = lost.run(*lost.adopt(*words), code=WRONG_BYTES).err
        assert f"{lost.manifest} is no manifest to adopt by" in told
        assert "publish" not in told


def test_a_file_of_digests_that_cannot_be_used_is_named(lost: Lost) -> None:
    wrong = lost.folder / "SHA256SUMS"
    wrong.write_text("no digest\n", encoding="utf-8")
    assert f"{wrong}: line 1" in lost.run(*lost.adopt("--digests", str(wrong)), code=2).err


def test_what_is_missing_or_wrong_is_told_for_each_object_and_nothing_changes(lost: Lost) -> None:
    wrong = lost.folder / "SHA256SUMS"
    key = f"{lost.json('keys', IDENTITY)['payloadPrefix']}00000000"
    wrong.write_text(f"{hashlib.sha256(b'other').hexdigest()}  {key}\n", encoding="utf-8")
    before = lost.tiers()
    told = lost.run(*lost.adopt("--digests", str(wrong), "-o", "json"), code=WRONG_BYTES)
    assert f"object {key} in tier memory has wrong bytes" in told.err
    error = json.loads(told.err[told.err.index('{"') :])
    assert (error["reason"], error["todo"] != "") == ("Integrity", True)
    assert lost.tiers() == before
    for tier in TWO_TIERS:
        lost.replica(tier, "payload%2F00000000").unlink()
    dry = lost.json(*lost.adopt("--dry-run"), code=1)
    assert dry["verdict"] == "refused"
    assert [(row["key"], row["reason"]) for row in dry["obstacles"]] == [(key, "NothingReadable")]
    told = lost.run(*lost.adopt(), code=NOTHING_READABLE)
    assert f"object {key} is in no tier" in told.err
