"""The entry point `weightctl`.  Layer: cli.

Parses, imports the one module that the verb needs, and turns every failure into its exit code.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, cast

from weightctl.controller.cli.exit_codes import ExitCode
from weightctl.controller.cli.output import Console
from weightctl.controller.cli.parser import Grammar
from weightctl.controller.errors import WeightctlError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    Verb = Callable[[argparse.Namespace, Console], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code (argparse exits by itself for usage)."""
    grammar = Grammar()
    args = grammar.parse(argv)
    console = Console(
        output=getattr(args, "output", "table"),
        environ=os.environ,
        out=sys.stdout,
        err=sys.stderr,
    )
    if args.version:
        from importlib.metadata import version

        console.text(version("weightctl"))
        return ExitCode.OK
    if args.verb is None:
        grammar.parser.print_help(sys.stderr)
        return ExitCode.USAGE
    try:
        return int(_function(args.run)(args, console))
    except WeightctlError as failure:
        return console.failure(failure)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # Nobody reads any more; without this, the interpreter complains once more while it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.BROKEN_PIPE


def _function(name: str) -> Verb:
    module, _, function = name.partition(":")
    found = getattr(import_module(f"weightctl.controller.cli.commands.{module}"), function)
    return cast("Verb", found)


if __name__ == "__main__":
    sys.exit(main())
