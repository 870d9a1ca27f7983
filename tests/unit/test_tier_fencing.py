"""Terms that a root has served: they only grow, and survive a restart and a race."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from weightctl.adapters.conformance.suite.material import fence
from weightctl.adapters.shared import fencing
from weightctl.controller.errors import FencedError, TerminalError


@pytest.fixture
def root_fd(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def admit(root_fd: int, term: int, holder: str = "a") -> None:
    fencing.admit(root_fd, fence(term, holder), durable=True)


def test_a_lower_term_is_refused_and_an_equal_or_higher_one_served(root_fd: int) -> None:
    for term in (3, 3, 5):
        admit(root_fd, term)
    with pytest.raises(FencedError, match="term 5 has already been served"):
        admit(root_fd, 4)
    admit(root_fd, 5)


@pytest.mark.parametrize(
    "served, past, is_refused",
    [
        (5, (2, 5), False),
        (5, (2, 4), True),
        (5, (5,), False),
        (5, (6,), False),
        (5, (4,), True),
        (5, (), False),
        (7, (2, 4), False),
        (8, (2, 8), True),
    ],
)
def test_a_term_that_the_state_directory_never_had_is_a_copys(
    root_fd: int, served: int, past: tuple[int, ...], is_refused: bool
) -> None:
    admit(root_fd, served)
    acts = replace(fence(7, "a"), past=past)
    if is_refused:
        with pytest.raises(FencedError, match=rf"store\.term_above={served}"):
            fencing.admit(root_fd, acts, durable=True)
    else:
        fencing.admit(root_fd, acts, durable=True)


def test_holders_do_not_fence_each_other(root_fd: int) -> None:
    admit(root_fd, 9, "a")
    admit(root_fd, 1, "b")
    with pytest.raises(FencedError):
        admit(root_fd, 8, "a")


def test_a_served_term_writes_nothing(root_fd: int, tmp_path: Path) -> None:
    admit(root_fd, 3)
    before = (tmp_path / fencing.FENCE_FILE).stat()
    admit(root_fd, 3)
    after = (tmp_path / fencing.FENCE_FILE).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_holders_are_bounded_and_the_longest_unused_goes_first(
    root_fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fencing, "HOLDERS_MAX", 3)
    for term, holder in ((5, "a"), (5, "b"), (5, "c"), (6, "a"), (5, "d")):
        admit(root_fd, term, holder)
    with pytest.raises(FencedError):
        admit(root_fd, 5, "a")
    admit(root_fd, 1, "b")  # forgotten


@pytest.mark.parametrize("raw", ["[1, 2", "", '{"a": 1e999}', '{"a": null}', "[" * 100_000])
def test_a_damaged_file_stops_everything(root_fd: int, tmp_path: Path, raw: str) -> None:
    (tmp_path / fencing.FENCE_FILE).write_text(raw)
    with pytest.raises(TerminalError, match="damaged"):
        admit(root_fd, 1)


@pytest.mark.parametrize("moment", ["fsync", "rename"])
def test_where_locks_reach_nobody_two_writers_at_once_both_leave_it_whole(
    root_fd: int, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    real = getattr(os, moment)

    def with_another(*args: object, **more: object) -> None:
        monkeypatch.setattr(os, moment, real)
        fencing.admit(root_fd, fence(7, "b"), durable=True, writer="other-host")
        real(*args, **more)

    monkeypatch.setattr("fcntl.flock", lambda *_: None)
    monkeypatch.setattr(os, moment, with_another)
    fencing.admit(root_fd, fence(7, "a"), durable=True, writer="this-host")
    admit(root_fd, 7, "a")
    assert set(os.listdir(root_fd)) == {fencing.FENCE_FILE}
