"""The shape of the sources: sizes, forbidden calls and forbidden words, read from the tree.

Each rule collects all its findings, so one run shows everything that has to change.
"""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.tidy.tree import files, parsed, sources, text

LINES_MAX = 600
FUNCTION_LINES_MAX = 70
COLUMNS_MAX = 100
POSITIONAL_MAX = 5

Function = ast.FunctionDef | ast.AsyncFunctionDef

# What reads a clock or draws a random number. Only the Clock and the Entropy do; they stand in
# files of these names.
CLOCK_FILES = frozenset({"clock.py", "entropy.py"})
IMPURE_MODULES = frozenset({"random", "secrets"})
IMPURE_CALLS = frozenset(
    {"anyio.current_time", "os.urandom", "os.getrandom", "uuid.uuid1", "uuid.uuid4"}
    | {
        f"time.{name}{unit}"
        for name in ("time", "monotonic", "perf_counter")
        for unit in ("", "_ns")
    }
    | {f"datetime{module}.{name}" for module in ("", ".datetime") for name in ("now", "utcnow")}
    | {"date.today", "datetime.date.today"}
)
# Spelled in halves, so that this file does not find itself.
UNFINISHED = re.compile(r"\b(?:" + "|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX")) + r")\b")
FOREIGN = re.compile(
    r"(?:^|(?<=[^\w.-]))/wo" + r"rk/|py" + r"pi\.org|python" + r"hosted|npm" + r"js\.org"
    r"|deb\.deb" + r"ian\.org|crates\.i" + r"o"
)


def functions(path: Path) -> Iterator[Function]:
    return (node for node in ast.walk(parsed(path)) if isinstance(node, Function))


def dotted(node: ast.expr) -> str:
    """Give the dotted name of an expression such as `time.monotonic`, or an empty string."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (base := dotted(node.value)):
        return f"{base}.{node.attr}"
    return ""


def imported(path: Path) -> Iterator[tuple[str, int]]:
    """Give every imported name with its line: `a.b` for both `import a.b` and `from a import b`."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def too_long_files() -> Iterator[str]:
    for path in sources():
        if (lines := text(path).count("\n")) > LINES_MAX:
            yield f"{path}: {lines} lines"


def too_long_functions() -> Iterator[str]:
    for path in sources():
        for node in functions(path):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield f"{path}:{node.lineno}: {node.name} has {lines} lines"


def too_wide_lines() -> Iterator[str]:
    for path in files():
        if path.suffix in {".py", ".sql", ".toml"}:
            for number, line in enumerate(text(path).splitlines(), 1):
                if len(line) > COLUMNS_MAX:
                    yield f"{path}:{number}: {len(line)} columns"


def too_many_positional_parameters() -> Iterator[str]:
    for path in sources():
        for node in functions(path):
            names = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args)]
            count = len([name for name in names if name not in {"self", "cls"}])
            if count > POSITIONAL_MAX:
                yield f"{path}:{node.lineno}: {node.name} takes {count} positional parameters"


def missing_module_docstrings() -> Iterator[str]:
    return (f"{path}: no docstring" for path in sources() if not ast.get_docstring(parsed(path)))


def shielded_with_asyncio() -> Iterator[str]:
    for path in sources():
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Attribute) and dotted(node) == "asyncio.shield":
                yield f"{path}:{node.lineno}: use anyio.CancelScope(shield=True)"
        for name, line in imported(path):
            if name == "asyncio.shield":
                yield f"{path}:{line}: use anyio.CancelScope(shield=True)"


def reads_of_time_or_randomness() -> Iterator[str]:
    for path in sources():
        if path.parts[0] not in {"controller", "adapters"} or path.name in CLOCK_FILES:
            continue
        for name, line in imported(path):
            if name in IMPURE_CALLS or name.partition(".")[0] in IMPURE_MODULES:
                yield f"{path}:{line}: imports {name}; take a Clock or an Entropy"
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Attribute) and (name := dotted(node)) in IMPURE_CALLS:
                yield f"{path}:{node.lineno}: uses {name}; take a Clock or an Entropy"


def unfinished_work() -> Iterator[str]:
    for path in files():
        for number, line in enumerate(text(path).splitlines(), 1):
            if found := UNFINISHED.search(line):
                yield f"{path}:{number}: {found[0]}"


def names_of_the_workplace() -> Iterator[str]:
    for path in files():
        for number, line in enumerate(text(path).splitlines(), 1):
            if found := FOREIGN.search(line):
                yield f"{path}:{number}: {found[0]}"


RULES = (
    too_long_files,
    too_long_functions,
    too_wide_lines,
    too_many_positional_parameters,
    missing_module_docstrings,
    shielded_with_asyncio,
    reads_of_time_or_randomness,
    unfinished_work,
    names_of_the_workplace,
)


@pytest.mark.parametrize("rule", RULES, ids=[rule.__name__ for rule in RULES])
def test_no_source_has(rule: Callable[[], Iterator[str]]) -> None:
    findings = list(rule())
    if findings:
        pytest.fail("\n".join((f"{len(findings)} findings", *findings)), pytrace=False)
