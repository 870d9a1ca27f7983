"""The verb `adopt`: take objects that the tiers hold already into management.  Layer: api."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from weightctl.controller.api import views
from weightctl.controller.api.transfer import reporter
from weightctl.controller.core.manifest_codec import MANIFEST_BYTES_MAX
from weightctl.controller.errors import (
    ErrorCode,
    IntegrityError,
    ManifestError,
    NothingReadableError,
    SourceError,
    WeightError,
)
from weightctl.controller.runtime.border import remark_of
from weightctl.controller.weightstore.adoptable import look
from weightctl.controller.weightstore.adopting import managed, told_of
from weightctl.controller.weightstore.candidate import candidate, parse_digests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from weightctl.controller.api import documents as doc
    from weightctl.controller.api import requests
    from weightctl.controller.api.app import App
    from weightctl.controller.api.planning import Planning
    from weightctl.controller.errors import WeightctlError
    from weightctl.controller.ports import Clock, Tier
    from weightctl.controller.weightstore.adoptable import Obstacle
    from weightctl.controller.weightstore.adopting import AdoptReport
    from weightctl.controller.weightstore.candidate import Candidate

    Emit = Callable[[Mapping[str, Any]], None]

LOOK_S = 60.0
"""A tier that has not answered by then is taken as unknown."""
_TOLD_MAX = 100
_DIGESTS_BYTES_MAX = MANIFEST_BYTES_MAX


async def adopt(app: App, asked: requests.Adopt, emit: Emit) -> doc.Adoption:
    """Adopt, or tell each obstacle and raise the gravest."""
    started_s = app.clock.monotonic_s()
    manifest, digests = await to_thread.run_sync(_files, asked)
    with _of_file(asked):
        report = await app.weights.adopt(
            asked.identity, manifest, digests=digests, progress=reporter(emit)
        )
    if report.obstacles:
        raise _refusal(report, emit)
    if app.controller is not None:
        app.controller.wake(asked.identity)
    done = document(report, app.clock.monotonic_s() - started_s, dry=False)
    done["remarks"] += _told_by(app.tiers)
    return done


async def look_to_adopt(planning: Planning, asked: requests.Adopt) -> doc.Adoption:
    """What adopting would find, from one look at the tiers; no content is read."""
    started_s = planning.clock.monotonic_s()
    wanted = await _candidate(asked)
    try:
        subject = await planning.records.subject(asked.identity)
    except WeightError as error:
        if error.code is not ErrorCode.NOT_FOUND:
            raise
        report = told_of(wanted, await look(wanted, planning.tiers, LOOK_S))
    else:
        report = managed(wanted, subject.record)
    return document(report, planning.clock.monotonic_s() - started_s, dry=True)


async def look_without_state(
    tiers: Sequence[Tier], clock: Clock, asked: requests.Adopt
) -> doc.Adoption:
    """As `look_to_adopt` where no state directory is yet: nothing is managed there."""
    started_s, wanted = clock.monotonic_s(), await _candidate(asked)
    report = told_of(wanted, await look(wanted, tiers, LOOK_S))
    found = document(report, clock.monotonic_s() - started_s, dry=True)
    found["remarks"].append(
        "there is no state directory yet, so whose the media are was not asked: one that belongs to"
        " another store refuses to be adopted from until its tier has `adopt = true`, once"
    )
    return found


def _told_by(tiers: Sequence[Tier]) -> list[str]:
    """What tiers say themselves of how it went; those that share a medium say the same."""
    return list(dict.fromkeys(told for tier in tiers if (told := remark_of(tier))))


# --- files ----------------------------------------------------------------------------------------


async def _candidate(asked: requests.Adopt) -> Candidate:
    manifest, digests = await to_thread.run_sync(_files, asked)
    with _of_file(asked):
        return await to_thread.run_sync(candidate, asked.identity, manifest, digests)


@contextmanager
def _of_file(asked: requests.Adopt) -> Iterator[None]:
    """What is wrong with a manifest is wrong with the file that it was given in."""
    try:
        yield
    except ManifestError as error:
        raise ManifestError(
            f"{asked.manifest} is no manifest to adopt by",
            "; ".join(filter(None, (error.why, error.what))),
            "give a file with the very bytes of the manifest object of what is to be adopted",
        ) from error


def _files(asked: requests.Adopt) -> tuple[bytes, dict[str, bytes]]:
    manifest = _content(asked.manifest, MANIFEST_BYTES_MAX)
    if asked.digests is None:
        return manifest, {}
    raw = _content(asked.digests, _DIGESTS_BYTES_MAX)
    try:
        return manifest, parse_digests(raw.decode("utf-8", "surrogateescape"))
    except WeightError as error:
        raise WeightError(
            error.code, f"{asked.digests}: {error.what}", error.why, error.todo
        ) from error


def _content(path: str, bytes_max: int) -> bytes:
    try:
        with Path(path).open("rb") as file:
            raw = file.read(bytes_max + 1)
    except OSError as error:
        raise SourceError(
            f"{path} cannot be read", f"{SourceError.reason}: {error.strerror}", "name a file"
        ) from error
    if len(raw) > bytes_max:
        raise SourceError(
            f"{path} cannot be read",
            f"{SourceError.reason}: it has more than {bytes_max} bytes",
            "name the right file",
        )
    return raw


# --- what is told ---------------------------------------------------------------------------------


def _refusal(report: AdoptReport, emit: Emit) -> WeightctlError:
    """Tell every obstacle; the error that stands for all of them."""
    for obstacle in report.obstacles[:_TOLD_MAX]:
        error = obstacle.error
        emit({"note": f"{error.what}\n  why: {error.why}\n  next: {error.todo}"})
    if len(report.obstacles) > _TOLD_MAX:
        emit({"note": f"and {len(report.obstacles) - _TOLD_MAX} more"})
    gravest = min(report.obstacles, key=_gravity).error
    objects = len({obstacle.key for obstacle in report.obstacles if obstacle.key})
    whom = f"{objects} of its {len(report.candidate.members)} objects" if objects else "a tier"
    return type(gravest)(
        f"revision {report.candidate.identity} cannot be adopted; nothing was changed",
        f"{gravest.reason}: {whom} cannot be proven; {gravest.what}: {gravest.why}",
        gravest.todo,
    )


def _gravity(obstacle: Obstacle) -> int:
    """Wrong bytes before missing ones, these before what nobody knows."""
    match obstacle.error:
        case IntegrityError():
            return 0
        case NothingReadableError():
            return 1
        case _:
            return 2


def document(report: AdoptReport, seconds: float, *, dry: bool) -> doc.Adoption:
    """The report as a document; `dry`: nothing was to be adopted."""
    wanted, record = report.candidate, report.record
    count = len(wanted.members)
    known = record is not None and not report.held
    return {
        "apiVersion": views.API_VERSION,
        "kind": "Adoption",
        **views.name(wanted.identity),
        "verdict": _verdict(report, dry=dry),
        "objects": count,
        "logicalBytes": wanted.reference.logical_bytes,
        "readBytes": report.read_bytes,
        "digestsTold": max(report.told - 1, 0),  # not the manifest's, which nobody has to tell
        "digestsRecorded": report.recorded,
        "digestsTaken": 0 if known else count - report.told - report.recorded,
        "metadataGeneration": None if record is None else record.metadata_generation,
        "residency": None if record is None else record.residency.name,
        "seconds": seconds,
        "held": [{"name": name, "objects": shown} for name, shown in report.held.items()],
        "obstacles": [views.obstacle(one.key, one.tier, one.error) for one in report.obstacles],
        "remarks": [] if known else _remarks(report, dry=dry),
    }


def _verdict(report: AdoptReport, *, dry: bool) -> str:
    if report.obstacles:
        return "refused"
    if report.record is None:
        return "adoptable"
    return "managed" if dry or not report.held else "adopted"


def _remarks(report: AdoptReport, *, dry: bool) -> list[str]:
    """What a person should know beside the verdict."""
    remarks = []
    if dry:
        remarks.append(
            "no content was read, which in some stores takes a lease: adopting reads every replica"
            " and may still refuse"
        )
    else:
        remarks.append("no tier shows data types: each object is what the manifest says it is")
    if report.told + report.recorded < len(report.candidate.members):
        remarks.append(
            "a manifest holds no digests: what nobody told and no tier recorded is taken as it is"
            " read, and kept so from then on; --digests proves more"
        )
    if not report.manifest_seen:
        has, is_put = ("has", "is") if dry else ("had", "was")
        remarks.append(
            f"no tier {has} the manifest object: it {is_put} put beside the payloads, last"
        )
    if not report.durable:
        remarks.append(
            "no persistent tier has all of it: make copies with `weightctl repair --target cold`"
        )
    return remarks
