"""Documents from records and plans.  Layer: api.

Pure functions; the shapes are `documents`', which is imported for its types only, because a command
that only asks starts without it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from weightctl.controller.core.identity import (
    identity_digest,
    identity_of_key,
    manifest_key,
    payload_group_id,
    payload_prefix,
    revision_record_key,
)
from weightctl.controller.errors import ErrorCode, WeightctlError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from weightctl.controller.api import documents as doc
    from weightctl.controller.core.identity import Identity
    from weightctl.controller.core.observation import Member
    from weightctl.controller.core.plan import Plan
    from weightctl.controller.core.policy import Policy
    from weightctl.controller.core.records import (
        ManifestReference,
        ResidencyOperation,
        RevisionLease,
        RevisionView,
        Snapshot,
    )
    from weightctl.controller.core.tiers import TierCapacity, TierProfile
    from weightctl.controller.ports import InventoryItem
    from weightctl.controller.runtime.health import Health

API_VERSION: Final = "weightctl/v1"
ORPHAN_KEYS_MAX = 20


def name(identity: Identity) -> doc.Name:
    """The five fields of an identity and its command-line form."""
    return {
        "identity": str(identity),
        "tenantId": identity.tenant_id,
        "namespace": identity.namespace,
        "resourceId": identity.resource_id,
        "revision": identity.revision,
        "weightGeneration": identity.weight_generation,
    }


def revision(view: RevisionView, operation: ResidencyOperation | None) -> doc.Revision:
    """A record, its running operation (None when idle) and its live leases."""
    record = view.metadata
    return {
        "apiVersion": API_VERSION,
        "kind": "Revision",
        **name(record.identity),
        "availability": record.availability.name,
        "residency": record.residency.name,
        "operation": None if operation is None else operation_fields(operation),
        "metadataGeneration": record.metadata_generation,
        "createdAtMs": record.created_at_ms,
        "updatedAtMs": record.updated_at_ms,
        "manifest": _manifest(record.manifest),
        "leases": {
            "active": view.active_lease_count,
            "nearestExpiryMs": view.nearest_lease_expiry_ms,
        },
    }


def _manifest(reference: ManifestReference) -> doc.ManifestDocument:
    return {
        "manifestKey": reference.manifest_key,
        "manifestSha256": reference.manifest_sha256,
        "payloadGroupId": reference.payload_group_id,
        "payloadKeysSha256": reference.payload_keys_sha256,
        "payloadCount": reference.payload_count,
        "logicalBytes": reference.logical_bytes,
    }


def operation_fields(operation: ResidencyOperation) -> doc.OperationFields:
    """One operation, running or completed."""
    return {
        "operationId": operation.operation_id,
        "operation": operation.operation.name,
        "targetResidency": operation.target_residency.name,
        "processedMembers": operation.processed_members,
        "totalMembers": operation.total_members,
        "cursor": operation.cursor,
        "message": operation.message,
        "fencedMetadataGeneration": operation.fenced_metadata_generation,
        "startedAtMs": operation.started_at_ms,
        "updatedAtMs": operation.updated_at_ms,
    }


def lease(record: RevisionLease, *, live: bool) -> doc.Lease:
    """One lease; `live` as judged by the caller's clock and state."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Lease",
        **name(record.identity),
        "leaseId": record.lease_id,
        "holder": record.holder,
        "expiresAtMs": record.expires_at_ms,
        "fencedMetadataGeneration": record.fenced_metadata_generation,
        "live": live,
    }


def member(value: Member) -> doc.MemberFields:
    """One object of a payload group."""
    return {
        "key": value.key,
        "dataType": value.data_type.name,
        "sizeBytes": value.size_bytes,
        "sha256": value.sha256.hex(),
    }


