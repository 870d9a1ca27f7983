"""What users install: the archives hold the mapped packages, and the bare names are refused."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def build(project: Path, target: str, folder: Path) -> Path:
    """Build one archive with the tools of this environment and give its path."""
    command = (sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder))
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (archive,) = folder.iterdir()
    return archive


def test_wheel_holds_only_the_mapped_packages(tmp_path: Path) -> None:
    names = zipfile.ZipFile(build(ROOT, "wheel", tmp_path)).namelist()
    packages = ("weightctl/controller/", "weightctl/adapters/", "weightctl-0.1.0.dist-info/")
    assert [name for name in names if not name.startswith(packages)] == []
    assert {"weightctl/controller/py.typed", "weightctl/adapters/py.typed"} <= set(names)
    assert "weightctl/__init__.py" not in names


def test_wheel_announces_the_command_and_four_tiers(tmp_path: Path) -> None:
    with zipfile.ZipFile(build(ROOT, "wheel", tmp_path)) as wheel:
        entry_points = wheel.read("weightctl-0.1.0.dist-info/entry_points.txt").decode()
    assert "weightctl = weightctl.controller.cli.main:main" in entry_points
    for tier in ("memory", "local_disk", "dfs", "nof"):
        assert f"{tier} = weightctl.adapters.{tier}:factory" in entry_points


def test_source_archive_builds_the_same_wheel(tmp_path: Path) -> None:
    archive = build(ROOT, "sdist", tmp_path / "sdist")
    subprocess.run(("tar", "xzf", archive, "-C", tmp_path), check=True)
    unpacked = tmp_path / archive.name.removesuffix(".tar.gz")
    again = zipfile.ZipFile(build(unpacked, "wheel", tmp_path / "again"))
    once = zipfile.ZipFile(build(ROOT, "wheel", tmp_path / "once"))
    assert again.namelist() == once.namelist()


@pytest.mark.parametrize("package", ["controller", "adapters"])
def test_bare_package_name_is_refused(package: str) -> None:
    command = (sys.executable, "-c", f"import {package}")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = done.stderr.splitlines()
    assert done.returncode == 1
    assert lines[-3] == f"ImportError: cannot import '{package}'"
    assert lines[-2].startswith("why: bare_import_name: ")
    assert lines[-1].startswith("next: write 'import weightctl.")


def test_namespace_is_shared() -> None:
    """`weightctl` itself has no file, so that another distribution may add a portion."""
    code = "import weightctl.controller, weightctl.adapters; print(weightctl.__file__)"
    done = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "None"
