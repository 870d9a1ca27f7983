"""What can be typed.  Layer: cli.

The whole grammar is built here, also for shell completion, but nothing that a verb needs is
imported: each verb names its function as text and `main` imports the one that was typed.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, NoReturn

from weightctl.controller.cli import exit_codes
from weightctl.controller.config import values
from weightctl.controller.core.records import LEASE_TTL_MS_MAX, LIST_LIMIT_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Sequence

    Adder = argparse._SubParsersAction["Parser"]  # noqa: SLF001 - no public name

FORMATS = ("table", "json", "yaml", "name")
SHELLS = ("bash", "zsh", "tcsh")
_IDENTITY = "[tenant:]namespace/resource/revision@generation, each text percent-encoded"


class Parser(argparse.ArgumentParser):
    """Refuses in the three parts of every other error, after the usage of the verb."""

    def error(self, message: str) -> NoReturn:
        """Print usage, what, why and what next; end with the exit code of wrong usage."""
        self.print_usage(sys.stderr)
        self.exit(
            exit_codes.ExitCode.USAGE,
            f"error: {self.prog} cannot be understood\n"
            f"why: {message}\nnext: see `{self.prog} --help`\n",
        )


class Grammar:
    """Collects verbs under one parser; `Grammar().parser` is ready to parse or to complete."""

    def __init__(self) -> None:
        self.parser = Parser(
            prog="weightctl",
            description="Keeps the weights of models where they are wanted in a tiered store.",
            epilog=exit_codes.epilog(),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self.parser.add_argument("--version", action="store_true", help="print the version")
        _common(self.parser, before="_before")
        self._verbs = self.parser.add_subparsers(dest="verb", metavar="VERB", title="verbs")
        self._families: dict[str, Adder] = {}
        self.verbs: dict[str, str] = {}
        """What each verb does, in the order in which they are listed."""
        _ask(self)
        _act(self)
        _maintain(self)
        _serve(self)
        _extend(self)

    def parse(self, argv: Sequence[str] | None) -> argparse.Namespace:
        """The command line; what no verb knows is refused with the usage of the verb typed."""
        args, unknown = self.parser.parse_known_args(argv)
        if unknown:
            refusing = getattr(args, "parser", self.parser)
            refusing.error(f"unrecognized arguments: {' '.join(unknown)}")
        return args

    def verb(self, path: str, run: str, about: str) -> argparse.ArgumentParser:
        """Add the verb `path` ("get" or "lease acquire"), done by `commands.<module>:<name>`."""
        family, _, leaf = path.rpartition(" ")
        adder = self._family(family) if family else self._verbs
        self.verbs[path] = about
        added = adder.add_parser(leaf, help=about, description=f"{about[0].upper()}{about[1:]}.")
        added.set_defaults(run=run, parser=added)
        _common(added)
        return added

    def _family(self, name: str) -> Adder:
        if name not in self._families:
            about = _FAMILIES[name]
            added = self._verbs.add_parser(name, help=about, description=about)
            added.set_defaults(run="", family=name)
            self._families[name] = added.add_subparsers(dest="leaf", metavar="VERB", required=True)
        return self._families[name]


_FAMILIES = {
    "adapter": "for authors of tiers: check one, begin one",
    "config": "the configuration and where each value comes from",
    "lease": "claims of readers, which keep a revision from being dropped",
    "oplog": "the log of every change of the records",
    "snapshot": "files that hold the whole weight state",
}


def _common(parser: argparse.ArgumentParser, *, before: str = "") -> None:
    """What every verb takes, before it or after it; a list given before would else be lost."""
    unset = argparse.SUPPRESS
    group = parser.add_argument_group("everywhere")
    group.add_argument("-o", "--output", choices=FORMATS, default=unset, help="default: table")
    group.add_argument("--config", metavar="FILE", default=unset, help="configuration file")
    group.add_argument("--state-dir", metavar="DIR", default=unset, help="state directory")
    group.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        dest=f"assignments{before}",
        default=unset,
        help="override one setting of the configuration",
    )


# --- verbs that only ask --------------------------------------------------------------------------


def _ask(grammar: Grammar) -> None:
    get = grammar.verb("get", "reads:get", "show the record of one revision")
    _identity(get)
    listing = grammar.verb("list", "reads:list_", "list revisions")
    listing.add_argument(
        "resource", nargs="?", help="[tenant:]namespace/resource; all when left out"
    )
    listing.add_argument("--limit", type=int, default=LIST_LIMIT_DEFAULT, help="1 to 1000")
    listing.add_argument("--page-token", default="", metavar="TOKEN", help="of the last page")
    describe = grammar.verb(
        "describe", "reads:describe", "show a revision with members, leases, operations, evidence"
    )
    _identity(describe)
    describe.add_argument(
        "--tensors", action="store_true", help="list its tensors instead, as its manifest says"
    )
    describe.add_argument("--limit", type=_number, default=20, help="members shown (default: 20)")
    explain = grammar.verb("explain", "reads:explain", "say what holds a revision, until when")
    _identity(explain)
    keys = grammar.verb("keys", "about:keys", "print every name derived from an identity")
    _identity(keys)
    leases = grammar.verb("lease list", "reads:leases", "list leases")
    _identity(leases, nargs="?")
    show = grammar.verb("oplog show", "reads:oplog_show", "print entries")
    show.add_argument("--from", dest="start", type=_number, default=1, metavar="SEQUENCE")
    show.add_argument("--limit", type=_number, default=100, help="entries shown (default: 100)")
    grammar.verb("oplog verify", "reads:oplog_verify", "read and replay the whole log")
    verify = grammar.verb("snapshot verify", "reads:snapshot_verify", "check a snapshot file")
    _path(verify, "file")
    config = grammar.verb("config show", "about:config_show", "print every setting")
    config.add_argument("--origin", action="store_true", help="and where each comes from")
    grammar.verb("exit-codes", "about:exit_codes_", "print the table of exit codes")
    schema = grammar.verb("schema", "schema:schema", "print the JSON Schema of a document")
    schema.add_argument("document", nargs="?", metavar="KIND", help="all kinds when left out")
    completion = grammar.verb("completion", "schema:completion", "print a completion script")
    completion.add_argument("shell", choices=SHELLS)


# --- verbs that change a revision -----------------------------------------------------------------


def _act(grammar: Grammar) -> None:
    plan = grammar.verb("plan", "acts:plan", "show what would be done; nothing is written")
    _identity(plan, nargs="?")
    plan.add_argument(
        "--detailed-exitcode",
        action="store_true",
        help="0 nothing to do, 2 something to do, 3 blocked by a guard",
    )
    _operation(grammar, "evict", "move a revision out of memory, cold copies verified first")
    _operation(grammar, "rehydrate", "bring a revision back into memory")
    repair = _operation(grammar, "repair", "restore missing and wrong copies of a revision")
    repair.add_argument(
        "--target", choices=("hot", "cold"), default=None, help="default: where it is now"
    )
    _yes(_operation(grammar, "delete", "delete a revision in every tier; a tombstone stays"))
    bring = grammar.verb("import", "acts:import_", "import safetensors as a new revision")
    _identity(bring)
    _path(bring, "source", about="a .safetensors file, or a folder of them")
    bring.add_argument(
        "--dry-run", action="store_true", help="say what it would do and why; nothing is written"
    )
    adopt = grammar.verb("adopt", "acts:adopt", "take objects that the tiers hold into management")
    _identity(adopt)
    adopt.add_argument(
        "--manifest", required=True, metavar="FILE", help="the bytes of its manifest object"
    )
    adopt.add_argument(
        "--digests", default=None, metavar="FILE", help="lines `SHA256  KEY`, as of sha256sum"
    )
    adopt.add_argument(
        "--dry-run", action="store_true", help="look only; no content is read, nothing is written"
    )
    load = grammar.verb("load", "acts:load", "write tensors of a revision into a folder or a file")
    _identity(load)
    load.add_argument(
        "folder",
        metavar="FOLDER|FILE.safetensors",
        help="a folder, which gets model.safetensors and is made when it is not there, or a file",
    )
    load.add_argument(
        "--force",
        action="store_true",
        help="replaces the file where it holds something else (default: refuse)",
    )
    load.add_argument(
        "--tensor", action="append", dest="tensors", metavar="NAME", help="only this one; repeat"
    )
    load.add_argument("--holder", default=None, help="name on the lease (default: host and pid)")
    acquire = grammar.verb("lease acquire", "acts:lease_acquire", "claim a revision for a reader")
    _identity(acquire)
    acquire.add_argument("--holder", required=True, help="who reads")
    _ttl(acquire)
    _generation(acquire)
    renew = grammar.verb("lease renew", "acts:lease_renew", "let a lease live longer")
    _lease(renew)
    _ttl(renew)
    _lease(grammar.verb("lease release", "acts:lease_release", "give a lease back"))


def _operation(grammar: Grammar, verb: str, about: str) -> argparse.ArgumentParser:
    added = grammar.verb(verb, f"acts:{verb}", about)
    _identity(added)
    _generation(added)
    how = added.add_mutually_exclusive_group()
    how.add_argument("--wait", action="store_true", help="until it was observed to be done")
    how.add_argument("--dry-run", action="store_true", help="show the plan; nothing is written")
    added.add_argument(
        "--timeout", type=_seconds, default=None, metavar="DURATION", help="longest --wait"
    )
    return added


# --- verbs about the whole ------------------------------------------------------------------------


def _maintain(grammar: Grammar) -> None:
    grammar.verb("tiers", "acts:tiers", "show capacity and health of the tiers")
    grammar.verb("orphans", "acts:orphans", "show what the tiers hold that no revision owns")
    save = grammar.verb("snapshot save", "acts:snapshot_save", "write the weight state to a file")
    _path(save, "file")
    restore = grammar.verb(
        "snapshot restore", "acts:snapshot_restore", "replace the whole weight state by a file's"
    )
    _path(restore, "file")
    _yes(restore)
    grammar.verb("doctor", "doctor:doctor", "check configuration, state directory and tiers")


def _serve(grammar: Grammar) -> None:
    grammar.verb("run", "serve:run", "run the reconcile loop until it is stopped")
    demo = grammar.verb("demo", "demo:demo", "watch a real model go through its whole life")
    _path(demo, "source", nargs="?", about="safetensors; default: the packaged all-MiniLM-L6-v2")
    demo.add_argument("--seed", type=int, default=None, help="of the random kills")
    demo.add_argument(
        "--rounds", type=int, default=1, help="times the whole story is told (default: 1)"
    )
    demo.add_argument(
        "--kill-at",
        type=_share,
        action="append",
        default=[],
        metavar="SHARE",
        help="kill at this share (0 to 1) of each operation, not at random; more are used in turn",
    )
    demo.add_argument("--keep", action="store_true", help="leave the state directory behind")
    demo.add_argument("--no-kill", action="store_true", help="without `kill -9` in the middle")


def _extend(grammar: Grammar) -> None:
    check = grammar.verb("adapter check", "adapter:check", "run the contract suite over a tier")
    check.epilog = (
        "exit codes: 0 the grade is reached; 1 it is not; 2 the tier could not be loaded, the kit"
        " is not installed (weightctl[conformance]), or the command line is wrong"
    )
    check.add_argument("factory", metavar="MODULE:FACTORY", help="as an entry point names it")
    check.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the tier; {tmp} in it is a fresh folder for each case",
    )
    check.add_argument(
        "--harness", default="", metavar="MODULE:CLASS", help="how to hurt a medium that is no file"
    )
    check.add_argument(
        "--grade",
        choices=("bronze", "silver", "gold", "platinum"),
        default="bronze",
        help="what has to be reached (default: bronze)",
    )
    check.add_argument("--select", default="", metavar="WORDS", help="cases, as for `pytest -k`")
    check.add_argument(
        "--case-deadline", type=_seconds, default=120.0, metavar="DURATION", help="default: 120s"
    )
    check.add_argument(
        "--soak", type=_seconds, default=0.0, metavar="DURATION", help="a long run, for platinum"
    )
    check.add_argument("--json", action="store_true", help="as `-o json`")
    new = grammar.verb("adapter new", "adapter:new", "write a plugin project that works")
    new.add_argument("name", metavar="NAME", help="of the tier: lower-case letters, digits, dashes")
    new.add_argument("--into", default=".", metavar="DIR", help="default: the current directory")


# --- arguments ------------------------------------------------------------------------------------


def _identity(parser: argparse.ArgumentParser, nargs: str | None = None) -> None:
    about = _IDENTITY if nargs is None else f"{_IDENTITY}; all when left out"
    parser.add_argument("identity", nargs=nargs, help=about.replace("%", "%%"))


def _path(
    parser: argparse.ArgumentParser, dest: str, *, nargs: str | None = None, about: str = ""
) -> None:
    parser.add_argument(dest, nargs=nargs, metavar=dest.upper(), help=about)


def _lease(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lease_id", type=int, metavar="LEASE", help="number of the lease")
    parser.add_argument("--tenant", default="default", help="its tenant (default: default)")


def _ttl(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ttl", type=_ttl_s, default=None, metavar="DURATION", help="default: lease.ttl_ms"
    )


def _generation(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--expected-generation",
        type=int,
        default=None,
        metavar="N",
        help="refuse when the record has moved on (default: the record's own, read first)",
    )


def _yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do not ask")


def _share(word: str) -> float:
    share = float(word)
    if not 0 <= share < 1:
        raise argparse.ArgumentTypeError(f"{word} is not from 0 to below 1")
    return share


def _number(word: str) -> int:
    try:
        return values.integer(0, 2**63 - 1)(word)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _seconds(word: str, longest_s: float = 366 * 86_400) -> float:
    try:
        return values.seconds(0.001, longest_s)(word)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _ttl_s(word: str) -> float:
    return _seconds(word, LEASE_TTL_MS_MAX / 1000)
