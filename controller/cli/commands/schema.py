"""Verbs that print what weightctl itself is: JSON Schemas and completion scripts.  Layer: cli."""

from __future__ import annotations

import difflib
import json
from typing import TYPE_CHECKING

import shtab

from weightctl.controller.cli.exit_codes import ExitCode
from weightctl.controller.cli.parser import Grammar
from weightctl.controller.core.refusals import invalid

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from weightctl.controller.cli.output import Console

_FILES = frozenset({"config", "file", "source"})
_FOLDERS = frozenset({"state_dir", "folder"})


def schema(args: argparse.Namespace, console: Console) -> int:
    """Print the JSON Schema of one kind of document, or of all by their names."""
    from pydantic import TypeAdapter

    from weightctl.controller.api.documents import KINDS

    if args.document is None:
        schemas = {kind: TypeAdapter(shape).json_schema() for kind, shape in KINDS.items()}
        console.text(json.dumps(schemas, indent=2))
        return ExitCode.OK
    if args.document not in KINDS:
        near = difflib.get_close_matches(args.document, list(KINDS), n=1, cutoff=0.0)
        raise invalid(
            f"document kind {args.document!r}",
            f"no document is of that kind; the nearest known is {near[0]}",
            "`weightctl schema` prints those of all kinds",
        )
    console.text(json.dumps(TypeAdapter(KINDS[args.document]).json_schema(), indent=2))
    return ExitCode.OK


def completion(args: argparse.Namespace, console: Console) -> int:
    """Print the completion script of a shell."""
    parser = Grammar().parser
    for action in _actions(parser):
        if action.dest in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.dest in _FOLDERS:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    console.text(shtab.complete(parser, shell=args.shell))
    return ExitCode.OK


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:  # noqa: SLF001 - argparse lists them nowhere else
        yield action
        if isinstance(action.choices, dict):
            for inner in action.choices.values():
                yield from _actions(inner)
