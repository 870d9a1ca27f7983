"""Begin, commit, abort, delete, finish of a delete, and what was observed.  Layer: core (pure).

Owns the mutations of a revision's record alone.  Each `prepare_*` checks the current state in the
contract's order, raises `WeightError`, and yields a mutation; it changes nothing.
`publish_metadata` compares and swaps.  `now_ms` is wall-clock milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weightctl.controller.core.group import GroupSnapshot, validate_group
from weightctl.controller.core.identity import COMPONENT_BYTES_MAX, derived_names, is_u64
from weightctl.controller.core.mutations import MetadataMutation
from weightctl.controller.core.records import (
    Availability,
    ManifestReference,
    MutationKind,
    Operation,
    Residency,
    RevisionMetadata,
)
from weightctl.controller.core.refusals import (
    busy,
    busy_lease,
    busy_operation,
    conflict,
    invalid,
    not_found,
    not_ready,
    outdated,
    stale,
    used_up,
)
from weightctl.controller.core.steps import (
    advance,
    check_advance,
    check_call,
    existing,
    retried,
    unchanged,
)
from weightctl.controller.core.validity import (
    PUBLISHED,
    is_kind,
    is_retry,
    record_problem,
    reference_problem,
    successor_problem,
)
from weightctl.controller.errors import require

if TYPE_CHECKING:
    from weightctl.controller.core.identity import Identity
    from weightctl.controller.core.state import WeightState

_BEGUN = frozenset({Availability.IMPORTING, Availability.READY})
_GOING = frozenset({Availability.DELETING, Availability.DELETED})


def prepare_begin(
    state: WeightState,
    *,
    identity: Identity,
    expected_payload_count: int,
    expected_logical_bytes: int,
    payload_group_id: str = "",
    now_ms: int,
) -> MetadataMutation:
    """BeginWeightImport; an empty group id is filled in."""
    draft = _check_begin(identity, expected_payload_count, expected_logical_bytes, payload_group_id)
    owner = state.groups.get(draft.payload_group_id)
    if owner is not None and owner != identity:
        raise conflict(f"group {draft.payload_group_id}", f"it belongs to revision {owner}")
    current = state.metadata.get(identity)
    if current is None:
        record = RevisionMetadata(
            identity=identity, manifest=draft, created_at_ms=now_ms, updated_at_ms=now_ms
        )
        return MetadataMutation(previous=None, next=record)
    if current.availability in _BEGUN and _same_declaration(current.manifest, draft):
        return unchanged(current)
    if current.availability in _GOING:
        raise used_up(current)
    raise conflict(
        f"revision {identity} exists",
        f"it is {current.availability.name} with {current.manifest.payload_count} payloads of"
        f" {current.manifest.logical_bytes} bytes",
        "import under a new weight generation; a revision is never replaced",
    )


def _check_begin(
    identity: Identity, payload_count: int, logical_bytes: int, group_id: str
) -> ManifestReference:
    problem = identity.problem()
    if problem is not None:
        raise invalid(f"begin of {identity}", problem)
    derived, key = derived_names(identity)
    if group_id not in ("", derived):
        raise invalid(
            f"begin of {identity}", "payload_group_id is not the one derived from the identity"
        )
    if not is_u64(payload_count) or payload_count == 0:
        raise invalid(
            f"begin of {identity}", "expected_payload_count must be an integer from 1 to 2^64-1"
        )
    if not is_u64(logical_bytes) or logical_bytes == 0:
        raise invalid(
            f"begin of {identity}", "expected_logical_bytes must be an integer from 1 to 2^64-1"
        )
    if len(key) > COMPONENT_BYTES_MAX:
        raise invalid(
            f"begin of {identity}",
            f"its manifest key is longer than {COMPONENT_BYTES_MAX} bytes",
            "shorten a part of the identity; a byte outside A-Z a-z 0-9 -_.~ counts three",
        )
    return ManifestReference(
        payload_group_id=derived, payload_count=payload_count, logical_bytes=logical_bytes
    )


def prepare_commit(
    state: WeightState,
    *,
    identity: Identity,
    expected_metadata_generation: int,
    manifest: ManifestReference,
    group: GroupSnapshot | None,
    now_ms: int,
) -> MetadataMutation:
    """CommitWeightImport; `group` is validated last, None checks the record only."""
    check_call("commit of", identity, expected_metadata_generation)
    problem = reference_problem(manifest) or _canonical_problem(identity, manifest)
    if problem is not None:
        raise invalid(f"commit of {identity}", problem)
    current = existing(state, identity)
    if current.availability == Availability.READY:
        return _commit_again(current, expected_metadata_generation, manifest)
    if current.metadata_generation != expected_metadata_generation:
        raise stale(current, expected_metadata_generation)
    if current.availability != Availability.IMPORTING:
        raise conflict(
            f"commit of {identity}", f"the revision is {current.availability.name}, not IMPORTING"
        )
    if not _same_declaration(current.manifest, manifest):
        raise conflict(
            f"commit of {identity}",
            "payload count or logical bytes differ from what Begin declared",
        )
    check_advance(current)
    if group is not None:
        validate_group(identity, manifest, group)
    record = advance(
        current,
        now_ms,
        manifest=manifest,
        availability=Availability.READY,
        residency=Residency.HOT,
    )
    return MetadataMutation(previous=current, next=record)


def _commit_again(
    current: RevisionMetadata, expected: int, manifest: ManifestReference
) -> MetadataMutation:
    if current.manifest != manifest:
        raise conflict(
            f"commit of {current.identity}",
            "it is READY with another manifest reference, which never changes",
            "import the other content under a new weight generation",
        )
    if not is_retry(current.metadata_generation, expected):
        raise stale(current, expected)
    return unchanged(current)


def prepare_abort(
    state: WeightState, *, identity: Identity, expected_metadata_generation: int, now_ms: int
) -> MetadataMutation:
    """AbortWeightImport; removes nothing, cleaning up is the delete path's work."""
    check_call("abort of", identity, expected_metadata_generation)
    current = existing(state, identity)
    if current.availability == Availability.DELETING:
        return retried(current, expected_metadata_generation)
    if current.metadata_generation != expected_metadata_generation:
        raise stale(current, expected_metadata_generation)
    if current.availability != Availability.IMPORTING:
        raise conflict(
            f"abort of {identity}", f"the revision is {current.availability.name}, not IMPORTING"
        )
    check_advance(current)
    record = advance(current, now_ms, availability=Availability.DELETING)
    return MetadataMutation(previous=current, next=record)


