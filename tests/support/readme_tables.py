"""The tables of the README that say what the code says: settings, exit codes, documents, verbs.

`python -m tests.support.readme_tables` writes them into the README anew, between their marks.
"""

from collections.abc import Iterator
from pathlib import Path

from weightctl.controller.api.documents import KINDS
from weightctl.controller.cli.exit_codes import DETAILED, ExitCode
from weightctl.controller.cli.parser import Grammar
from weightctl.controller.config.settings import SETTINGS, TIER_LIMITS, Setting
from weightctl.controller.config.values import shown

README = Path(__file__).parents[2] / "README.md"


def _table(*rows: tuple[str, ...]) -> str:
    head, *rest = rows
    lines = [head, tuple("---" for _ in head), *rest]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _default(setting: Setting) -> str:
    value = shown(setting.default)
    if setting.key == "state_dir":
        return "`~/.local/state/weightctl`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`" if value else "none"


def settings() -> str:
    """Every setting with its default and meaning."""
    rows = [(f"`{found.key}`", _default(found), found.about) for found in SETTINGS]
    return _table(("setting", "default", "meaning"), *rows)


def limits() -> str:
    """What `[tier.limits]` may hold."""
    rows = [(f"`{found.key}`", _default(found), found.about) for found in TIER_LIMITS]
    return _table(("limit", "default", "meaning"), *rows)


def exit_codes() -> str:
    """Every exit code."""
    rows = [(str(code.value), code.about) for code in ExitCode]
    detailed = ", ".join(f"{code} {about}" for code, about in DETAILED.items())
    table = _table(("code", "meaning"), *rows)
    return f"{table}\n\n`plan --detailed-exitcode` ends with {detailed}."


def documents() -> str:
    """Every kind of document."""
    rows = [(f"`{kind}`", _first(shape.__doc__)) for kind, shape in KINDS.items()]
    return _table(("kind", "what it holds"), *rows)


def _first(text: str | None) -> str:
    return " ".join((text or "").split("\n\n")[0].split())


def verbs() -> str:
    """Every verb with what it does."""
    return _table(("verb", "what it does"), *_verbs())


def _verbs() -> Iterator[tuple[str, str]]:
    for path, about in Grammar().verbs.items():
        yield f"`{path}`", about


BLOCKS = {
    "settings": settings,
    "limits": limits,
    "exit-codes": exit_codes,
    "documents": documents,
    "verbs": verbs,
}


def written(readme: str) -> str:
    """The README with every block as the code says it; a missing mark is a ValueError."""
    for name, block in BLOCKS.items():
        start, rest = readme.split(f"<!-- {name} -->\n")
        _, end = rest.split("<!-- end -->", 1)
        readme = f"{start}<!-- {name} -->\n\n{block()}\n\n<!-- end -->{end}"
    return readme


if __name__ == "__main__":
    README.write_text(written(README.read_text(encoding="utf-8")), encoding="utf-8")
