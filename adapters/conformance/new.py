"""`weightctl adapter new`: a plugin project that works at once.  Layer: conformance.

The project is the text below `template/`, with names filled in.  Nothing that is there already is
ever written over.
"""

from __future__ import annotations

import keyword
import re
import sys
from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path

from weightctl.controller.errors import ConfigError, TargetExistsError

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_NAME_CHARS_MAX = 40
_TEMPLATE = "weightctl.adapters.conformance"

_FILES = {
    "pyproject.toml": "pyproject.toml.txt",
    "README.md": "README.md.txt",
    ".github/workflows/checks.yml": "ci.yml.txt",
    "src/@PACKAGE@/__init__.py": "init.py.txt",
    "src/@PACKAGE@/medium.py": "medium.py.txt",
    "src/@PACKAGE@/py.typed": "",
    "src/@PACKAGE@/tier.py": "tier.py.txt",
    "tests/test_@PACKAGE@.py": "test.py.txt",
}


def make(name: str, into: Path) -> tuple[Path, ...]:
    """Write the project `into`/weightctl-NAME; the files that it has.

    Raises ConfigError for a name that cannot be one, TargetExistsError where something is already,
    also a tier of that kind: two of one kind could not be told apart in a configuration.
    """
    package = package_of(name)
    _refuse_known(name)
    project = into / f"weightctl-{name}"
    words = {
        "@NAME@": name,
        "@PACKAGE@": package,
        "@CLASS@": "".join(part.capitalize() for part in name.split("-")),
    }
    if project.exists() or project.is_symlink():
        raise TargetExistsError(
            f"{project} is there already", "nothing is written over", "move it, or use another name"
        )
    made = []
    for path, template in _FILES.items():
        target = project / _filled(path, words)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = files(_TEMPLATE).joinpath("template", template).read_text() if template else ""
        target.write_text(_filled(text, words))
        made.append(target)
    return tuple(made)


def package_of(name: str) -> str:
    """The import name of a tier's package.  Raises ConfigError for a name that has none."""
    package = f"weightctl_{name.replace('-', '_')}"
    fits = _NAME.fullmatch(name) and len(name) <= _NAME_CHARS_MAX
    if not fits or keyword.iskeyword(name) or name in sys.stdlib_module_names:
        raise ConfigError(
            f"the name {name!r:.60}",
            "it has to be lower-case letters, digits and single dashes, beginning with a letter,"
            f" {_NAME_CHARS_MAX} characters at most, and no module of Python",
            "use a name such as `glacier` or `object-store`",
        )
    return package


def _refuse_known(name: str) -> None:
    for point in entry_points(group="weightctl.tiers"):
        if point.name.replace("_", "-") == name:
            owner = f" of {point.dist.name}" if point.dist else ""
            raise TargetExistsError(
                f"the name {name!r}",
                f"a tier of the kind {point.name!r} is installed: {point.value}{owner}",
                "use another name",
            )


def _filled(text: str, words: dict[str, str]) -> str:
    for word, value in words.items():
        text = text.replace(word, value)
    return text
