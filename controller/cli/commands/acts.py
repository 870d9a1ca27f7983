"""Verbs that act on revisions, leases, tiers and the whole state.  Layer: cli."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any, cast

from weightctl.controller.cli.calling import call, survey
from weightctl.controller.cli.exit_codes import ExitCode
from weightctl.controller.cli.exit_codes import of as exit_code_of
from weightctl.controller.config.places import expanded
from weightctl.controller.core.identity import parse_identity
from weightctl.controller.core.plan import GUARDS, Reason

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from weightctl.controller.api import documents as doc
    from weightctl.controller.cli.output import Console

_HOLDER_BYTES_MAX = 1024


def evict(args: argparse.Namespace, console: Console) -> int:
    """Move a revision out of memory."""
    return _change(args, console, "evict")


def rehydrate(args: argparse.Namespace, console: Console) -> int:
    """Bring a revision into memory."""
    return _change(args, console, "rehydrate")


def repair(args: argparse.Namespace, console: Console) -> int:
    """Restore copies."""
    return _change(args, console, "repair", target=args.target)


def delete(args: argparse.Namespace, console: Console) -> int:
    """Delete a revision; asks first, because nothing brings it back."""
    parse_identity(args.identity)
    question = f"delete {args.identity} in every tier?"
    if not (args.dry_run or console.confirm(question, yes=args.yes)):
        return ExitCode.ERROR
    return _change(args, console, "delete")


def _change(args: argparse.Namespace, console: Console, verb: str, **more: object) -> int:
    params = {
        "identity": _identity(args),
        "expected_generation": args.expected_generation,
        "wait": args.wait,
        "timeout_s": args.timeout,
        "dry_run": args.dry_run,
        **more,
    }
    if args.dry_run:
        console.document(survey(args, console, verb, params))
    else:
        console.document(call(args, console, verb, params, loop=args.wait))
    return ExitCode.OK


def plan(args: argparse.Namespace, console: Console) -> int:
    """Show what would be done."""
    identity = None if args.identity is None else _identity(args)
    document = survey(args, console, "plan", {"identity": identity})
    console.document(document)
    return _detailed(document) if args.detailed_exitcode else ExitCode.OK


def _detailed(document: doc.Document) -> int:
    """As `exit_codes.DETAILED` says; what is lost comes before what holds, and that before work."""
    row = cast("dict[str, Any]", document)
    plans = row.get("items", [row])
    if any(found["lostMembers"] for found in plans):
        return ExitCode.LOST
    reasons = {wait["reason"] for found in plans for wait in found["waits"]}
    if reasons & {Reason.TIER_UNKNOWN.value, *(reason.value for reason in GUARDS)}:
        return 3
    return 2 if any(found["verdict"] != "converged" for found in plans) else 0


def orphans(args: argparse.Namespace, console: Console) -> int:
    """Show what nobody owns; every tier is listed wholly.  ERROR where one could not be."""
    document = survey(args, console, "orphans", {})
    console.document(document)
    rows = cast("dict[str, Any]", document)["items"]
    unlisted = any(row["why"].startswith("NotListed") for row in rows)
    return ExitCode.ERROR if unlisted else ExitCode.OK


def tiers(args: argparse.Namespace, console: Console) -> int:
    """Show the tiers."""
    console.document(survey(args, console, "tiers", {}))
    return ExitCode.OK


def import_(args: argparse.Namespace, console: Console) -> int:
    """Import safetensors."""
    params = {
        "identity": _identity(args),
        "source": _absolute(args.source),
        "dry_run": args.dry_run,
    }
    if not args.dry_run:
        console.document(call(args, console, "import", params))
        return ExitCode.OK
    document = survey(args, console, "import", params)
    console.document(document)
    for first in cast("dict[str, Any]", document)["obstacles"]:
        return exit_code_of(first["code"], first["reason"])
    return ExitCode.OK


def adopt(args: argparse.Namespace, console: Console) -> int:
    """Take objects that are there into management."""
    params = {
        "identity": _identity(args),
        "manifest": _absolute(args.manifest),
        "digests": None if args.digests is None else _absolute(args.digests),
        "dry_run": args.dry_run,
    }
    if not args.dry_run:
        console.document(call(args, console, "adopt", params))
        return ExitCode.OK
    document = survey(args, console, "adopt", params)
    console.document(document)
    refused = cast("dict[str, Any]", document)["verdict"] == "refused"
    return ExitCode.ERROR if refused else ExitCode.OK


def load(args: argparse.Namespace, console: Console) -> int:
    """Write tensors into a folder."""
    params = {
        "identity": _identity(args),
        "folder": _absolute(args.folder),
        "tensors": args.tensors,
        "holder": args.holder or f"load@{socket.gethostname()}:{os.getpid()}",
        "force": args.force,
    }
    console.document(call(args, console, "load", params))
    return ExitCode.OK


def lease_acquire(args: argparse.Namespace, console: Console) -> int:
    """Claim a revision."""
    params = {
        "identity": _identity(args),
        "holder": args.holder,
        "ttl_ms": _ttl_ms(args),
        "expected_generation": args.expected_generation,
    }
    return _lease(args, console, "lease acquire", params)


def lease_renew(args: argparse.Namespace, console: Console) -> int:
    """Let a lease live longer."""
    params = {"lease_id": args.lease_id, "tenant_id": args.tenant, "ttl_ms": _ttl_ms(args)}
    return _lease(args, console, "lease renew", params)


def lease_release(args: argparse.Namespace, console: Console) -> int:
    """Give a lease back."""
    params = {"lease_id": args.lease_id, "tenant_id": args.tenant}
    return _lease(args, console, "lease release", params)


def _lease(args: argparse.Namespace, console: Console, verb: str, params: Mapping[str, Any]) -> int:
    console.document(call(args, console, verb, params))
    return ExitCode.OK


def snapshot_save(args: argparse.Namespace, console: Console) -> int:
    """Write the weight state to a file."""
    console.document(call(args, console, "snapshot save", {"file": _absolute(args.file)}))
    return ExitCode.OK


def snapshot_restore(args: argparse.Namespace, console: Console) -> int:
    """Replace the weight state; asks first, because the present one is gone then."""
    question = f"replace the whole weight state by {args.file}?"
    if not console.confirm(question, yes=args.yes):
        return ExitCode.ERROR
    console.document(call(args, console, "snapshot restore", {"file": _absolute(args.file)}))
    return ExitCode.OK


def _identity(args: argparse.Namespace) -> str:
    """The identity, checked here, so that a misspelt one reaches nobody."""
    return str(parse_identity(args.identity))


def _absolute(path: str) -> str:
    """The running controller has another working directory."""
    return str(expanded(path, "the command line").absolute())


def _ttl_ms(args: argparse.Namespace) -> int | None:
    return None if args.ttl is None else round(args.ttl * 1000)
