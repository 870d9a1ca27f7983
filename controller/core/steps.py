"""The steps that the mutations of a revision's record share.  Layer: core (pure).

Owns the checks that stand first in every mutation, the retry rule and the one way to make a
record's next generation: generation + 1, time never back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weightctl.controller.core.mutations import MetadataMutation
from weightctl.controller.core.records import (
    Availability,
    ManifestReference,
    Operation,
    Residency,
    RevisionMetadata,
)
from weightctl.controller.core.refusals import exhausted, invalid, not_found, stale
from weightctl.controller.core.validity import can_advance, is_expected_generation, is_retry
from weightctl.controller.errors import require

if TYPE_CHECKING:
    from weightctl.controller.core.identity import Identity
    from weightctl.controller.core.state import WeightState


def advance(
    record: RevisionMetadata,
    now_ms: int,
    *,
    manifest: ManifestReference | None = None,
    availability: Availability | None = None,
    residency: Residency | None = None,
    operation: Operation | None = None,
    operation_id: int | None = None,
) -> RevisionMetadata:
    """The next generation of a record; its time never goes back, None keeps a field."""
    require(can_advance(record.metadata_generation), record.identity, "generation exhausted")
    return RevisionMetadata(
        identity=record.identity,
        manifest=record.manifest if manifest is None else manifest,
        availability=record.availability if availability is None else availability,
        residency=record.residency if residency is None else residency,
        operation=record.operation if operation is None else operation,
        operation_id=record.operation_id if operation_id is None else operation_id,
        metadata_generation=record.metadata_generation + 1,
        created_at_ms=record.created_at_ms,
        updated_at_ms=max(record.updated_at_ms, now_ms),
    )


def check_call(what: str, identity: Identity, expected: int) -> None:
    """INVALID_ARGUMENT for an invalid identity or an expected generation that cannot be."""
    problem = identity.problem()
    if problem is not None:
        raise invalid(f"{what} {identity}", problem)
    if not is_expected_generation(expected):
        raise invalid(
            f"{what} {identity}", "expected_metadata_generation must be an integer from 1 to 2^64-1"
        )


def existing(state: WeightState, identity: Identity) -> RevisionMetadata:
    """The record, or NOT_FOUND."""
    record = state.metadata.get(identity)
    if record is None:
        raise not_found(f"revision {identity}")
    return record


def retried(current: RevisionMetadata, expected: int) -> MetadataMutation:
    """A no-op for the author of the current record, STALE_GENERATION for anybody else."""
    if not is_retry(current.metadata_generation, expected):
        raise stale(current, expected)
    return unchanged(current)


def unchanged(current: RevisionMetadata) -> MetadataMutation:
    """The no-op on a record."""
    return MetadataMutation(previous=current, next=current, no_op=True)


def check_advance(current: RevisionMetadata) -> None:
    """GENERATION_EXHAUSTED when the record cannot change any more."""
    if not can_advance(current.metadata_generation):
        raise exhausted(
            f"revision {current.identity}",
            f"metadata_generation {current.metadata_generation} is the last one",
        )