def prepare_delete(
    state: WeightState, *, identity: Identity, expected_metadata_generation: int, now_ms: int
) -> MetadataMutation:
    """DeleteWeightRevision; carries the expired leases that it erases."""
    check_call("delete of", identity, expected_metadata_generation)
    current = existing(state, identity)
    if current.availability in _GOING:
        return retried(current, expected_metadata_generation)
    if current.metadata_generation != expected_metadata_generation:
        raise stale(current, expected_metadata_generation)
    live = state.active_leases(identity, now_ms)
    if live:
        raise busy_lease(identity, live)
    if current.operation != Operation.NONE:
        raise busy_operation(current)
    if current.availability not in PUBLISHED:
        raise not_ready(identity, "its import is not committed", "abort the import instead")
    check_advance(current)
    return MetadataMutation(
        previous=current,
        next=advance(current, now_ms, availability=Availability.DELETING),
        retired=tuple(state.leases_of(identity)),
    )


def prepare_finish_delete(
    state: WeightState, *, identity: Identity, expected_metadata_generation: int, now_ms: int
) -> MetadataMutation:
    """FinishDelete; the caller has proven that every member is absent."""
    check_call("finishing the delete of", identity, expected_metadata_generation)
    current = existing(state, identity)
    if current.availability == Availability.DELETED:
        return retried(current, expected_metadata_generation)
    if current.metadata_generation != expected_metadata_generation:
        raise stale(current, expected_metadata_generation)
    if current.availability != Availability.DELETING:
        raise conflict(
            f"finishing the delete of {identity}",
            f"the revision is {current.availability.name}, not DELETING",
        )
    check_advance(current)
    record = advance(current, now_ms, availability=Availability.DELETED, residency=Residency.ABSENT)
    return MetadataMutation(previous=current, next=record)


