"""`weightctl doctor`: what would keep it from working, and what to do about it.  Layer: cli.

Every check is made and reported, also after one has failed; nothing is changed anywhere.
"""

from __future__ import annotations

import os
import platform
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from weightctl.controller.api import client
from weightctl.controller.api.views import API_VERSION
from weightctl.controller.cli.calling import survey
from weightctl.controller.cli.exit_codes import ExitCode
from weightctl.controller.cli.settings import gate_refusal, load_config
from weightctl.controller.cli.units import size_text
from weightctl.controller.cli.watching import run_watched
from weightctl.controller.errors import WeightctlError
from weightctl.controller.ports import NOT_SET_UP, SET_UP_BY_USE
from weightctl.controller.runtime.answers import shown
from weightctl.controller.runtime.holding import running
from weightctl.controller.runtime.interrupts import is_ctrl_c
from weightctl.controller.store.database import DATABASE_NAME
from weightctl.controller.store.evidence import read_epochs
from weightctl.controller.store.oplog import verify_log
from weightctl.controller.store.reading import open_reader, unmoved
from weightctl.controller.wiring import ambiguity_of, metric_exporter, owner_of, plugin_points

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator
    from importlib.metadata import EntryPoint

    from weightctl.controller.api import documents as doc
    from weightctl.controller.cli.output import Console
    from weightctl.controller.config.loading import Config

    Check = doc.CheckFields

SQLITE_MIN = (3, 37, 0)
"""STRICT tables."""
ROOM_BYTES = 16 * 1024**2
"""With less in the state directory, the next few changes may find none."""


def doctor(args: argparse.Namespace, console: Console) -> int:
    """Make every check."""
    config, refused = _configuration(args)
    checks: list[Check] = [_platform(), _sqlite(), *run_watched(_plugins, config)]
    checks.extend(refused)
    if config is not None:
        checks.append(_ok("configuration", f"tiers: {_names(config)}"))
        checks.append(_guarded("state directory", lambda: _state_dir(config)))
        checks.append(_guarded("op-log", lambda: _oplog(config)))
        checks.append(_guarded("former tiers", lambda: _former_tiers(config)))
        checks.append(_guarded("telemetry", lambda: _telemetry(config)))
        checks.append(_gate(config))
        checks.append(_controller(config))
        checks.extend(_tiers(args, console, config))
    document: doc.Diagnosis = {
        "apiVersion": API_VERSION,
        "kind": "Diagnosis",
        "ok": all(check["ok"] for check in checks),
        "checks": checks,
    }
    console.document(document)
    return ExitCode.OK if document["ok"] else ExitCode.ERROR


# --- this machine ---------------------------------------------------------------------------------


def _platform() -> Check:
    detail = f"{platform.system()}, Python {platform.python_version()}, {os.cpu_count()} cores"
    if platform.system() == "Linux":
        return _ok("platform", detail)
    return _bad("platform", detail, "run it on Linux: the tiers need its file calls")


def _sqlite() -> Check:
    if sqlite3.sqlite_version_info >= SQLITE_MIN:
        return _ok("sqlite", sqlite3.sqlite_version)
    wanted = ".".join(map(str, SQLITE_MIN))
    return _bad("sqlite", sqlite3.sqlite_version, f"use a Python with SQLite {wanted} or later")


async def _plugins() -> list[Check]:
    """In a loop that is watched: to load one runs its code."""
    return [_plugin(kind, points) for kind, points in plugin_points().items()]


def _plugin(kind: str, points: list[EntryPoint]) -> Check:
    point, *others = points
    if others:
        return _bad(f"plugin {kind}", *ambiguity_of(points))
    try:
        with running(owner_of(kind, point)):
            point.load()
    except BaseException as error:  # foreign code; the check is about its faults
        if is_ctrl_c(error):
            raise
        todo = "mend or remove the package that brings it; other tiers are not affected"
        return _bad(f"plugin {kind}", f"{point.value}: {shown(error)}", todo)
    return _ok(f"plugin {kind}", point.value)


def _configuration(args: argparse.Namespace) -> tuple[Config | None, list[Check]]:
    """The configuration, or what is wrong with it."""
    try:
        return load_config(args), []
    except WeightctlError as error:
        return None, [_failed("configuration", error)]


# --- this configuration ---------------------------------------------------------------------------


def _state_dir(config: Config) -> Check:
    folder = Path(config.state_dir)
    todo = "give this user write access, or name another directory"
    there = folder
    while not os.path.lexists(there):
        there = there.parent
    if not there.is_dir():
        return _bad("state directory", f"{folder}: {there} is not a directory", todo)
    database = there / DATABASE_NAME
    if not os.access(there, os.W_OK | os.X_OK):
        return _bad("state directory", f"{folder}: {there} is not writable", todo)
    if there != folder:
        return _ok("state directory", f"{folder}: not there yet, the first import makes it")
    if database.exists() and not os.access(database, os.R_OK | os.W_OK):
        return _bad("state directory", f"{database}: not writable", todo)
    room = os.statvfs(folder)
    free_bytes = room.f_bavail * room.f_frsize
    detail = f"{folder}: {size_text(free_bytes)} free"
    if free_bytes < ROOM_BYTES:
        wanted = size_text(ROOM_BYTES)
        todo = f"free {wanted} on its file system: without room no change can be recorded"
        return _bad("state directory", detail, todo)
    return _ok("state directory", detail)


