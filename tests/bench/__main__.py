"""Run the benchmarks: `python -m tests.bench [NAME ...]` prints one Markdown table.

Each module runs in a process of its own, so that memory and imports of one do not colour another.
Rows go to stdout; everything else that a benchmark prints goes to stderr.
"""

import os
import platform
import subprocess
import sys
from pathlib import Path

from tests.bench.report import HEADER

FOLDER = Path(__file__).parent


def machine() -> str:
    """The machine in one line, because a number without it says little."""
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"


def run(name: str) -> bool:
    """Run one benchmark; False when it ended with an error."""
    command = [sys.executable, "-m", f"tests.bench.bench_{name}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        for line in child.stdout or ():
            print(line, end="", flush=True, file=sys.stdout if line[0] == "|" else sys.stderr)
    return child.returncode == 0


def main() -> int:
    """Run the named benchmarks, or all, and say which failed."""
    known = sorted(path.stem.removeprefix("bench_") for path in FOLDER.glob("bench_*.py"))
    wanted = sys.argv[1:] or known
    if unknown := [name for name in wanted if name not in known]:
        print(f"unknown: {', '.join(unknown)}; known: {', '.join(known)}", file=sys.stderr)
        return 2
    print(f"{machine()}\n\n{HEADER}", flush=True)
    failed = [name for name in wanted if not run(name)]
    for name in failed:
        print(f"failed: {name}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
