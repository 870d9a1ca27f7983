"""`weightctl adapter check` on what cannot be loaded, and on a selection of cases."""

import json
import sys
from pathlib import Path

import pytest

from tests.integration.test_adapter_kit import weightctl
from weightctl.adapters.conformance.check import Request, check
from weightctl.adapters.conformance.grades import Grade
from weightctl.adapters.conformance.new import make
from weightctl.adapters.conformance.report import Finding, Report, Verdict
from weightctl.controller.errors import TargetExistsError

ONE = ("--select", "an_empty_batch")
DISK = "weightctl.adapters.local_disk:factory"


@pytest.mark.parametrize(
    "words, why, todo",
    [
        (("no_such_module:factory",), "No module named 'no_such_module'", "install its package"),
        (("json:no_such",), "has no attribute 'no_such'", "name a factory"),
        (("json",), "it is not MODULE:NAME", "as an entry point does"),
        (("json:dumps",), "TypeError", "name a factory"),
        (("builtins:str", "--harness", "json"), "it is not MODULE:NAME", "entry point"),
        ((DISK,), "path", ""),
        ((DISK, "--option", "path={tmp}/m", "--option", "pth=1"), "pth", ""),
    ],
)
def test_what_cannot_be_loaded_is_one_error_in_three_lines(
    words: tuple[str, ...], why: str, todo: str
) -> None:
    done = weightctl("adapter", "check", *words)
    assert (done.returncode, done.stdout) == (2, "")
    lines = done.stderr.splitlines()
    assert len(lines) == 3, done.stderr
    assert f"tier {words[0]} cannot be loaded" in lines[0]
    assert why in lines[1]
    assert todo in lines[2]


def test_the_document_names_the_problem() -> None:
    done = weightctl("adapter", "check", "no_such_module:factory", "--json")
    assert done.returncode == 2
    document = json.loads(done.stdout)
    assert "No module named 'no_such_module'" in document["problem"]
    assert (document["grade"], document["findings"]) == ("none", [])


@pytest.mark.parametrize(
    "source, told",
    [
        ("import time; time.sleep(3600)", "it did not end in time"),
        ("import os; os._exit(7)", "it ended with 7"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("def factory(*_): return None", "has no attribute 'profile'"),
    ],
)
def test_a_module_that_hangs_or_ends_the_process_cannot_be_loaded(
    source: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "unloadable"
    (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    deadline_s = 3.0 if "sleep" in source else 120.0
    report = check(Request(factory=f"{name}:factory", load_deadline_s=deadline_s))
    assert told in report.problem
    assert not report.findings
    assert name not in sys.modules


def test_it_tells_how_far_it_is() -> None:
    told: list[tuple[int, int]] = []
    select = "an_empty_batch or a_new_medium or killed_writer"
    report = check(
        Request(factory=DISK, options={"path": "{tmp}/m"}, select=select),
        lambda done, total: told.append((done, total)),
    )
    assert told == sorted(told)
    assert all(done <= total for done, total in told)
    assert told[-1] == (len(report.findings), len(report.findings))


def test_a_selection_has_no_grade() -> None:
    done = weightctl(
        "adapter", "check", DISK, "--option", "path={tmp}/medium", "--grade", "gold", *ONE
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith("no grade: these are the cases of --select 'an_empty_batch' only\n")
    assert "kind: local_disk" in done.stdout


def _report(verdicts: str, selection: str = "") -> Report:
    findings = [
        Finding(case=f"f::TestTier::test_{grade.name}", grade=grade, verdict=Verdict(word))
        for grade, word in zip(list(Grade)[1:], verdicts.split(), strict=True)
    ]
    return Report(factory="f", findings=findings, selection=selection)


def test_what_hung_is_named_whatever_its_grade() -> None:
    text = _report("broken hung holds died").text()
    assert "broken: BRONZE" in text
    assert "hung: SILVER" in text
    assert "died: PLATINUM" in text


@pytest.mark.parametrize(
    "verdicts, selection, satisfied",
    [
        ("holds holds broken holds", "", Grade.SILVER),
        ("holds broken holds holds", "words", Grade.BRONZE),
        ("holds inapplicable holds untried", "words", Grade.GOLD),
        ("hung holds holds holds", "words", Grade.NONE),
    ],
)
def test_what_is_asked_for_is_reached_up_to_the_first_case_that_does_not_hold(
    verdicts: str, selection: str, satisfied: Grade
) -> None:
    report = _report(verdicts, selection)
    for wanted in list(Grade)[1:]:
        assert report.satisfies(wanted) == (wanted <= satisfied)


@pytest.mark.parametrize("name", ["memory", "local-disk", "mooncake-disk"])
def test_a_kind_that_is_installed_is_not_begun_again(name: str, tmp_path: Path) -> None:
    with pytest.raises(TargetExistsError, match=r"is installed: weightctl\.adapters"):
        make(name, tmp_path)
    assert not list(tmp_path.iterdir())