def _oplog(config: Config) -> Check:
    if not (Path(config.state_dir) / DATABASE_NAME).exists():
        return _ok("op-log", "none yet")
    report = unmoved(lambda: verify_log(config.state_dir))
    if report.ok:
        return _ok("op-log", f"{report.entries} entries up to {report.last_sequence}, all good")
    return _bad("op-log", report.problem, "keep a copy, then restore a snapshot elsewhere")


def _epochs(folder: Path) -> dict[str, str]:
    with open_reader(folder) as (connection, _):
        return read_epochs(connection)


def _former_tiers(config: Config) -> Check:
    if not (Path(config.state_dir) / DATABASE_NAME).exists():
        return _ok("former tiers", "none")
    used = unmoved(lambda: _epochs(Path(config.state_dir)))
    here = {tier.name for tier in config.tiers} | set(config.policy().retired_tiers)
    former = ", ".join(sorted(used.keys() - here))
    if not former:
        return _ok("former tiers", "none")
    todo = "configure them again, or name those whose media are gone in policy.retired_tiers"
    return _bad("former tiers", f"used and not configured: {former}; deletions wait", todo)


def _telemetry(config: Config) -> Check:
    if metric_exporter(config) is None:
        return _ok("telemetry", "off")
    return _ok("telemetry", f"metrics go to {config.values['telemetry.otlp_endpoint']}")


def _gate(config: Config) -> Check:
    refusal = gate_refusal(config)
    return (
        _ok("capability gate", "open") if refusal is None else _failed("capability gate", refusal)
    )


def _controller(config: Config) -> Check:
    connection = client.connect(config.state_dir)
    if connection is None:
        return _ok("controller", "none runs; verbs are carried out by their own process")
    try:
        found = cast("dict[str, Any]", client.request(connection, "health", {}, lambda _: None))
    except WeightctlError as error:
        return _failed("controller", error)
    queued = f"{found['due']} due, {found['delayed']} later, {found['active']} at work"
    wrong = [f"{key}: {problem}" for key, problem in found["problems"].items()]
    wrong += [f"{found[word]} {word}" for word in ("stuck", "failing", "lost") if found[word]]
    if found["ready"] and not wrong:
        media = [f"; {tier}: {one['state']}" for tier, one in found["media"].items()]
        return _ok("controller", f"`weightctl run` is ready; revisions: {queued}{''.join(media)}")
    todo = "see its log; `weightctl plan` shows which revisions wait for what"
    return _bad("controller", "; ".join(wrong) or "it is not ready", todo)


def _tiers(args: argparse.Namespace, console: Console, config: Config) -> Iterator[Check]:
    try:
        found = cast("dict[str, Any]", survey(args, console, "tiers", {"examine": True}))
    except WeightctlError as error:
        yield _failed("tiers", error)
        return
    for row in found["items"]:
        yield _tier(row)
    yield from found.get("checks", [])
    yield _kinds(found["items"], config)


def _tier(row: dict[str, Any]) -> Check:
    name, problem = f"tier {row['name']}", row["problem"]
    if NOT_SET_UP in problem and problem.endswith(SET_UP_BY_USE):
        return _ok(name, f"{NOT_SET_UP}, {SET_UP_BY_USE}")
    if problem:
        todo = row["todo"]
        detail = problem.removesuffix(f"; {todo}") if todo else problem
        return _bad(name, detail, todo or "mend it; what it holds counts as unknown until then")
    free, total = size_text(row["freeBytes"]), size_text(row["totalBytes"])
    usable = row["usedBytes"] + row["freeBytes"]
    if "mappable" in row["capabilities"] and usable < row["totalBytes"]:
        detail = f"capacity_bytes is {total}, and only {size_text(usable)} of memory can be used"
        return _bad(name, detail, "lower capacity_bytes, or enlarge its tmpfs or the memory")
    return _ok(name, f"{row['tier']}: {free} free of {total}")


def _kinds(found: list[dict[str, Any]], config: Config) -> Check:
    takers = [row for row in found if "observe_only" not in row["capabilities"]]
    missing = [
        word
        for word, there in (
            ("a hot tier", any(row["hot"] for row in takers)),
            ("a persistent cold tier", any("persistent" in row["capabilities"] for row in takers)),
        )
        if not there
    ]
    if missing:
        only = ", ".join(row["name"] for row in found if row not in takers)
        shown = f"; {only} only shows what others put there" if only else ""
        todo = "add one to the configuration: [[tier]]"
        return _bad("kinds of tiers", f"missing: {' and '.join(missing)}{shown}", todo)
    unknown = set(config.policy().tier_preference) - {tier.name for tier in config.tiers}
    if unknown:
        detail = f"policy.tier_preference names {', '.join(sorted(unknown))}"
        return _bad("kinds of tiers", detail, f"use names of configured tiers: {_names(config)}")
    return _ok("kinds of tiers", "hot and persistent cold")


# --- checks ---------------------------------------------------------------------------------------


def _guarded(name: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except WeightctlError as error:
        return _failed(name, error)
    except OSError as error:
        return _bad(name, str(error), "give this user access")


def _names(config: Config) -> str:
    return ", ".join(tier.name for tier in config.tiers)


def _ok(name: str, detail: str) -> Check:
    return {"name": name, "ok": True, "detail": detail, "todo": ""}


def _bad(name: str, detail: str, todo: str) -> Check:
    return {"name": name, "ok": False, "detail": detail, "todo": todo}


def _failed(name: str, error: WeightctlError) -> Check:
    return _bad(name, "; ".join(filter(None, (error.what, error.why))), error.todo)