def keys(identity: Identity) -> doc.Keys:
    """Every name that is derived from an identity."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Keys",
        **name(identity),
        "manifestKey": manifest_key(identity),
        "payloadPrefix": payload_prefix(identity),
        "payloadGroupId": payload_group_id(identity),
        "identityDigest": identity_digest(identity),
        "revisionRecordKey": revision_record_key(identity),
    }


def obstacle(key: str, tier: str, refused: WeightctlError) -> doc.Obstacle:
    """What is in the way of a verb, as the error that it would be refused with."""
    return {
        "key": key,
        "tier": tier,
        "code": _code(refused),
        "reason": refused.reason,
        "what": refused.what,
        "why": refused.why,
        "todo": refused.todo,
    }


def plan(
    identity: Identity,
    purpose: str,
    rounds: Sequence[Plan],
    *,
    warnings: Sequence[str] = (),
    remarks: Sequence[str] = (),
) -> doc.Plan:
    """What would be done for one revision; `purpose` is the verb that was asked about."""
    value, last = rounds[0], rounds[-1]
    moved, needed = _totals(rounds)
    return {
        "apiVersion": API_VERSION,
        "kind": "Plan",
        **name(identity),
        "purpose": purpose,
        "verdict": value.verdict.value,
        "steps": [
            {
                "round": number,
                "step": step.kind.value,
                "reason": step.reason.value,
                "source": step.source,
                "target": step.target,
                "members": step.count,
                "sizeBytes": step.size_bytes,
            }
            for number, made in enumerate(rounds, 1)
            for step in made.steps
        ],
        "waits": [
            {
                "reason": wait.reason.value,
                "what": wait.what,
                "members": wait.count,
                "untilMs": wait.until_ms,
                "neededBytes": wait.needed_bytes,
                "freeBytes": wait.free_bytes,
            }
            for wait in dict.fromkeys((*value.waits, *last.waits))
        ],
        "transfers": [
            {"source": source, "target": target, "sizeBytes": size_bytes}
            for (source, target), size_bytes in moved.items()
        ],
        "tiers": [
            {
                "name": tier,
                "neededBytes": needed[tier],
                "freeBytes": free,
            }
            for tier, free in value.free_bytes.items()
        ],
        "availability": None if value.availability is None else value.availability.name,
        "residency": None if value.residency is None else value.residency.name,
        "processedMembers": value.processed_members,
        "totalMembers": value.total_members,
        "lostMembers": value.lost_members,
        "converges": last.converges and not any(step.mask for step in last.steps),
        "warnings": list(warnings),
        "remarks": list(remarks),
    }


def warnings(value: Plan, policy: Policy) -> list[str]:
    """What a reviewer should know of a revision, apart from what is to be done."""
    count, budget = value.total_members, policy.members_budget
    if count <= budget:
        return []
    todo = "publish it in fewer, larger objects (import.payload_bytes)"
    return [f"{count} members: above policy.members_budget of {budget}; {todo}"]


def _totals(rounds: Sequence[Plan]) -> tuple[Counter[tuple[str, str]], Counter[str]]:
    """Bytes by (source, target) and into each tier, over all rounds."""
    moved: Counter[tuple[str, str]] = Counter()
    needed: Counter[str] = Counter()
    for made in rounds:
        moved.update(made.bytes_by_pair)
        needed.update(made.needed_bytes)
    return moved, needed


def tier(
    profile: TierProfile, capacity: TierCapacity | None, problem: str, *, todo: str = ""
) -> doc.TierFields:
    """One tier; `capacity` None when it could not be read, `problem` says why."""
    capabilities = profile.capabilities
    return {
        "name": profile.name,
        "tier": profile.kind,
        "hot": profile.hot,
        "capabilities": [
            word for word in capabilities.__dataclass_fields__ if getattr(capabilities, word)
        ],
        "usedBytes": None if capacity is None else capacity.used_bytes,
        "freeBytes": None if capacity is None else capacity.free_bytes,
        "totalBytes": None if capacity is None else capacity.total_bytes,
        "problem": problem,
        "todo": todo,
    }


def orphan(
    tier: str, group_id: str, why: str, items: Sequence[InventoryItem] = (), *, todo: str = ""
) -> doc.OrphanFields:
    """A group that nobody owns; without a group it is a tier that could not be listed."""
    keys = sorted(item.key for item in items)
    owner = None if not keys else identity_of_key(keys[0])
    named = owner is not None and payload_group_id(owner) == group_id
    return {
        "tier": tier,
        "payloadGroupId": group_id,
        "identity": str(owner) if named else "",
        "why": why,
        "objects": len(items),
        "sizeBytes": sum(item.size_bytes for item in items),
        "keys": keys[:ORPHAN_KEYS_MAX],
        "todo": todo,
    }


def health(found: Health) -> doc.Health:
    """How the running loop is doing."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Health",
        "ready": found.ready,
        "problems": found.problems,
        "tiers": found.tiers,
        "media": {
            tier: {"state": report.state, "numbers": dict(report.numbers)}
            for tier, report in found.media.items()
        },
        "due": found.due,
        "delayed": found.delayed,
        "active": found.active,
        "oldestWaitSeconds": found.oldest_wait_s,
        "stuck": found.stuck,
        "failing": found.failing,
        "lost": found.lost,
        "driftRoundAgeSeconds": found.drift_round_age_s,
    }


def snapshot(action: str, path: Path, weights: Snapshot) -> doc.SnapshotReport:
    """A snapshot file that was saved, restored or verified."""
    return {
        "apiVersion": API_VERSION,
        "kind": "SnapshotReport",
        "path": str(path),
        "action": action,
        "revisions": len(weights.metadata),
        "leases": len(weights.leases),
        "operations": len(weights.operations),
        "sizeBytes": path.stat().st_size,
    }


def error(failure: WeightctlError) -> doc.Error:
    """A failure in its three parts."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Error",
        "code": _code(failure),
        "reason": failure.reason,
        "what": failure.what,
        "why": failure.why,
        "todo": failure.todo,
    }


def _code(failure: WeightctlError) -> str | None:
    """The contract's code; an error that came over the control socket carries its text."""
    code = getattr(failure, "code", None)
    return code.name if isinstance(code, ErrorCode) else code
