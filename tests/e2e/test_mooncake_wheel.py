"""Where Mooncake's wheel is missing, its tests say so and are skipped; in CI that is a failure."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.mooncake import lab

WHEEL = Path(__file__).parents[2] / ".ci" / "wheel"


def install(stamp: Path, ci: str) -> subprocess.CompletedProcess[str]:
    """Try to install a wheel that no index has."""
    return subprocess.run(
        [WHEEL, sys.executable, "weightctl-no-such-wheel==1", stamp],
        env={**os.environ, "PIP_NO_INDEX": "1", "CI": ci},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("ci,fails", [("", False), ("false", False), ("true", True)])
def test_a_wheel_that_cannot_be_installed_is_told_and_fails_in_ci(
    tmp_path: Path, ci: str, fails: bool
) -> None:
    done = install(tmp_path / "stamp", ci)
    assert bool(done.returncode) is fails
    assert "not installed: weightctl-no-such-wheel==1" in done.stderr
    assert "No matching distribution" in done.stderr
    assert not (tmp_path / "stamp").exists(), "the next run tries again"


@pytest.mark.parametrize(
    "ci,outcome", [("", pytest.skip.Exception), ("true", pytest.fail.Exception)]
)
def test_a_wheel_that_cannot_be_loaded_skips_its_tests_and_fails_them_in_ci(
    monkeypatch: pytest.MonkeyPatch, ci: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(lab, "_why_not", lambda: "libibverbs.so.1 is missing")
    with pytest.raises(outcome, match=r"libibverbs\.so\.1 is missing"):
        lab.require_wheel()
