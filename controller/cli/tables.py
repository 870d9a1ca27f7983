"""Documents as text for people, and as names for shells.  Layer: cli.

A kind with `items` is a table with a row each; any other is printed field by field, lists in it as
tables of their own.  Which columns a row has is said here, in one place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weightctl.controller.cli.units import duration_text, size_text, time_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Row = Mapping[str, Any]
    Column = tuple[str, Callable[[Row], str]]

_GOOD = frozenset({"READY", "converged", "ok", "HOT", "COLD"})
_BAD = frozenset({"DEGRADED", "lost", "FAILED", "blocked", "ABSENT"})
_CODES = {True: "\x1b[32m", False: "\x1b[31m"}
_HIDDEN = frozenset({"apiVersion", "kind"})
_LABELS = {"observed": "tiersAsked"}
_NAMING = (
    *("leaseId", "identity", "sequence", "path", "name", "source"),
    *("payloadGroupId", "tier", "kind"),
)
"""Fields that name a thing; the first that it has counts."""
_MEMBERS_SHOWN = 20
_IDENTITY_PARTS = ("tenantId", "namespace", "resourceId", "revision", "weightGeneration")


def table(document: Row, *, color: bool = False) -> str:
    """The document for people."""
    if "items" in document:
        text = grid(document["items"], _COLUMNS[document["kind"]], color=color)
        more = document.get("nextPageToken")
        return f"{text}\nmore: --page-token '{_visible(more)}'" if more else text
    if document["kind"] == "Plan":
        return _plan(document, color=color)
    if document["kind"] == "ImportPlan":
        return _import_plan(document, color=color)
    return "\n".join(_fields(document, color=color))


def names(document: Row) -> list[str]:
    """What names the document's things: identities, lease numbers, tier names, paths."""
    return [_name(row) for row in document.get("items", [document])]


def _name(row: Row) -> str:
    for field in _NAMING:
        if field in row:
            return str(row[field])
    return _name(row["revision"])


def grid(rows: Sequence[Row], columns: Sequence[Column], *, color: bool) -> str:
    """A table with aligned columns; only its head when there is no row."""
    cells = [[head for head, _ in columns], *([show(row) for _, show in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for line in cells:
        padded = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        lines.append("  ".join(map(_painted, padded) if color else padded).rstrip())
    return "\n".join(lines)


def _painted(cell: str) -> str:
    word = cell.strip()
    good = word in _GOOD
    return f"{_CODES[good]}{cell}\x1b[0m" if good or word in _BAD else cell


# --- one document, field by field -----------------------------------------------------------------


def _fields(document: Row, *, color: bool, indent: str = "") -> Iterable[str]:
    shown = {key: value for key, value in document.items() if key not in _HIDDEN}
    if "identity" in shown:
        shown = {key: value for key, value in shown.items() if key not in _IDENTITY_PARTS}
    width = max((len(_label(key)) for key, value in shown.items() if _is_plain(value)), default=0)
    for key, value in shown.items():
        if _is_plain(value):
            text = _scalar(key, value)
            shown_text = _painted(text) if color else text
            yield f"{indent}{_label(key).ljust(width)}  {shown_text}".rstrip()
    for key, value in shown.items():
        if not _is_plain(value):
            yield from _nested(key, value, color=color, indent=indent)


def _nested(key: str, value: Any, *, color: bool, indent: str) -> Iterable[str]:  # noqa: ANN401
    yield f"{indent}{_label(key)}:"
    inner = indent + "  "
    if isinstance(value, dict):
        yield from _fields(value, color=color, indent=inner)
    else:
        key = f"{key} origin" if "origin" in value[0] else key
        yield from (inner + line for line in grid(value, _COLUMNS[key], color=color).splitlines())


def _is_plain(value: object) -> bool:
    """Whether a value fits on its field's own line."""
    if isinstance(value, list):
        return not value or not isinstance(value[0], dict)
    return not value if isinstance(value, dict) else True


def _label(key: str) -> str:
    key = _LABELS.get(key, key).removesuffix("Ms")
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in key).strip()


def _scalar(key: str, value: object) -> str:
    if value is None or value in ("", [], {}):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_visible, value))
    if key.endswith("Ms") and isinstance(value, int):
        return time_text(value)
    if key.endswith("Bytes") and isinstance(value, int):
        return f"{value} ({size_text(value)})"
    if key == "seconds" and isinstance(value, float):
        return duration_text(value)
    return _visible(value)


def _visible(value: object) -> str:
    """Text without what a terminal would act on or could not print."""
    text = str(value)
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


# --- columns --------------------------------------------------------------------------------------


def _of(key: str) -> Callable[[Row], str]:
    return lambda row: _scalar("", row[key])


def _size(key: str) -> Callable[[Row], str]:
    return lambda row: "-" if row[key] is None else size_text(row[key])


def _time(key: str) -> Callable[[Row], str]:
    return lambda row: _scalar("Ms", row[key])


