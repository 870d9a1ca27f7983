"""Answers from the state directory alone.  Layer: api.

Everything here is synchronous, takes no lock and writes nothing, so it works beside a running
`weightctl run` and after its death alike.  `now_ms` is wall-clock milliseconds.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from weightctl.controller.api import views
from weightctl.controller.core import oplog as entries
from weightctl.controller.core import queries
from weightctl.controller.core.identity import (
    TOKEN_SEPARATOR,
    parse_identity,
    percent_encode,
    text_bytes,
)
from weightctl.controller.core.records import LIST_LIMIT_MAX
from weightctl.controller.core.refusals import invalid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weightctl.controller.api import documents as doc
    from weightctl.controller.core.damage import DamagedReplica
    from weightctl.controller.core.identity import Identity
    from weightctl.controller.core.records import RevisionLease, RevisionView
    from weightctl.controller.core.state import WeightState
    from weightctl.controller.store.evidence import EvidenceRow
    from weightctl.controller.store.oplog import LogEntry, LogReport
    from weightctl.controller.store.reading import StoredState


def get(state: WeightState, identity: Identity, now_ms: int) -> doc.Revision:
    """One revision.  Raises NOT_FOUND."""
    return _revision(state, queries.get_revision(state, identity=identity, now_ms=now_ms))


def list_one(
    state: WeightState, resource: str, *, page_token: str, limit: int, now_ms: int
) -> doc.RevisionList:
    """One page of one resource, `[tenant:]namespace/resource`.  Raises INVALID_ARGUMENT.

    The contract's page token holds a control character; here it is percent-encoded, and one that
    is not is taken as it stands.
    """
    if resource.count("/") != 1:
        why = "it does not have the form [tenant:]namespace/resource"
        raise invalid(f"resource {resource!r}", why)
    # The identity grammar with a revision that is not asked for: one parser, one set of messages.
    named = parse_identity(f"{resource}/any@1")
    page = queries.list_revisions(
        state,
        namespace=named.namespace,
        resource_id=named.resource_id,
        tenant_id=named.tenant_id,
        page_token=_plain_token(page_token),
        limit=limit,
        now_ms=now_ms,
    )
    return _list(state, page.revisions, percent_encode(page.next_page_token))


def _plain_token(token: str) -> str:
    if TOKEN_SEPARATOR in token:
        return token
    return unquote_to_bytes(text_bytes(token)).decode("utf-8", "surrogateescape")


def list_all(state: WeightState, *, page_token: str, limit: int, now_ms: int) -> doc.RevisionList:
    """One page of everything, identity order; the token is the last identity.

    This listing across tenants is the operator's own; callers of the store must name a resource.
    """
    if not 1 <= limit <= LIST_LIMIT_MAX:
        raise invalid("list of all revisions", f"limit must be from 1 to {LIST_LIMIT_MAX}")
    known = sorted(state.metadata, key=_order)
    if page_token:
        after = _order(parse_identity(page_token))
        known = [identity for identity in known if _order(identity) > after]
    shown = [state.view(state.metadata[identity], now_ms) for identity in known[:limit]]
    more = len(known) > limit
    return _list(state, shown, str(known[limit - 1]) if more else "")


def describe(
    stored: StoredState, identity: Identity, *, limit: int, now_ms: int
) -> doc.RevisionDetails:
    """All that is held about one revision; at most `limit` members.  Raises NOT_FOUND."""
    state = stored.state
    revision = get(state, identity, now_ms)
    members = stored.members(revision["manifest"]["payloadGroupId"], identity.tenant_id)
    operations = [item for item in state.operations.values() if item.identity == identity]
    return {
        "apiVersion": views.API_VERSION,
        "kind": "RevisionDetails",
        "revision": revision,
        "members": [
            views.member(members.member(index)) for index in range(min(limit, len(members)))
        ],
        "membersTotal": len(members),
        "leases": [_lease(state, lease, now_ms) for lease in state.leases_of(identity)],
        "operations": [views.operation_fields(item) for item in operations],
        "evidence": [_evidence(row) for row in _last_tries(stored.evidence(identity))],
        "damage": [_damage(row) for row in stored.damage(revision["manifest"]["payloadGroupId"])],
    }


def leases(state: WeightState, identity: Identity | None, now_ms: int) -> doc.LeaseList:
    """Leases of one revision, or all."""
    if identity is not None:
        queries.get_revision(state, identity=identity, now_ms=now_ms)
    found = state.leases.values() if identity is None else state.leases_of(identity)
    ordered = sorted(found, key=lambda lease: lease.lease_id)
    return {
        "apiVersion": views.API_VERSION,
        "kind": "LeaseList",
        "items": [_lease(state, lease, now_ms) for lease in ordered],
    }


def oplog_page(log: Iterable[LogEntry], limit: int) -> doc.OplogPage:
    """The first `limit` entries of `log`."""
    return {
        "apiVersion": views.API_VERSION,
        "kind": "OplogPage",
        "items": [_entry(entry) for entry in islice(log, limit)],
    }


def oplog_report(report: LogReport) -> doc.OplogReport:
    """What the verification of the whole log found."""
    return {
        "apiVersion": views.API_VERSION,
        "kind": "OplogReport",
        "ok": report.ok,
        "problem": report.problem,
        "firstSequence": report.first_sequence,
        "lastSequence": report.last_sequence,
        "entries": report.entries,
        "snapshotRows": report.snapshot_rows,
    }


def _list(state: WeightState, shown: Iterable[RevisionView], token: str) -> doc.RevisionList:
    return {
        "apiVersion": views.API_VERSION,
        "kind": "RevisionList",
        "items": [_revision(state, view) for view in shown],
        "nextPageToken": token,
    }


def _order(identity: Identity) -> tuple[bytes, bytes, bytes, bytes, int]:
    return identity.sort_key()


def _revision(state: WeightState, view: RevisionView) -> doc.Revision:
    return views.revision(view, state.current_operation(view.metadata))


def _lease(state: WeightState, lease: RevisionLease, now_ms: int) -> doc.Lease:
    return views.lease(lease, live=lease in state.active_leases(lease.identity, now_ms))


def _last_tries(rows: Iterable[EvidenceRow]) -> Iterable[EvidenceRow]:
    """One row for each drop: evidence is written down before each try of it."""
    tries = {
        (row.operation_id, row.member_key, row.dropped_tier, row.dropped_instance): row
        for row in rows
    }
    return tries.values()


def _evidence(row: EvidenceRow) -> doc.EvidenceFields:
    return {
        "memberKey": row.member_key,
        "droppedTier": row.dropped_tier,
        "droppedInstance": row.dropped_instance,
        "evidenceTier": row.evidence_tier,
        "evidenceInstance": row.evidence_instance,
        "evidenceSha256": row.evidence_sha256.hex(),
        "evidenceEpoch": row.evidence_epoch,
        "verifiedAtMs": row.verified_at_ms,
        "operationId": row.operation_id,
        "atMs": row.at_ms,
    }


def _damage(row: DamagedReplica) -> doc.DamageFields:
    return {
        "memberKey": row.member_key,
        "tier": row.tier,
        "instance": row.instance_id,
        "epoch": row.epoch,
        "foundSha256": row.found_sha256.hex(),
        "atMs": row.at_ms,
    }


# --- the op-log in words --------------------------------------------------------------------------


def _entry(entry: LogEntry) -> doc.LogEntryFields:
    return {
        "sequence": entry.sequence,
        "timeMs": entry.time_ms,
        "type": _type_name(entry.entry_type),
        "tenantId": entry.tenant_id,
        "key": entry.key,
        "summary": "" if entry.value is None else _summary(entry.value),
        "problem": entry.problem,
    }


def _type_name(number: int) -> str:
    known = number in entries.EntryType.__members__.values()
    return entries.EntryType(number).name if known else str(number)


def _summary(payload: entries.Payload) -> str:
    match payload:
        case entries.MetadataUpsert(metadata=record, operation=operation):
            text = (
                f"{record.identity} generation {record.metadata_generation}:"
                f" {record.availability.name} {record.residency.name}"
            )
            if operation is None:
                return text
            progress = f"{operation.processed_members}/{operation.total_members}"
            state = operation.message or "running"
            return f"{text}, {operation.operation.name} {progress} {state}"
        case entries.LeaseUpsert(lease=lease):
            return f"{lease.identity} lease {lease.lease_id} of {lease.holder}"
        case entries.MetadataDelete(identity=identity):
            return f"{identity} erased"
        case entries.LeaseDelete(identity=identity, lease_id=lease_id):
            return f"{identity} lease {lease_id} ended"
