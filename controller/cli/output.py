"""The console: documents to stdout, everything else to stderr.  Layer: cli.

Colour and questions need a terminal; NO_COLOR and a dumb terminal switch colour off.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, cast

from weightctl.controller.api import views
from weightctl.controller.cli import exit_codes, tables
from weightctl.controller.cli.progress import Progress
from weightctl.controller.errors import WeightctlError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

    from weightctl.controller.api import documents as doc


class NeedsYesError(WeightctlError):
    """A destructive verb without `--yes`, and nobody who could be asked."""

    reason = "NeedsYes"


class Console:
    """How one command talks: `output` is table, json, yaml or name."""

    def __init__(
        self, *, output: str, environ: Mapping[str, str], out: TextIO, err: TextIO
    ) -> None:
        self.output = output
        self._out = out
        self._err = err
        self._terminal = out.isatty()
        self._color = (
            self._terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
        )

    def document(self, document: doc.Document) -> None:
        """Print one document in the chosen form."""
        print(self._rendered(cast("dict[str, object]", document)), file=self._out, flush=True)

    def text(self, text: str) -> None:
        """Print data that is no document, as it is."""
        print(text, end="" if text.endswith("\n") else "\n", file=self._out, flush=True)

    def note(self, text: str) -> None:
        """Tell a person something that is not data."""
        print(text, file=self._err, flush=True)

    def error(self, error: doc.Error) -> None:
        """Say what failed, why and what to do next; as a document too for `-o json`."""
        if self.output == "json":
            self.note(json.dumps(error))
            return
        code = f"{error['code']}: " if error["code"] else ""
        self.note(f"error: {code}{error['what']}")
        if error["why"]:
            self.note(f"why: {error['why']}")
        if error["todo"]:
            self.note(f"next: {error['todo']}")

    def failure(self, failure: WeightctlError) -> exit_codes.ExitCode:
        """Print an exception of weightctl and give its exit code."""
        error = views.error(failure)
        code = exit_codes.of(error["code"], error["reason"])
        self.error({**error, "exitCode": code})
        return code

    def progress(self) -> Progress:
        """A progress line on a terminal, rare log lines elsewhere."""
        return Progress(self._err, terminal=self._err.isatty())

    def confirm(self, question: str, *, yes: bool) -> bool:
        """Ask before something destructive.  Raises NeedsYesError where nobody can answer."""
        if yes:
            return True
        if not (sys.stdin.isatty() and self._err.isatty()):
            raise NeedsYesError(
                question, f"{NeedsYesError.reason}: this cannot be undone", "add --yes if meant"
            )
        print(f"{question} [y/N] ", end="", file=self._err, flush=True)
        return sys.stdin.readline().strip().lower() in {"y", "yes"}

    def _rendered(self, document: dict[str, object]) -> str:
        if self.output == "json":
            return json.dumps(document, indent=2)
        if self.output == "yaml":
            import yaml

            return str(yaml.safe_dump(document, sort_keys=False)).rstrip("\n")
        if self.output == "name":
            return "\n".join(tables.names(document))
        return tables.table(document, color=self._color)