def _operation(row: Row) -> str:
    running = row["operation"]
    if running is None:
        return "-"
    return f"{running['operation']} {running['processedMembers']}/{running['totalMembers']}"


def _stages(row: Row) -> str:
    from weightctl.controller.cli.demo.course import summary

    return summary(row["killed"])


_LEASE: tuple[Column, ...] = (
    ("LEASE", _of("leaseId")),
    ("IDENTITY", _of("identity")),
    ("HOLDER", _of("holder")),
    ("EXPIRES", _time("expiresAtMs")),
    ("LIVE", _of("live")),
)

_COLUMNS: dict[str, tuple[Column, ...]] = {
    "RevisionList": (
        ("IDENTITY", _of("identity")),
        ("AVAILABILITY", _of("availability")),
        ("RESIDENCY", _of("residency")),
        ("OPERATION", _operation),
        ("GENERATION", _of("metadataGeneration")),
        ("PAYLOADS", lambda row: str(row["manifest"]["payloadCount"])),
        ("SIZE", lambda row: size_text(row["manifest"]["logicalBytes"])),
        ("LEASES", lambda row: str(row["leases"]["active"])),
        ("UPDATED", _time("updatedAtMs")),
    ),
    "LeaseList": _LEASE,
    "leases": _LEASE,
    "PlanList": (
        ("IDENTITY", _of("identity")),
        ("PURPOSE", _of("purpose")),
        ("VERDICT", _of("verdict")),
        ("DONE", lambda row: f"{row['processedMembers']}/{row['totalMembers']}"),
        ("STEPS", lambda row: str(len(row["steps"]))),
        ("MOVES", lambda row: size_text(sum(move["sizeBytes"] for move in row["transfers"]))),
        ("WAITS", lambda row: ", ".join(wait["reason"] for wait in row["waits"]) or "-"),
    ),
    "OrphanList": (
        ("TIER", _of("tier")),
        ("GROUP", _of("payloadGroupId")),
        ("IDENTITY", _of("identity")),
        ("OBJECTS", _of("objects")),
        ("SIZE", _size("sizeBytes")),
        ("WHY", _of("why")),
        ("NEXT", _of("todo")),
    ),
    "TierList": (
        ("TIER", _of("name")),
        ("PLUGIN", _of("tier")),
        ("HOT", _of("hot")),
        ("USED", _size("usedBytes")),
        ("FREE", _size("freeBytes")),
        ("TOTAL", _size("totalBytes")),
        ("PROBLEM", _of("problem")),
    ),
    "OplogPage": (
        ("SEQUENCE", _of("sequence")),
        ("TIME", _time("timeMs")),
        ("TYPE", _of("type")),
        ("WHAT", _of("summary")),
        ("PROBLEM", _of("problem")),
    ),
    "ExitCodes": (("CODE", _of("code")), ("NAME", _of("name")), ("MEANING", _of("about"))),
    "settings": (
        ("SETTING", _of("key")),
        ("VALUE", _of("value")),
        ("MEANING", _of("about")),
    ),
    "settings origin": (
        ("SETTING", _of("key")),
        ("VALUE", _of("value")),
        ("ORIGIN", _of("origin")),
        ("VARIABLE", _of("variable")),
    ),
    "tiers": (
        ("TIER", _of("name")),
        ("PLUGIN", _of("plugin")),
        ("OPTIONS", lambda row: " ".join(f"{k}={v}" for k, v in row["options"].items()) or "-"),
    ),
    "members": (
        ("KEY", _of("key")),
        ("TYPE", _of("dataType")),
        ("SIZE", _size("sizeBytes")),
        ("SHA256", lambda row: row["sha256"][:16]),
    ),
    "operations": (
        ("OPERATION", _of("operationId")),
        ("KIND", _of("operation")),
        ("DONE", lambda row: f"{row['processedMembers']}/{row['totalMembers']}"),
        ("STARTED", _time("startedAtMs")),
        ("UPDATED", _time("updatedAtMs")),
        ("MESSAGE", _of("message")),
    ),
    "evidence": (
        ("MEMBER", _of("memberKey")),
        ("DROPPED", _of("droppedTier")),
        ("BECAUSE OF", _of("evidenceTier")),
        ("VERIFIED", _time("verifiedAtMs")),
        ("DIGEST", lambda row: row["evidenceSha256"][:16]),
    ),
    "damage": (
        ("MEMBER", _of("memberKey")),
        ("DAMAGED IN", _of("tier")),
        ("READ BACK", _time("atMs")),
        ("FOUND", lambda row: row["foundSha256"][:16]),
    ),
    "TensorList": (
        ("TENSOR", _of("name")),
        ("DTYPE", _of("dtype")),
        ("SHAPE", lambda row: "x".join(map(str, row["shape"])) or "scalar"),
        ("SIZE", _size("sizeBytes")),
    ),
    "holds": (("REASON", _of("reason")), ("WHAT", _of("what")), ("UNTIL", _time("untilMs"))),
    "steps": (
        ("ROUND", _of("round")),
        ("STEP", _of("step")),
        ("REASON", _of("reason")),
        ("FROM", _of("source")),
        ("TO", _of("target")),
        ("MEMBERS", _of("members")),
        ("SIZE", _size("sizeBytes")),
    ),
    "waits": (
        ("WAITS FOR", _of("reason")),
        ("WHAT", _of("what")),
        ("MEMBERS", _of("members")),
        ("UNTIL", _time("untilMs")),
    ),
    "held": (("TIER", _of("name")), ("OBJECTS", _of("objects"))),
    "obstacles": (
        ("TIER", _of("tier")),
        ("REASON", _of("reason")),
        ("WHAT", _of("what")),
        ("WHY", _of("why")),
        ("NEXT", _of("todo")),
    ),
    "room": (("TIER", _of("name")), ("NEEDED", _size("neededBytes")), ("FREE", _size("freeBytes"))),
    "import tiers": (
        ("TIER", _of("name")),
        ("WRITTEN", _of("chosen")),
        ("NEEDED", _size("neededBytes")),
        ("FREE", _size("freeBytes")),
        ("WHY", _of("why")),
    ),
    "import members": (
        ("KEY", _of("key")),
        ("TYPE", _of("dataType")),
        ("SIZE", _size("sizeBytes")),
    ),
    "checks": (
        ("CHECK", _of("name")),
        ("RESULT", lambda row: "ok" if row["ok"] else "FAILED"),
        ("DETAIL", _of("detail")),
        ("NEXT", _of("todo")),
    ),
    "results": (
        ("STEP", _of("name")),
        ("RESULT", lambda row: "ok" if row["ok"] else "FAILED"),
        ("VERIFIED", _of("verified")),
        ("KILLS", _of("kills")),
        ("KILLED WHILE", _stages),
        ("TIME", lambda row: duration_text(row["seconds"])),
    ),
}


