"""The marker of a root: which medium it is, and when a new one may be begun."""

import json
import os
import secrets
from pathlib import Path

import pytest

from weightctl.adapters.shared.markers import MARKER_FILE, Medium, MediumError, boot_id
from weightctl.controller.errors import ConfigError


def medium(tmp_path: Path, *, forgets: bool = False, kind: str = "disk") -> Medium:
    remembered = None if forgets else tmp_path / "state" / "disk.uuid"
    return Medium(tmp_path / "root", kind, remembered=remembered, durable=True)


def entered(tmp_path: Path, *, forgets: bool = False) -> Medium:
    found = medium(tmp_path, forgets=forgets)
    found.enter(secrets.token_hex)
    with found.opened():
        return found


def remark(tmp_path: Path, **changes: object) -> None:
    path = tmp_path / "root" / MARKER_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_new_root_is_marked_and_keeps_its_epoch(tmp_path: Path) -> None:
    first = entered(tmp_path)
    assert first.epoch() == entered(tmp_path).epoch() != ""
    assert json.loads((tmp_path / "root" / MARKER_FILE).read_text())["format"] == 1


def test_the_epoch_of_what_forgets_names_the_boot(tmp_path: Path) -> None:
    assert entered(tmp_path, forgets=True).epoch().startswith(f"{boot_id()}:")


def test_a_root_that_is_not_empty_is_not_begun(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "thesis.tex").touch()
    with pytest.raises(ConfigError, match=r"thesis\.tex"):
        medium(tmp_path).enter(secrets.token_hex)
    assert not (tmp_path / "root" / MARKER_FILE).exists()


def test_the_folder_that_every_new_file_system_has_is_no_content(tmp_path: Path) -> None:
    (tmp_path / "root" / "lost+found").mkdir(parents=True)
    entered(tmp_path)


@pytest.mark.parametrize("begun_again", [False, True])
def test_an_empty_root_where_a_medium_is_remembered_is_away(
    tmp_path: Path, begun_again: bool
) -> None:
    found = entered(tmp_path)
    (tmp_path / "root" / MARKER_FILE).unlink()
    if begun_again:
        found = medium(tmp_path)
        found.enter(secrets.token_hex)
    with pytest.raises(MediumError, match="may not be mounted"), found.opened():
        pass
    assert not (tmp_path / "root" / MARKER_FILE).exists()


def test_a_forgotten_medium_may_be_begun_with_another_one(tmp_path: Path) -> None:
    first = entered(tmp_path)
    (tmp_path / "root" / MARKER_FILE).unlink()
    (tmp_path / "state" / "disk.uuid").unlink()
    assert entered(tmp_path).epoch() != first.epoch()


def test_what_forgets_is_begun_anew_by_a_restart_only(tmp_path: Path) -> None:
    first = entered(tmp_path, forgets=True)
    (tmp_path / "root" / MARKER_FILE).unlink()
    with pytest.raises(MediumError), first.opened():
        pass
    assert entered(tmp_path, forgets=True).epoch() != first.epoch()


def test_another_medium_is_away(tmp_path: Path) -> None:
    found = entered(tmp_path)
    remark(tmp_path, uuid="other")
    with pytest.raises(MediumError, match="it is medium other"), found.opened():
        pass


@pytest.mark.parametrize(
    "changes, why",
    [
        ({"kind": "dfs"}, "belongs to a dfs tier"),
        ({"format": 2}, "newer"),
        ({"format": "x"}, "damaged"),
    ],
)
def test_an_unusable_marker_is_refused_at_the_start(
    tmp_path: Path, changes: dict[str, object], why: str
) -> None:
    running = entered(tmp_path)
    remark(tmp_path, **changes)
    with pytest.raises(ConfigError, match=why):
        medium(tmp_path).enter(secrets.token_hex)
    if "kind" not in changes:
        with pytest.raises(MediumError), running.opened():
            pass


@pytest.mark.parametrize(
    "raw",
    [
        '{"format": 1e999, "kind": "disk", "uuid": "a"}',
        '{"format": 1, "kind": "disk", "uuid": ""}',
        '{"format": 1, "kind": "disk", "uuid": "\\u00e9"}',
        '{"format": 1, "kind": "disk", "uuid": "a\\nb"}',
        "[" * 100_000,
        "",
    ],
    ids=["infinite", "no-uuid", "not-ascii", "two-lines", "deep", "empty"],
)
def test_a_hostile_marker_is_damaged_and_nothing_else(tmp_path: Path, raw: str) -> None:
    running = entered(tmp_path)
    (tmp_path / "root" / MARKER_FILE).write_text(raw)
    with pytest.raises(ConfigError, match="damaged"):
        medium(tmp_path, forgets=True).enter(secrets.token_hex)
    with pytest.raises(MediumError), running.opened():
        pass


@pytest.mark.parametrize("raw", [b"", b"  \n", b"\xff\xfe", b"a b"])
def test_where_the_remembered_uuid_is_damaged_no_medium_is_begun(
    tmp_path: Path, raw: bytes
) -> None:
    """An unmounted root is empty, too: whoever forgot which medium it was must not begin anew."""
    entered(tmp_path)
    (tmp_path / "root" / MARKER_FILE).unlink()
    (tmp_path / "state" / "disk.uuid").write_bytes(raw)
    with pytest.raises(ConfigError, match="damaged"):
        medium(tmp_path).enter(secrets.token_hex)
    assert not (tmp_path / "root" / MARKER_FILE).exists()


def test_a_root_that_another_user_can_change_is_not_trusted(tmp_path: Path) -> None:
    def memory() -> Medium:
        return Medium(tmp_path / "root", "m", remembered=None, durable=False, trusted=tmp_path)

    found = memory()
    found.enter(secrets.token_hex)
    with found.opened():
        pass
    (tmp_path / "root").chmod(0o777)
    with pytest.raises(MediumError, match="not trusted"), found.opened():
        pass
    with pytest.raises(ConfigError, match="not trusted"):
        memory().enter(secrets.token_hex)
    (tmp_path / "root").chmod(0o1777)  # as a tmpfs is mounted: each may change only what is his
    with found.opened():
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_root_that_another_user_made_before_is_not_trusted(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    os.chown(tmp_path / "root", 65534, 65534)
    found = Medium(tmp_path / "root", "m", remembered=None, durable=False, trusted=tmp_path)
    with pytest.raises(ConfigError, match="belongs to user 65534"):
        found.enter(secrets.token_hex)


def test_a_missing_root_is_away_while_it_runs(tmp_path: Path) -> None:
    found = entered(tmp_path)
    (tmp_path / "root").rename(tmp_path / "gone")
    with pytest.raises(MediumError, match="not there"), found.opened():
        pass
    (tmp_path / "gone").rename(tmp_path / "root")
    with found.opened():
        pass
    assert found.epoch()


@pytest.mark.parametrize("read_only", [False, True])
def test_a_root_that_another_tier_of_this_state_directory_has_is_refused(
    tmp_path: Path, read_only: bool
) -> None:
    """One copy must not count as two."""
    entered(tmp_path)
    second = Medium(
        tmp_path / "root", "disk", remembered=tmp_path / "state" / "second.uuid", durable=True
    )
    with pytest.raises(ConfigError, match=r"'second' lies where the tier 'disk' does"):
        second.enter(secrets.token_hex, read_only=read_only)
    assert not (tmp_path / "state" / "second.uuid").exists()
    (tmp_path / "state" / "disk.uuid").unlink()  # as after a renaming
    second.enter(secrets.token_hex, read_only=read_only)
