"""Verbs that only ask: answered from the state directory, without a lock, in little time.

Layer: cli.  Nothing here imports an event loop, a test holds that, but for the two that ask the
tiers: `explain` and `describe --tensors`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from weightctl.controller.api import reads, views
from weightctl.controller.cli.calling import survey
from weightctl.controller.cli.exit_codes import ExitCode
from weightctl.controller.cli.settings import load_config
from weightctl.controller.clock import SystemClock
from weightctl.controller.core.identity import parse_identity
from weightctl.controller.store.reading import read_state, unmoved

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from weightctl.controller.api import documents as doc
    from weightctl.controller.cli.output import Console
    from weightctl.controller.store.reading import StoredState


def _show(
    args: argparse.Namespace, console: Console, look: Callable[[StoredState], doc.Document]
) -> int:
    """Show what `look` finds in the recorded state."""
    config = load_config(args)

    def read() -> tuple[str, doc.Document]:
        with read_state(config.state_dir) as stored:
            return stored.problem, look(stored)

    problem, document = unmoved(read)
    if problem:
        console.note(f"warning: shown is the state before the damage\n{problem}")
    console.document(document)
    return ExitCode.OK


def _now_ms() -> int:
    return SystemClock().wall_ms()


def get(args: argparse.Namespace, console: Console) -> int:
    """Show one record."""
    identity = parse_identity(args.identity)
    return _show(args, console, lambda stored: reads.get(stored.state, identity, _now_ms()))


def list_(args: argparse.Namespace, console: Console) -> int:
    """List one resource, or everything."""
    page = {"page_token": args.page_token, "limit": args.limit, "now_ms": _now_ms()}

    def look(stored: StoredState) -> doc.Document:
        if args.resource is None:
            return reads.list_all(stored.state, **page)
        return reads.list_one(stored.state, args.resource, **page)

    return _show(args, console, look)


def describe(args: argparse.Namespace, console: Console) -> int:
    """Show all that is held about one revision, or with `--tensors` what its manifest names."""
    identity = parse_identity(args.identity)
    if args.tensors:
        console.document(survey(args, console, "tensors", {"identity": str(identity)}))
        return ExitCode.OK
    return _show(
        args,
        console,
        lambda stored: reads.describe(stored, identity, limit=args.limit, now_ms=_now_ms()),
    )


def explain(args: argparse.Namespace, console: Console) -> int:
    """Say what holds a revision and what it waits for; asks the tiers."""
    params = {"identity": str(parse_identity(args.identity))}
    console.document(survey(args, console, "explain", params))
    return ExitCode.OK


def leases(args: argparse.Namespace, console: Console) -> int:
    """List leases."""
    identity = None if args.identity is None else parse_identity(args.identity)
    return _show(args, console, lambda stored: reads.leases(stored.state, identity, _now_ms()))


def oplog_show(args: argparse.Namespace, console: Console) -> int:
    """Print entries of the op-log."""
    from weightctl.controller.store.oplog import read_log

    folder = load_config(args).state_dir
    console.document(unmoved(lambda: reads.oplog_page(read_log(folder, args.start), args.limit)))
    return ExitCode.OK


def oplog_verify(args: argparse.Namespace, console: Console) -> int:
    """Read and replay the whole op-log; INTEGRITY when it is damaged."""
    from weightctl.controller.store.oplog import verify_log

    folder = load_config(args).state_dir
    report = unmoved(lambda: verify_log(folder))
    console.document(reads.oplog_report(report))
    return ExitCode.OK if report.ok else ExitCode.INTEGRITY


def snapshot_verify(args: argparse.Namespace, console: Console) -> int:
    """Check a snapshot file without restoring it."""
    from weightctl.controller.store.archive import read_archive

    path = Path(args.file)
    console.document(views.snapshot("verified", path, read_archive(path).weights))
    return ExitCode.OK
