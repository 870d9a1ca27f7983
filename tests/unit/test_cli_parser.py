"""The command line's grammar, exit codes, completion scripts and schemas."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from weightctl.controller import errors
from weightctl.controller.api import documents
from weightctl.controller.api.waiting import LostError, WaitTimeoutError
from weightctl.controller.cli import exit_codes
from weightctl.controller.cli.main import main
from weightctl.controller.cli.output import NeedsYesError
from weightctl.controller.cli.parser import SHELLS, Grammar
from weightctl.controller.errors import ErrorCode

# What the issue names, word for word, and what belongs to it.
VERBS = (
    *("import", "load", "get", "list", "describe", "explain", "plan", "evict", "rehydrate"),
    *("repair", "delete", "keys", "tiers", "run", "demo", "doctor", "completion", "exit-codes"),
    "schema",
    "orphans",
    "adopt",
)
LEAVES = {
    "adapter": ("check", "new"),
    "lease": ("acquire", "renew", "release", "list"),
    "oplog": ("show", "verify"),
    "snapshot": ("save", "restore", "verify"),
    "config": ("show",),
}


def verbs_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    found: Any = parser._subparsers
    return {} if found is None else dict(found._group_actions[0].choices)


def runs(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield parser.get_default("run") or ""
    for inner in verbs_of(parser).values():
        yield from runs(inner)


def test_every_verb_is_there() -> None:
    top = verbs_of(Grammar().parser)
    assert set(top) == {*VERBS, *LEAVES}
    for family, leaves in LEAVES.items():
        assert set(verbs_of(top[family])) == set(leaves)


def test_every_verb_is_done_by_a_function_that_exists() -> None:
    for name in filter(None, runs(Grammar().parser)):
        module, _, function = name.partition(":")
        found = import_module(f"weightctl.controller.cli.commands.{module}")
        assert callable(getattr(found, function)), name


@pytest.mark.parametrize("verb", [*VERBS, *LEAVES])
def test_every_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([verb, "--help"])
    assert caught.value.code == 0
    assert f"weightctl {verb}" in capsys.readouterr().out


def test_the_help_prints_the_table_of_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    for code in exit_codes.ExitCode:
        assert f"{code.value:>3}  {code.about}" in shown
    assert "--detailed-exitcode: 0 nothing to do, 2" in shown


def test_without_a_verb_the_help_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == exit_codes.ExitCode.USAGE
    captured = capsys.readouterr()
    assert (captured.out, captured.err[:6]) == ("", "usage:")


@pytest.mark.parametrize(
    "code, reason, expected",
    [
        ("INVALID_ARGUMENT", "Refused", 2),
        ("NOT_FOUND", "Refused", 3),
        ("STALE_GENERATION", "Refused", 4),
        ("BUSY", "Refused", 5),
        ("NOT_READY", "Refused", 6),
        ("CONFLICT", "Refused", 11),
        ("DURABILITY_FAILED", "Refused", 10),
        ("LEASE_EXPIRED", "Refused", 13),
        ("GENERATION_EXHAUSTED", "Refused", 1),
        (None, errors.CapacityError.reason, 7),
        (None, errors.IntegrityError.reason, 8),
        (None, errors.ManifestError.reason, 8),
        (None, errors.FencedError.reason, 9),
        (None, errors.StateDirectoryHeldError.reason, 12),
        (None, errors.ConfigError.reason, 2),
        (None, errors.BusyError.reason, 5),
        (None, errors.TargetExistsError.reason, 11),
        (None, errors.StoppingError.reason, 14),
        (None, NeedsYesError.reason, 2),
        (None, WaitTimeoutError.reason, 14),
        (None, LostError.reason, 15),
        (None, "AnythingElse", 1),
    ],
)
def test_an_error_has_the_exit_code_of_its_reason(
    code: str | None, reason: str, expected: int
) -> None:
    assert exit_codes.of(code, reason) == expected


def test_every_contract_code_has_an_exit_code() -> None:
    assert all(exit_codes.of(code.name, "Refused") for code in ErrorCode)


def test_the_numbers_of_exit_codes_are_unique() -> None:
    assert len({code.value for code in exit_codes.ExitCode}) == len(exit_codes.ExitCode)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_completion_script_knows_every_verb(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(verb in script for verb in VERBS)


def test_bash_accepts_the_completion_script_and_completes_a_verb(tmp_path: Path) -> None:
    script = tmp_path / "weightctl.bash"
    weightctl = [sys.executable, "-m", "weightctl.controller.cli.main"]
    environ = {"PYTHONPATH": ".devroot", "PATH": os.environ["PATH"]}
    made = subprocess.run(
        [*weightctl, "completion", "bash"], check=True, capture_output=True, env=environ
    )
    script.write_bytes(made.stdout)
    ask = (
        f"source {script}; COMP_WORDS=(weightctl rehy); COMP_CWORD=1; _shtab_weightctl;"
        ' echo "${COMPREPLY[@]}"'
    )
    answer = subprocess.run(["bash", "-c", ask], check=True, capture_output=True, text=True)
    assert answer.stdout.split() == ["rehydrate"]


def test_every_kind_of_document_has_a_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == set(documents.KINDS)
    assert main(["schema", "Plan"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema == TypeAdapter(documents.Plan).json_schema()
    assert main(["schema", "Plane"]) == exit_codes.ExitCode.USAGE
    assert "Plan" in capsys.readouterr().err
