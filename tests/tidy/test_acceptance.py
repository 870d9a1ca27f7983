"""Every row of the contract's acceptance table has a test that names it."""

import ast
from collections.abc import Iterator

from tests.tidy.tree import parsed, sources
from tests.unit.acceptance_rows import ELSEWHERE, LAST_ROW, LATER, MISSING


def claimed() -> Iterator[int]:
    """Give the row numbers in every `acceptance(...)` mark and `row(...)` line of the tests."""
    for path in sources():
        if path.parts[0] != "tests":
            continue
        for node in ast.walk(parsed(path)):
            if not isinstance(node, ast.Call):
                continue
            if isinstance(node.func, ast.Attribute) and node.func.attr == "acceptance":
                arguments = node.args
            elif isinstance(node.func, ast.Name) and node.func.id == "row":
                arguments = node.args[:1]
            else:
                continue
            yield from (
                argument.value
                for argument in arguments
                if isinstance(argument, ast.Constant) and isinstance(argument.value, int)
            )


def test_every_row_has_a_test_or_stands_in_the_list_of_missing_ones() -> None:
    wanted = set(range(1, LAST_ROW + 1)) - LATER - set(ELSEWHERE)
    assert sorted(wanted - set(claimed())) == sorted(MISSING)


def test_only_rows_of_the_table_are_claimed() -> None:
    assert set(claimed()) <= set(range(1, LAST_ROW + 1))
