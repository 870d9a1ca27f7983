"""The contract's acceptance table (section 11): which rows there are and how a test claims one.

A test claims rows with `@pytest.mark.acceptance(22)`, a table's line with `row(22, "rule", ...)`.
`tests/tidy/test_acceptance.py` holds the claims against the lists below.
"""

import pytest
from _pytest.mark.structures import ParameterSet

LAST_ROW = 136

LATER = frozenset({*range(56, 60), 63, *range(79, 84), 88, 89, *range(113, 125)})
"""Rows about policies, lineage and migrations, which a later version adds."""

ELSEWHERE = {93: "tenants of connections need the service, which is not part of this version"}
"""Rows that the present version cannot have, each with its reason."""

MISSING: frozenset[int] = frozenset()
"""Rows that no test claims yet. Whoever claims one removes it here."""


def row(number: int, rule: str, *values: object) -> ParameterSet:
    """Give a table's line that proves one row; its id is `row-<number>-<rule>`."""
    return pytest.param(*values, id=f"row-{number}-{rule}", marks=pytest.mark.acceptance(number))
