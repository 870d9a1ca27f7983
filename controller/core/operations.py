"""Progress, finish and publication of operations.  Layer: core (pure).

An operation and its revision's record change together or not at all, the operation's fence follows
the record's generation, and completion comes from observation only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weightctl.controller.core.identity import U64_MAX, is_u64, is_valid_component
from weightctl.controller.core.mutations import MetadataMutation, OperationMutation
from weightctl.controller.core.records import (
    COMPLETED,
    Availability,
    Operation,
    Residency,
    ResidencyOperation,
    RevisionMetadata,
)
from weightctl.controller.core.refusals import (
    busy_lease,
    conflict,
    exhausted,
    invalid,
    not_found,
    not_ready,
    outdated,
)
from weightctl.controller.core.steps import (
    advance,
    check_advance,
    existing,
    unchanged,
)
from weightctl.controller.core.validity import (
    PUBLISHED,
    TARGETS,
    endings,
    is_kind,
    operation_problem,
    placement_problem,
    successor_problem,
)
from weightctl.controller.errors import require

if TYPE_CHECKING:
    from weightctl.controller.core.state import WeightState


def prepare_progress(
    state: WeightState,
    *,
    operation_id: int,
    processed_members: int,
    total_members: int,
    cursor: str,
    availability: Availability,
    residency: Residency,
    now_ms: int,
) -> OperationMutation:
    """UpdateOperationProgress, with the observed availability and residency.

    Stored progress is a high-water mark: processed and total never go down, the cursor moves only
    when processed does.
    """
    what = f"progress of operation {operation_id}"
    _check_operation_id(what, operation_id)
    if not is_u64(total_members) or total_members == 0:
        raise invalid(what, "total_members must be an integer from 1 to 2^64-1")
    if not is_u64(processed_members) or processed_members > total_members:
        raise invalid(what, "processed_members must be an integer from 0 to total_members")
    if cursor and not is_valid_component(cursor):
        raise invalid(what, "cursor must be empty or 1 to 1024 bytes without control bytes")
    if not is_kind(Availability, availability) or availability not in PUBLISHED:
        raise invalid(what, "availability must be READY or DEGRADED")
    operation, record = _both(state, operation_id)
    if not _is_running(operation, record):
        raise conflict(what, "the revision no longer runs this operation")
    problem = placement_problem(availability, residency)
    if problem is not None:
        raise invalid(what, problem)
    moved = availability != record.availability or residency != record.residency
    marks = _high_water(operation, processed_members, total_members, cursor)
    if not moved and marks == _marks(operation):
        return unchanged_operation(record, operation)
    if moved:
        check_advance(record)
        time_ms = max(record.updated_at_ms, operation.updated_at_ms, now_ms)
        following = advance(record, time_ms, availability=availability, residency=residency)
    else:
        time_ms = max(operation.updated_at_ms, now_ms)
        following = record
    return OperationMutation(
        metadata=MetadataMutation(previous=record, next=following),
        previous=operation,
        next=_progressed(operation, marks, following.metadata_generation, time_ms),
    )


Marks = tuple[int, int, str]


def _marks(operation: ResidencyOperation) -> Marks:
    return operation.processed_members, operation.total_members, operation.cursor


def _high_water(operation: ResidencyOperation, processed: int, total: int, cursor: str) -> Marks:
    total = max(operation.total_members, total)
    if processed <= operation.processed_members:
        return operation.processed_members, total, operation.cursor
    return min(processed, total), total, cursor


def _progressed(
    operation: ResidencyOperation, marks: Marks, fence: int, time_ms: int, message: str = ""
) -> ResidencyOperation:
    processed, total, cursor = marks
    return ResidencyOperation(
        operation_id=operation.operation_id,
        identity=operation.identity,
        operation=operation.operation,
        target_residency=operation.target_residency,
        fenced_metadata_generation=fence,
        started_at_ms=operation.started_at_ms,
        updated_at_ms=time_ms,
        processed_members=processed,
        total_members=total,
        cursor=cursor,
        message=message,
    )


def prepare_finish(
    state: WeightState, *, operation_id: int, observed_residency: Residency, now_ms: int
) -> OperationMutation:
    """FinishOperation; the caller has seen the whole group at the target."""
    what = f"finish of operation {operation_id}"
    _check_operation_id(what, operation_id)
    known = state.operations.get(operation_id)
    repaired = known is not None and known.operation == Operation.REPAIRING
    if observed_residency not in TARGETS and not (
        repaired and observed_residency == Residency.MIXED
    ):
        raise invalid(what, "observed_residency must be HOT or COLD, or MIXED after a repair")
    operation, record = _both(state, operation_id)
    if not _is_running(operation, record):
        if record.operation == Operation.NONE and record.residency == observed_residency:
            return unchanged_operation(record, operation)
        raise conflict(what, "the revision no longer runs this operation")
    if observed_residency not in endings(operation.operation, operation.target_residency):
        raise not_ready(
            record.identity,
            f"operation {operation_id} leads to {operation.target_residency.name},"
            f" observed is {observed_residency.name}",
            "let the operation go on and observe again",
        )
    check_advance(record)
    time_ms = max(record.updated_at_ms, operation.updated_at_ms, now_ms)
    following = advance(
        record,
        time_ms,
        availability=Availability.READY,
        residency=observed_residency,
        operation=Operation.NONE,
        operation_id=0,
    )
    total = operation.total_members
    completed = _progressed(
        operation, (total, total, ""), operation.fenced_metadata_generation, time_ms, COMPLETED
    )
    return OperationMutation(
        metadata=MetadataMutation(previous=record, next=following),
        previous=operation,
        next=completed,
    )


# --- publish --------------------------------------------------------------------------------------


def check_operation(state: WeightState, mutation: OperationMutation) -> None:
    """Every check of Publish, without applying anything."""
    before, record = mutation.metadata.previous, mutation.metadata.next
    held = None if before is None else state.metadata.get(before.identity)
    if before is None or (held is not before and held != before):
        raise outdated("the revision of an operation")
    operation = mutation.next
    if mutation.no_op:
        if operation is None:
            raise not_found("a no-op on an operation without a record")
        return
    if record is None or operation is None:
        raise invalid("an operation", "its records are missing", "none; a caller built it wrong")
    what = f"operation {operation.operation_id}"
    problem = successor_problem(record, before) or operation_problem(operation, record)
    if problem is not None:
        raise invalid(what, problem, "none; a caller built an invalid record")
    current = state.operations.get(operation.operation_id)
    if mutation.previous is None:
        _check_no_lease(state, operation)
        if current is not None:
            raise conflict(what, "its id is already taken")
        if operation.operation_id >= U64_MAX:
            raise exhausted(what, "the last id is never given out")
    elif current != mutation.previous:
        raise outdated(what)


def publish_operation(state: WeightState, mutation: OperationMutation) -> ResidencyOperation:
    """Check and apply an operation mutation, both records at once; gives the operation."""
    check_operation(state, mutation)
    return apply_operation(state, mutation)


def apply_operation(state: WeightState, mutation: OperationMutation) -> ResidencyOperation:
    """The second half of Publish, for a caller who has checked and kept the revision since."""
    record, operation = mutation.metadata.next, mutation.next
    if record is None or operation is None:
        raise not_found("an operation without its records")
    if mutation.no_op:
        return operation
    require(record.identity == operation.identity, operation.identity, "another revision's record")
    require(
        record.metadata_generation >= operation.fenced_metadata_generation,
        operation.identity,
        "the operation's fence is ahead",
    )
    state.put_metadata(record)
    state.put_operation(operation)
    return operation


def _check_no_lease(state: WeightState, operation: ResidencyOperation) -> None:
    if operation.operation == Operation.REPAIRING:
        return
    live = state.active_leases(operation.identity, operation.started_at_ms)
    if live:
        raise busy_lease(operation.identity, live)


# --- shared ---------------------------------------------------------------------------------------


def _check_operation_id(what: str, operation_id: int) -> None:
    if not is_u64(operation_id) or operation_id == 0:
        raise invalid(what, "operation_id must be an integer from 1 to 2^64-1")


def _both(state: WeightState, operation_id: int) -> tuple[ResidencyOperation, RevisionMetadata]:
    operation = state.operations.get(operation_id)
    if operation is None:
        raise not_found(f"operation {operation_id}")
    return operation, existing(state, operation.identity)


def _is_running(operation: ResidencyOperation, record: RevisionMetadata) -> bool:
    return (
        record.operation == operation.operation
        and record.operation_id == operation.operation_id
        and operation.message != COMPLETED
    )


def unchanged_operation(
    record: RevisionMetadata, operation: ResidencyOperation
) -> OperationMutation:
    """The no-op on an operation and its revision."""
    return OperationMutation(
        metadata=unchanged(record), previous=operation, next=operation, no_op=True
    )
