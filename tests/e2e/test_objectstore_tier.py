"""The example package of a tier, built and installed as its users do, passes its own tests."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PACKAGE = Path("examples/objectstore-tier").absolute()


def run(*command: str, cwd: Path, environ: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        (sys.executable, "-m", *command),
        cwd=cwd, env=environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        pytest.fail(f"{' '.join(command)}\n{done.stdout}{done.stderr}", pytrace=False)
    return done.stdout


def test_the_installed_package_passes_its_own_tests(tmp_path: Path) -> None:
    """Unpacking a wheel installs it; pip would ask for the network to build or check anything."""
    run("hatchling", "build", "-t", "wheel", "-d", str(tmp_path), cwd=PACKAGE)
    (wheel,) = tmp_path.glob("*.whl")
    installed = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    environ = {**os.environ, "PYTHONPATH": str(installed)}
    said = run("pytest", "-q", "-p", "no:cacheprovider", cwd=PACKAGE, environ=environ)
    assert "passed" in said
