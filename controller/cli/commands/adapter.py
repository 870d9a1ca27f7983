"""Verbs for authors of tiers: check one, begin one.  Layer: cli.

The kit is an adapter package of its own, with needs of its own; it is found by name when a verb is
typed, and the rest of weightctl does not depend on it.
"""

from __future__ import annotations

import json
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weightctl.controller.cli.exit_codes import ExitCode
from weightctl.controller.errors import ConfigError

if TYPE_CHECKING:
    import argparse

    from weightctl.controller.cli.output import Console

_KIT = "weightctl.adapters.conformance"


def check(args: argparse.Namespace, console: Console) -> int:
    """Run the contract suite over a tier; OK when the grade asked for is reached.

    Raises ConfigError when the tier cannot be loaded or the kit is not installed.
    """
    kit = _kit("check")
    request = kit.Request(
        factory=args.factory,
        options=dict(map(_option, args.option)),
        harness=args.harness,
        select=args.select,
        case_deadline_s=args.case_deadline,
        soak_s=args.soak,
    )
    with console.progress() as progress:
        report = kit.check(request, partial(progress.update, "check", unit="cases"))
    if args.json or console.output == "json":
        console.text(json.dumps(report.document(), indent=2))
    elif report.problem:
        raise ConfigError(*report.problem.split("\n", 2))
    elif console.output == "name":
        console.text(report.grade.name.lower())
    else:
        console.text(report.text())
    if report.problem:
        return ExitCode.USAGE
    wanted = _kit("grades").Grade[args.grade.upper()]
    return ExitCode.OK if report.satisfies(wanted) else ExitCode.ERROR


def new(args: argparse.Namespace, console: Console) -> int:
    """Write a plugin project that works."""
    made = _kit("new").make(args.name, Path(args.into))
    console.text("\n".join(map(str, made)))
    console.note(f"next: see {made[0].parent / 'README.md'}")
    return ExitCode.OK


def _kit(module: str) -> Any:  # noqa: ANN401 - found by name: nothing here may import a tier
    return import_module(f"{_KIT}.{module}")


def _option(text: str) -> tuple[str, object]:
    """`name=value`; a value that is JSON is that, any other is a text."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ConfigError(
            f"--option {text}", f"{ConfigError.reason}: it has no name or no `=`", "--option path=x"
        )
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
