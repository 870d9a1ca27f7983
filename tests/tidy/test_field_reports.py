"""Every field report has its row, and every test that a row names is there and is run."""

import subprocess
import sys
from collections.abc import Iterable

import pytest

from tests.field.reports import NUMBERS, REPORTS
from tests.tidy.tree import ROOT


def test_every_report_has_a_row() -> None:
    assert sorted(REPORTS) == sorted(NUMBERS)
    assert len(set(NUMBERS)) == len(NUMBERS)


def test_a_row_names_tests_or_says_why_the_kind_cannot_occur() -> None:
    for number, report in REPORTS.items():
        assert report.kind, number
        assert report.right, number
        assert report.tests or report.why_not, f"report {number} has neither"
        assert len(set(report.tests)) == len(report.tests), f"report {number} names a test twice"


def test_every_named_test_is_collected(request: pytest.FixtureRequest) -> None:
    here = {bare(item.nodeid) for item in request.session.items}
    named = {test for report in REPORTS.values() for test in report.tests}
    missing = named - here
    if missing:  # a run of a part of the tests
        missing -= collected(missing)
    assert not missing


def collected(tests: Iterable[str]) -> set[str]:
    """The tests that a run of these tests' files selects."""
    files = sorted({test.partition("::")[0] for test in tests})
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n0", *files],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return {bare(line) for line in done.stdout.splitlines() if "::" in line}


def bare(test: str) -> str:
    """A test's id without parameters."""
    return test.partition("[")[0]