# --- plans ----------------------------------------------------------------------------------------


def _plan(plan: Row, *, color: bool) -> str:
    facts = [f"{plan['processedMembers']} of {plan['totalMembers']} members done"]
    silent = any(wait["reason"] == "TierUnknown" for wait in plan["waits"])
    if silent and not plan["availability"] and plan["purpose"] == "keep":
        facts = ["what the tiers hold is not known"]
    if plan["availability"] or plan["residency"]:
        facts.append(f"seen: {plan['availability'] or '?'}, {plan['residency'] or '?'}")
    if plan["steps"]:
        facts.append("converges" if plan["converges"] else "does not converge by itself")
    verdict = _painted(plan["verdict"]) if color else plan["verdict"]
    lines = [f"{plan['identity']}: {plan['purpose']}: {verdict} ({'; '.join(facts)})"]
    needed = [room for room in plan["tiers"] if room["neededBytes"]]
    for rows, columns in ((plan["steps"], "steps"), (plan["waits"], "waits"), (needed, "room")):
        if rows:
            lines.extend(
                f"  {row}" for row in grid(rows, _COLUMNS[columns], color=color).split("\n")
            )
    lines.extend(f"  warning: {warning}" for warning in plan["warnings"])
    lines.extend(f"  {_visible(remark)}" for remark in plan["remarks"])
    return "\n".join(lines)


def _import_plan(plan: Row, *, color: bool) -> str:
    objects = len(plan["members"])
    facts = [
        f"{plan['tensors']} tensors in {objects} objects",
        f"{size_text(plan['logicalBytes'])} and a manifest of {size_text(plan['manifestBytes'])}",
    ]
    if plan["availability"]:
        facts.append(f"now {plan['availability']}, generation {plan['metadataGeneration']}")
    verdict = _painted(plan["verdict"]) if color else plan["verdict"]
    lines = [f"{plan['identity']}: import: {verdict} ({'; '.join(facts)})"]
    for obstacle in plan["obstacles"]:
        reason = obstacle["code"] or obstacle["reason"]
        lines.append(f"  in the way: {reason}: {_visible(obstacle['what'])}")
        lines.append(f"    why: {_visible(obstacle['why'])}")
        lines.append(f"    next: {_visible(obstacle['todo'])}")
    shown = plan["members"][:_MEMBERS_SHOWN]
    for rows, columns in (
        (plan["steps"], "steps"),
        (plan["tiers"], "import tiers"),
        (shown, "import members"),
    ):
        if rows:
            lines += [f"  {row}" for row in grid(rows, _COLUMNS[columns], color=color).split("\n")]
    if objects > len(shown):
        lines.append(f"  and {objects - len(shown)} more; -o json has all of them")
    lines.append(f"  group {plan['payloadGroupId']}")
    lines += [f"  {_visible(remark)}" for remark in plan["remarks"]]
    return "\n".join(lines)
