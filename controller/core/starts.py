"""Start of residency operations and of repairs.  Layer: core (pure).

A start consumes an operation id; its fence is the generation that it makes.  What is checked before
a repair starts, and in which order, stands in STATE_MACHINE.md.

A repair towards COLD asks for the policy's cold copies of every member, one towards HOT for a
memory replica as well.  As a repair removes nothing, one towards COLD ends at whatever residency is
observed then, HOT, COLD or MIXED; the record takes it over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weightctl.controller.core.identity import U64_MAX, is_u64
from weightctl.controller.core.mutations import MetadataMutation, OperationMutation
from weightctl.controller.core.operations import unchanged_operation
from weightctl.controller.core.records import (
    Availability,
    Operation,
    Residency,
    ResidencyOperation,
    RevisionMetadata,
)
from weightctl.controller.core.refusals import (
    busy_lease,
    busy_operation,
    exhausted,
    invalid,
    not_ready,
    stale,
    unavailable,
)
from weightctl.controller.core.steps import (
    advance,
    check_advance,
    check_call,
    existing,
)
from weightctl.controller.core.validity import (
    PUBLISHED,
    TARGETS,
    is_kind,
    is_retry,
)

if TYPE_CHECKING:
    from weightctl.controller.core.identity import Identity
    from weightctl.controller.core.state import WeightState

_KIND_OF = {Residency.COLD: Operation.EVICTING, Residency.HOT: Operation.REHYDRATING}


def prepare_start(
    state: WeightState,
    *,
    identity: Identity,
    expected_metadata_generation: int,
    target_residency: Residency,
    member_count: int,
    now_ms: int,
) -> OperationMutation:
    """StartWeightResidencyOperation; `member_count` is the group's, observed now."""
    _check_start(identity, expected_metadata_generation, target_residency)
    kind = _KIND_OF[target_residency]
    record = existing(state, identity)
    if record.operation != Operation.NONE:
        return _start_again(state, record, kind, target_residency, expected_metadata_generation)
    if record.metadata_generation != expected_metadata_generation:
        raise stale(record, expected_metadata_generation)
    if record.availability not in PUBLISHED:
        raise unavailable(record)
    live = state.active_leases(identity, now_ms)
    if live:
        raise busy_lease(identity, live)
    return _started(state, record, kind, target_residency, member_count, now_ms=now_ms)


def prepare_repair(
    state: WeightState,
    *,
    identity: Identity,
    expected_metadata_generation: int,
    target_residency: Residency,
    member_count: int,
    copies_short: bool,
    now_ms: int,
) -> OperationMutation:
    """Start of a repair by the table above; `copies_short` is what the caller observed."""
    _check_start(identity, expected_metadata_generation, target_residency)
    kind = Operation.REPAIRING
    record = existing(state, identity)
    if record.operation != Operation.NONE:
        return _start_again(state, record, kind, target_residency, expected_metadata_generation)
    if record.metadata_generation != expected_metadata_generation:
        raise stale(record, expected_metadata_generation)
    if record.availability not in PUBLISHED:
        raise unavailable(record)
    short = record.availability == Availability.READY and copies_short
    if record.availability != Availability.DEGRADED and not short:
        raise not_ready(
            identity,
            f"it is {record.availability.name} and nothing of it is missing",
            "none; a repair starts on a DEGRADED revision or one with too few copies",
        )
    return _started(state, record, kind, target_residency, member_count, now_ms=now_ms)


def _check_start(identity: Identity, expected: int, target: Residency) -> None:
    check_call("operation on", identity, expected)
    if not is_kind(Residency, target) or target not in TARGETS:
        raise invalid(f"operation on {identity}", "target_residency must be HOT or COLD")


def _start_again(
    state: WeightState,
    record: RevisionMetadata,
    kind: Operation,
    target: Residency,
    expected: int,
) -> OperationMutation:
    running = state.current_operation(record)
    if running is None or running.operation != kind or running.target_residency != target:
        raise busy_operation(record)
    if not is_retry(record.metadata_generation, expected):
        raise stale(record, expected)
    return unchanged_operation(record, running)


def _started(
    state: WeightState,
    record: RevisionMetadata,
    kind: Operation,
    target: Residency,
    member_count: int,
    *,
    now_ms: int,
) -> OperationMutation:
    check_advance(record)
    if not 0 < state.next_operation_id < U64_MAX:
        raise exhausted(f"operation on {record.identity}", "every operation id has been given out")
    if not is_u64(member_count) or member_count != record.manifest.payload_count + 1:
        raise not_ready(
            record.identity,
            f"its group has {member_count} members, expected"
            f" {record.manifest.payload_count} payloads and the manifest",
            "restore the group's registered members first",
        )
    operation_id = state.take_operation_id()
    following = advance(record, now_ms, operation=kind, operation_id=operation_id)
    operation = ResidencyOperation(
        operation_id=operation_id,
        identity=record.identity,
        operation=kind,
        target_residency=target,
        fenced_metadata_generation=following.metadata_generation,
        started_at_ms=following.updated_at_ms,
        updated_at_ms=following.updated_at_ms,
        total_members=member_count,
    )
    return OperationMutation(
        metadata=MetadataMutation(previous=record, next=following), previous=None, next=operation
    )
