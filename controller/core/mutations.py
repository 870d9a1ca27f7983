"""Mutations as values: what Prepare yields and Publish applies.  Layer: core (pure).

A mutation names the whole record it saw (`previous`) and the whole record it wants (`next`);
Publish compares and swaps.  A no-op carries the current record, is neither logged nor gated.  The
store writes `oplog.emitted(mutation)` between the two: nothing is visible before it is durable.
"""

from __future__ import annotations

from dataclasses import dataclass

from weightctl.controller.core.records import (
    MutationKind,
    ResidencyOperation,
    RevisionLease,
    RevisionMetadata,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataMutation:
    """Change of one revision's record.

    `retired` are the expired leases that a delete erases in the same durable transaction.
    """

    previous: RevisionMetadata | None
    next: RevisionMetadata | None
    kind: MutationKind = MutationKind.UPSERT
    no_op: bool = False
    retired: tuple[RevisionLease, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseMutation:
    """Change of one lease; a no-op release carries only the id."""

    lease_id: int
    previous: RevisionLease | None
    next: RevisionLease | None
    kind: MutationKind = MutationKind.UPSERT
    no_op: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationMutation:
    """Change of one operation record together with its revision's record, published as one.

    Progress that leaves the revision as it is carries `metadata.next == metadata.previous`.
    """

    metadata: MetadataMutation
    previous: ResidencyOperation | None
    next: ResidencyOperation | None
    no_op: bool = False


Mutation = MetadataMutation | LeaseMutation | OperationMutation
