"""A medium that forgets: what a former boot left is never used, and a removed root is made anew."""

import json
import secrets
import shutil
from pathlib import Path

import pytest

from weightctl.adapters.shared import forgetting, markers
from weightctl.adapters.shared.fencing import FENCE_FILE
from weightctl.adapters.shared.forgetting import ForgettingMedium
from weightctl.adapters.shared.layout import GROUPS
from weightctl.adapters.shared.markers import MARKER_FILE, MediumError
from weightctl.adapters.shared.ownership import ForeignMediumError
from weightctl.controller.errors import ConfigError


def _entered(folder: Path, *, read_only: bool = False, holder: str = "") -> ForgettingMedium:
    medium = ForgettingMedium(
        folder / "root", "memory", remembered=None, durable=True, holder=holder
    )
    medium.enter(secrets.token_hex, read_only=read_only)
    return medium


def _fill(folder: Path) -> None:
    group = folder / "root" / GROUPS / "g"
    group.mkdir(parents=True)
    (group / "k~replica").write_bytes(b"perhaps torn")
    (folder / "root" / FENCE_FILE).write_bytes(b"")


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _reboot(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (forgetting, markers):
        monkeypatch.setattr(module, "boot_id", lambda: "another-boot")


def _is_open(medium: ForgettingMedium) -> bool:
    try:
        with medium.opened():
            return True
    except MediumError:
        return False


def test_a_restart_in_the_same_boot_keeps_everything(tmp_path: Path) -> None:
    epoch = _entered(tmp_path).epoch()
    _fill(tmp_path)
    assert _entered(tmp_path).epoch() == epoch == _entered(tmp_path, read_only=True).epoch()
    assert (tmp_path / "root" / GROUPS / "g" / "k~replica").exists()


def test_what_a_former_boot_left_is_removed_under_a_new_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = _entered(tmp_path).epoch()
    _fill(tmp_path)
    (tmp_path / "root" / "README").touch()
    _reboot(monkeypatch)
    medium = _entered(tmp_path)
    assert medium.epoch().startswith("another-boot:another-boot-")
    assert medium.epoch() != epoch
    assert _names(tmp_path / "root") == ["README", MARKER_FILE]
    assert _is_open(medium)
    assert _entered(tmp_path).epoch() == medium.epoch()


def test_a_crash_while_it_forgets_is_made_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _entered(tmp_path)
    _fill(tmp_path)
    _reboot(monkeypatch)

    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "killed here")

    with monkeypatch.context() as crash:
        crash.setattr(forgetting, "write_small", fail)
        with pytest.raises(ConfigError, match="former boot"):
            _entered(tmp_path)
    _fill(tmp_path)
    assert _is_open(_entered(tmp_path))
    assert _names(tmp_path / "root") == [MARKER_FILE]


def test_a_dry_run_takes_what_a_former_boot_left_for_not_set_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _entered(tmp_path)
    _fill(tmp_path)
    _reboot(monkeypatch)
    medium = _entered(tmp_path, read_only=True)
    with pytest.raises(MediumError, match="not set up yet"), medium.opened():
        pass
    assert (tmp_path / "root" / GROUPS / "g" / "k~replica").exists()


def test_a_root_that_was_removed_is_made_anew_under_a_new_epoch(tmp_path: Path) -> None:
    medium = _entered(tmp_path)
    epoch = medium.epoch()
    _fill(tmp_path)
    shutil.rmtree(tmp_path / "root")
    assert _is_open(medium)
    assert _names(tmp_path / "root") == [MARKER_FILE]
    assert medium.epoch() != epoch
    assert _entered(tmp_path).epoch() == medium.epoch()


def test_a_dry_run_makes_no_root_anew(tmp_path: Path) -> None:
    _entered(tmp_path)
    medium = _entered(tmp_path, read_only=True)
    shutil.rmtree(tmp_path / "root")
    assert not _is_open(medium)
    assert not (tmp_path / "root").exists()


def test_a_root_that_may_not_be_mounted_is_not_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    medium = _entered(tmp_path)
    epoch = medium.epoch()
    root = tmp_path / "root"
    root.rename(tmp_path / "away")
    with monkeypatch.context() as unmounted:
        unmounted.setattr(medium, "_device", 0)  # the folder above is of another file system
        assert not _is_open(medium)
    root.mkdir()  # as where nothing is mounted
    with pytest.raises(MediumError, match="remove the folder"), medium.opened():
        pass
    assert _names(root) == []
    root.rmdir()
    (tmp_path / "away").rename(root)
    assert _is_open(medium)
    assert medium.epoch() == epoch


def test_a_root_of_another_kind_is_never_emptied(tmp_path: Path) -> None:
    _entered(tmp_path)
    _fill(tmp_path)
    marker = tmp_path / "root" / MARKER_FILE
    content = {**json.loads(marker.read_text()), "kind": "local_disk", "uuid": "of-a-disk"}
    marker.write_text(json.dumps(content))
    with pytest.raises(ConfigError, match="local_disk"):
        _entered(tmp_path)
    assert (tmp_path / "root" / GROUPS / "g" / "k~replica").exists()


def test_what_a_former_boot_left_of_another_store_is_emptied_only_when_adopted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _entered(tmp_path, holder="store-a")
    _fill(tmp_path)
    _reboot(monkeypatch)
    other = _entered(tmp_path, holder="store-b")
    with pytest.raises(ForeignMediumError), other.opened():
        pass
    assert GROUPS in _names(tmp_path / "root")
    assert other.adopt() == "store-a"
    assert _is_open(other)
    assert _names(tmp_path / "root") == [MARKER_FILE]
    assert other.epoch().startswith("another-boot:another-boot-")
