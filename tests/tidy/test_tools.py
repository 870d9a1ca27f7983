"""The tools that judge the whole tree, each run as it is, failing with its own output."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent

TOOLS = {
    "ruff-check": (sys.executable, "-m", "ruff", "check", "--no-fix", "."),
    "ruff-format": (sys.executable, "-m", "ruff", "format", "--check", "."),
    "mypy-strict": (sys.executable, "-m", "mypy"),
    "import-linter": (str(BIN / "lint-imports"),),
}


@pytest.mark.parametrize("command", TOOLS.values(), ids=TOOLS.keys())
def test_tool_finds_nothing(command: tuple[str, ...]) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.fail(f"{' '.join(command)}\n{done.stdout}{done.stderr}", pytrace=False)
