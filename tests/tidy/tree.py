"""The files that the tidy tests read: what git knows, or all files where there is no git."""

import ast
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GENERATED = frozenset({".venv", ".git", "build", "dist", "__pycache__"})


@cache
def files() -> tuple[Path, ...]:
    """Give every regular file of the project, relative to its root, in order.

    An unpacked source archive has no git; there every file counts that no tool generated.
    """
    listed = subprocess.run(
        ("git", "ls-files", "-z"), cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode == 0:
        found = [Path(name) for name in listed.stdout.split("\0") if name]
    else:
        found = [path.relative_to(ROOT) for path in ROOT.rglob("*")]
    return tuple(
        path
        for path in sorted(found)
        if not GENERATED.intersection(path.parts)
        and (ROOT / path).is_file()
        and not any((ROOT / part).is_symlink() for part in (path, *path.parents))
    )


@cache
def sources() -> tuple[Path, ...]:
    """Give every Python file of the project, relative to its root."""
    return tuple(path for path in files() if path.suffix == ".py")


@cache
def text(path: Path) -> str:
    """Give a file's text; bytes that are no UTF-8 are kept as escapes."""
    return (ROOT / path).read_text(encoding="utf-8", errors="backslashreplace")


@cache
def parsed(path: Path) -> ast.Module:
    """Give a Python file's syntax tree."""
    return ast.parse(text(path), filename=str(path))
