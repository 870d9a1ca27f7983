"""The dry run of `import`: what it would do and why, from one look.  Layer: api."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weightctl.controller.api import views
from weightctl.controller.core.observation import MemberState
from weightctl.controller.errors import ErrorCode, WeightError
from weightctl.controller.runtime.border import remark_of
from weightctl.controller.weightstore.preview import Previewing, sets_itself_up
from weightctl.controller.weightstore.primitives import complete_mask
from weightctl.controller.weightstore.strangers import unread

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weightctl.controller.api import documents as doc
    from weightctl.controller.api import requests
    from weightctl.controller.api.planning import Planning
    from weightctl.controller.ports import Clock, Tier
    from weightctl.controller.weightstore.options import WeightStoreOptions
    from weightctl.controller.weightstore.placement import Standing
    from weightctl.controller.weightstore.preview import Preview

_SOURCE = "source"
_PARTIAL = MemberState.PARTIAL


async def look_to_import(planning: Planning, asked: requests.Import) -> doc.ImportPlan:
    """What importing would do; nothing is written, no lease is taken.

    Raises what the import would be refused with before it asks for a record.
    """
    record = held = None
    try:
        record = (await planning.records.subject(asked.identity)).record
    except WeightError as error:
        if error.code is not ErrorCode.NOT_FOUND:
            raise
    else:
        held = await planning.members(record)
    looking = Previewing(planning.tiers, planning.import_options, record, held)
    found = await looking.run(asked.identity, asked.source, planning.clock.wall_ms())
    return document(found, planning.tiers)


async def look_without_state(
    tiers: Sequence[Tier], options: WeightStoreOptions, clock: Clock, asked: requests.Import
) -> doc.ImportPlan:
    """As `look_to_import` where no state directory is yet, and no identity taken."""
    looking = Previewing(tiers, options, None, None)
    return document(await looking.run(asked.identity, asked.source, clock.wall_ms()), tiers)


def document(found: Preview, tiers: Sequence[Tier]) -> doc.ImportPlan:
    """The preview as a document; `tiers` are all that are configured."""
    record, reference = found.record, found.draft.manifest
    asked = {one.tier.profile.name: one for one in found.standings}
    return {
        "apiVersion": views.API_VERSION,
        "kind": "ImportPlan",
        **views.name(found.identity),
        "verdict": _verdict(found),
        "source": found.source,
        "availability": None if record is None else record.availability.name,
        "metadataGeneration": None if record is None else record.metadata_generation,
        "tensors": len(found.draft.layout.tensors),
        "payloadCount": len(found.draft.layout.payloads),
        "logicalBytes": found.draft.layout.logical_bytes,
        "manifestBytes": found.draft.manifest_bytes,
        "manifestKey": reference.manifest_key,
        "payloadGroupId": reference.group_id,
        "readBytes": found.read_bytes,
        "steps": [] if _stands(found) else list(_steps(found)),
        "tiers": [_tier(found, tier, asked.get(tier.profile.name)) for tier in tiers],
        "members": [
            views.member(found.members.member(index)) for index in range(len(found.members))
        ],
        "obstacles": [views.obstacle(one.key, one.tier, one.error) for one in found.obstacles],
        "remarks": [*_remarks(found), *dict.fromkeys(filter(None, map(remark_of, tiers)))],
    }


def _verdict(found: Preview) -> str:
    if found.obstacles:
        return "refused"
    if found.same:
        return "published"
    return "importable" if found.record is None else "resumable"


def _stands(found: Preview) -> bool:
    return found.same or bool(found.obstacles)


# --- steps ----------------------------------------------------------------------------------------


def _steps(found: Preview) -> Iterator[doc.StepFields]:
    """Payloads into all targets at the same time, then the manifest likewise, then the commit."""
    manifest = found.members.keys.index(found.draft.manifest.manifest_key)
    payloads = [index for index in range(len(found.members)) if index != manifest]
    for number, indexes in ((1, payloads), (2, [manifest])):
        for target in found.targets:
            name = target.tier.profile.name
            strange = [index for index in indexes if index in _unread(found, target)]
            if strange:
                yield _step(found, (number, "verify", "ContentUnknown"), (name, name), strange)
            missing = [index for index in indexes if not _is_there(target, index)]
            if missing:
                reason = "Missing" if number == 1 else "ManifestLast"
                yield _step(found, (number, "store", reason), (_SOURCE, name), missing)
            if target.tier.profile.capabilities.persistent:
                yield _step(found, (number, "verify", "ProofBeforeReady"), (name, name), indexes)
    yield _step(found, (3, "commit", "AllSeen"), ("", ""), [*payloads, manifest])


def _unread(found: Preview, target: Standing) -> frozenset[int]:
    """What is there of the very size, while nobody knows with which content."""
    if target.seen is None:
        return frozenset()
    keys = {member.key for member in unread(target.seen, found.members)}
    return frozenset(index for index, key in enumerate(found.members.keys) if key in keys)


def _is_there(target: Standing, index: int) -> bool:
    return target.seen is not None and bool(complete_mask(target.seen.states)[index])


def _step(
    found: Preview, what: tuple[int, str, str], way: tuple[str, str], indexes: list[int]
) -> doc.StepFields:
    return {
        "round": what[0],
        "step": what[1],
        "reason": what[2],
        "source": way[0],
        "target": way[1],
        "members": len(indexes),
        "sizeBytes": sum(found.members.sizes_bytes[index] for index in indexes),
    }


# --- tiers ----------------------------------------------------------------------------------------


def _tier(found: Preview, tier: Tier, asked: Standing | None) -> doc.ImportTier:
    known = asked is not None and asked.error is None
    return {
        "name": tier.profile.name,
        "tier": tier.profile.kind,
        "hot": tier.profile.hot,
        "chosen": asked in found.targets,
        "neededBytes": asked.needed_bytes if asked is not None and known else None,
        "freeBytes": asked.free_bytes if asked is not None and known else None,
        "why": _why(found, tier, asked),
    }


def _why(found: Preview, tier: Tier, asked: Standing | None) -> str:
    if asked is None:
        return "it shows replicas that others make, and can make none"
    if sets_itself_up(asked):
        return "nobody has used it yet: the import sets it up; its room is not known before"
    if not asked.takes:
        return asked.refusal.partition(": ")[2]
    kind = "hot" if tier.profile.hot else "persistent cold"
    if asked in found.targets:
        return f"the first {kind} tier with room"
    first = [one.tier.profile for one in found.targets if one.tier.profile.hot is tier.profile.hot]
    return f"not needed: {first[0].name} comes first" if first else "nothing is to be written"


def _remarks(found: Preview) -> list[str]:
    remarks = []
    if found.record is None and not found.read_bytes:
        remarks.append(
            "the source's content was not read: there is none yet to compare it with; an import"
            " hashes it first"
        )
    written = {
        one.tier.profile.name: count
        for one in found.targets
        if one.seen is not None and (count := one.seen.states.count(_PARTIAL))
    }
    for name, count in written.items():
        remarks.append(f"{count} objects are being written in {name}: an import waits for them")
    for one in () if _stands(found) else found.targets:
        strange = sorted(_unread(found, one))
        if strange:
            remarks.append(
                f"{len(strange)} objects of the very size are in {one.tier.profile.name} already"
                f" (the first is {found.members.keys[strange[0]]}), and what is in them is not"
                " known without reading them: the import reads them, and is refused with CONFLICT"
                " for other content"
            )
    if not _stands(found):
        remarks.append(
            "the revision is IMPORTING, and readable by nobody, until every object was seen in"
            " each of these tiers; a kill at any moment is mended by the same import again"
        )
    return remarks
