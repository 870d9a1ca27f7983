"""To whom a root belongs, beyond what the contract suite asks of every tier."""

import json
import secrets
from pathlib import Path
from typing import Any

import pytest

from weightctl.adapters.nof.layout import (
    Geometry,
    Holder,
    Superblock,
    decode_superblock,
    encode_superblock,
)
from weightctl.adapters.shared.files import write_small
from weightctl.adapters.shared.markers import MARKER_FILE, Medium
from weightctl.adapters.shared.ownership import ForeignMediumError


def entered(folder: Path, holder: str, state: str = "state") -> Medium:
    remembered = folder / state / "disk.uuid"
    found = Medium(folder / "root", "disk", remembered=remembered, durable=True, holder=holder)
    found.enter(secrets.token_hex)
    return found


def marker(folder: Path) -> dict[str, object]:
    return dict(json.loads((folder / "root" / MARKER_FILE).read_text()))


def disown(folder: Path) -> None:
    """Let the marker be one from before roots had owners."""
    content = marker(folder)
    del content["owner"]
    (folder / "root" / MARKER_FILE).write_text(json.dumps(content))


def test_two_hosts_that_serve_one_store_share_a_root(tmp_path: Path) -> None:
    one, two = entered(tmp_path, "a", "one"), entered(tmp_path, "a", "two")
    with one.opened(), two.opened():
        assert one.epoch() == two.epoch()


def test_a_root_of_another_store_is_not_remembered(tmp_path: Path) -> None:
    entered(tmp_path, "a", "one")
    other = entered(tmp_path, "b", "two")
    assert not (tmp_path / "two" / "disk.uuid").exists()
    assert other.adopt() == "a"
    assert (tmp_path / "two" / "disk.uuid").read_text() == marker(tmp_path)["uuid"]
    assert other.adopt() == ""


def test_an_older_root_that_is_back_only_after_the_start_is_claimed_then(tmp_path: Path) -> None:
    entered(tmp_path, "a")
    disown(tmp_path)
    (tmp_path / "root").rename(tmp_path / "away")
    found = entered(tmp_path, "a")
    (tmp_path / "away").rename(tmp_path / "root")
    with found.opened():
        assert marker(tmp_path)["owner"] == "a"


def test_of_two_stores_that_claim_a_root_at_once_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the medium has no locks: what counts is what is there after the writing."""
    one, two = entered(tmp_path, "a", "one"), entered(tmp_path, "b", "two")
    disown(tmp_path)
    raced: list[bool] = []

    def write_late(folder_fd: int, name: str, content: bytes, **how: Any) -> None:
        write_small(folder_fd, name, content, **how)
        if not raced:
            raced.append(True)
            overwritten = json.dumps({**marker(tmp_path), "owner": "b"})
            (tmp_path / "root" / MARKER_FILE).write_text(overwritten)

    monkeypatch.setattr("weightctl.adapters.shared.markers.write_small", write_late)
    with pytest.raises(ForeignMediumError), one.opened():
        pass
    with two.opened():
        pass


@pytest.mark.parametrize("owner", ["", "5a" * 16])
def test_a_superblock_keeps_its_owner_and_an_older_one_has_none(owner: str) -> None:
    value = Superblock(
        uuid=b"u" * 16,
        generation=3,
        geometry=Geometry.of_size(64 * 1024 * 1024),
        half=1,
        epoch=2,
        claim=7,
        sequence=9,
        clean=True,
        holder=Holder(host="h", boot_id="b", pid=1, since_ms=2),
        owner=owner,
    )
    assert decode_superblock(encode_superblock(value)) == value