def prepare_observation(
    state: WeightState,
    *,
    identity: Identity,
    expected_metadata_generation: int,
    availability: Availability,
    residency: Residency,
    now_ms: int,
) -> MetadataMutation:
    """Publication of what a reconcile pass saw of an idle published revision."""
    check_call("observation of", identity, expected_metadata_generation)
    if availability == Availability.READY and residency == Residency.ABSENT:
        raise invalid(f"observation of {identity}", "a READY revision is not ABSENT")
    current = existing(state, identity)
    if current.metadata_generation != expected_metadata_generation:
        raise stale(current, expected_metadata_generation)
    if current.operation != Operation.NONE:
        raise busy_operation(current)
    if current.availability not in PUBLISHED:
        raise busy(identity, f"it is {current.availability.name}", "wait until it is published")
    if not is_kind(Availability, availability) or availability not in PUBLISHED:
        raise invalid(f"observation of {identity}", "availability must be READY or DEGRADED")
    if not is_kind(Residency, residency) or residency == Residency.UNKNOWN:
        raise invalid(f"observation of {identity}", "residency must be known")
    if current.availability == availability and current.residency == residency:
        return unchanged(current)
    check_advance(current)
    record = advance(current, now_ms, availability=availability, residency=residency)
    return MetadataMutation(previous=current, next=record)


# --- publish --------------------------------------------------------------------------------------


def check_metadata(state: WeightState, mutation: MetadataMutation) -> Identity:
    """Every check of Publish, without applying anything; gives whom it concerns."""
    previous, record = mutation.previous, mutation.next
    known = previous or record
    if known is None:
        raise not_found("a mutation without a record")
    identity = known.identity
    current = state.metadata.get(identity)
    if current is not previous and current != previous:
        raise outdated(f"revision {identity}")
    if mutation.no_op:
        return identity
    if mutation.kind == MutationKind.ERASE or record is None:
        _check_erase(state, identity)
        return identity
    problem = record_problem(record) if previous is None else successor_problem(record, previous)
    if problem is not None:
        raise invalid(f"revision {identity}", problem, "none; a caller built an invalid record")
    if record.availability == Availability.DELETING and current is not None:
        _check_leases_retired(state, mutation, current)
    if state.groups.get(record.manifest.payload_group_id, identity) != identity:
        raise conflict(f"revision {identity}", "its payload group belongs to another revision")
    return identity


def publish_metadata(state: WeightState, mutation: MetadataMutation) -> RevisionMetadata | None:
    """Check and apply a metadata mutation; gives the record that holds now, None when erased."""
    check_metadata(state, mutation)
    return apply_metadata(state, mutation)


def apply_metadata(state: WeightState, mutation: MetadataMutation) -> RevisionMetadata | None:
    """The second half of Publish, for a caller who has checked and kept the revision since."""
    previous = mutation.previous
    if mutation.no_op:
        return previous
    for lease in mutation.retired:
        state.erase_lease(lease.lease_id)
    if mutation.kind == MutationKind.ERASE or mutation.next is None:
        if previous is None:
            raise not_found("an erase without a previous record")
        state.erase_metadata(previous.identity)
        return None
    current = state.metadata.get(mutation.next.identity)
    require(current is previous or current == previous, mutation.next.identity, "not what was seen")
    state.put_metadata(mutation.next)
    return mutation.next


def _check_erase(state: WeightState, identity: Identity) -> None:
    """What replay refuses is never published: no lease or operation may lose its revision."""
    if identity not in state.metadata:
        raise not_found(f"revision {identity}")
    if state.leases_of(identity):
        raise busy(identity, "it has leases", "erase them first")
    if any(operation.identity == identity for operation in state.operations.values()):
        raise busy(identity, "it has operation records", "none; they are kept for ever")


def _check_leases_retired(
    state: WeightState, mutation: MetadataMutation, current: RevisionMetadata
) -> None:
    """No lease may survive under DELETING, live or not.

    The contract judges leases at the record's time, which a clock that went back can put past a
    lease taken since; such a lease is refused here too, because no snapshot may hold it.
    """
    if current.availability == Availability.DELETING:
        return
    for lease in state.leases_of(current.identity):
        if lease not in mutation.retired:
            raise busy_lease(current.identity, [lease])


def _same_declaration(declared: ManifestReference, manifest: ManifestReference) -> bool:
    return (
        declared.payload_group_id == manifest.payload_group_id
        and declared.payload_count == manifest.payload_count
        and declared.logical_bytes == manifest.logical_bytes
    )


def _canonical_problem(identity: Identity, manifest: ManifestReference) -> str | None:
    group_id, key = derived_names(identity)
    if manifest.payload_group_id != group_id:
        return "payload_group_id is not the one derived from the identity"
    if manifest.manifest_key != key:
        return "manifest_key is not the one derived from the identity"
    return None
