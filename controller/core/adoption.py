"""Adoption: a revision whose objects exist already becomes READY at once.  Layer: core (pure).

An import is visible before its objects are, and one that is given up is cleaned away with them.
What is adopted was there before and must outlive every failure of adopting it, so Begin and Commit
are prepared as a pair that is published in one transaction or not at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weightctl.controller.core.group import validate_group
from weightctl.controller.core.lifecycle import apply_metadata, check_metadata, prepare_begin
from weightctl.controller.core.mutations import MetadataMutation
from weightctl.controller.core.records import Availability
from weightctl.controller.core.refusals import conflict, invalid
from weightctl.controller.core.steps import advance
from weightctl.controller.core.validity import reference_problem, successor_problem

if TYPE_CHECKING:
    from weightctl.controller.core.group import GroupSnapshot
    from weightctl.controller.core.identity import Identity
    from weightctl.controller.core.records import ManifestReference, Residency, RevisionMetadata
    from weightctl.controller.core.state import WeightState

Adoption = tuple[MetadataMutation, MetadataMutation]
"""Begin and Commit, to be published together and in this order."""


def prepare_adoption(
    state: WeightState,
    *,
    identity: Identity,
    manifest: ManifestReference,
    group: GroupSnapshot,
    residency: Residency,
    now_ms: int,
) -> Adoption:
    """Both mutations; the residency is the one that was observed, not the HOT of an import.

    Raises INVALID_ARGUMENT, CONFLICT for an identity that is known in any state, and what the
    validation of the group raises.
    """
    begin = prepare_begin(
        state,
        identity=identity,
        expected_payload_count=manifest.payload_count,
        expected_logical_bytes=manifest.logical_bytes,
        payload_group_id=manifest.payload_group_id,
        now_ms=now_ms,
    )
    draft = begin.next
    if begin.no_op or draft is None:
        raise conflict(
            f"revision {identity} exists",
            "only objects that no revision manages can be adopted",
            "look at it with `weightctl get`; an import that was not finished is resumed by the"
            " same import",
        )
    check_metadata(state, begin)
    problem = reference_problem(manifest)
    if problem is not None:
        raise invalid(f"adoption of {identity}", problem)
    validate_group(identity, manifest, group)
    record = advance(
        draft, now_ms, manifest=manifest, availability=Availability.READY, residency=residency
    )
    problem = successor_problem(record, draft)
    if problem is not None:
        raise invalid(f"adoption of {identity}", problem)
    return begin, MetadataMutation(previous=draft, next=record)


def apply_adoption(state: WeightState, adoption: Adoption) -> RevisionMetadata | None:
    """Publish both; for a caller who has kept the revision since it was prepared."""
    begin, commit = adoption
    apply_metadata(state, begin)
    return apply_metadata(state, commit)
