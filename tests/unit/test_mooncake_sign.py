"""Whose the folder below `root_fs_dir` is, when two stores come in one and the same moment."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from weightctl.adapters.mooncake.root_fs import engine
from weightctl.adapters.mooncake.root_fs.engine import SIGN, FileEngine
from weightctl.adapters.shared.ownership import ForeignMediumError

ONE, OTHER = "1" * 32, "2" * 32


def engine_of(holder: str) -> FileEngine:
    return FileEngine(memoryview(bytearray(8)), holder=holder)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A file's, in the cluster's folder."""
    folder = tmp_path / "cluster" / "a" / "b"
    folder.mkdir(parents=True)
    return str(folder / "key")


def after_the_look(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None]) -> None:
    """Let something happen between the first look at the sign and what follows from it."""
    look = engine._owner_of

    def looked(sign: Path) -> str | None:
        found = look(sign)
        monkeypatch.setattr(engine, "_owner_of", look)
        happens()
        return found

    monkeypatch.setattr(engine, "_owner_of", looked)


def test_of_two_stores_that_sign_at_once_only_one_has_the_folder(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    after_the_look(monkeypatch, lambda: engine_of(OTHER).claim(path))
    with pytest.raises(ForeignMediumError, match=OTHER):
        engine_of(ONE).claim(path)
    assert (tmp_path / "cluster" / SIGN).read_text() == OTHER
    assert not list((tmp_path / "cluster").glob(f"{SIGN}.*"))
    engine_of(OTHER).claim(path)


def test_a_folder_is_taken_over_only_by_who_adopts_it(path: str, tmp_path: Path) -> None:
    engine_of(OTHER).claim(path)
    assert engine_of(ONE).adopt(path) == OTHER
    assert (tmp_path / "cluster" / SIGN).read_text() == ONE
    with pytest.raises(ForeignMediumError, match=ONE):
        engine_of(OTHER).claim(path)


def test_a_file_system_without_links_is_signed_as_well(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "no links here")

    monkeypatch.setattr(os, "link", refuses)
    engine_of(ONE).claim(path)
    assert (tmp_path / "cluster" / SIGN).read_text() == ONE
